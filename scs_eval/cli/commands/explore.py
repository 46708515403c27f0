"""`scs-eval explore`: the explorer as a page of this machine."""

import webbrowser
from dataclasses import dataclass
from typing import Annotated

import click

from scs_eval.cli.params import Whole, options_from
from scs_eval.cli.request import Request, request_options
from scs_eval.errors import InputError

DEFAULT_N = 50


@dataclass(frozen=True, kw_only=True)
class ExploreOptions:
    """What can be chosen, and where the page is."""

    methods: Annotated[
        tuple[str, ...], "A method to offer; repeatable.  [default: those of one or two passes]", {"flag": "--method"}
    ] = ()
    view: Annotated[str, "A view to begin with: what follows # in a link of the page."] = ""
    port: Annotated[int, "Port of 127.0.0.1; 0 is any that is free.", {"type": Whole(0)}] = 0
    no_browser: Annotated[bool, "Only print the address."] = False


@click.command()
@request_options("explore", n_help=f"Images to choose from, evenly over the classes.  [default: {DEFAULT_N}]")
@options_from(ExploreOptions, into="options")
def command(request: Request, options: ExploreOptions) -> None:
    """Open a page on which maps and attacks follow what you pick: image, class, models, method, ε.

    It is served to this machine alone, at an address that nobody can guess, until Ctrl-C. The page saves what it shows
    as PNG; its address is a link to the view.

    \b
    Examples:
      scs-eval explore rohrer100k_scs rohrer100k_conv
      scs-eval explore --model mine=model.safetensors --data photographs/ --method wx --method gradcam
    """
    from scs_eval.explorer.server import App, make_server
    from scs_eval.explorer.view import offered_methods

    with request.open() as session:
        data = {name: session.images(name, default_n=DEFAULT_N) for name in session.models}
        models = {name: named.model for name, named in session.models.items()}
        app = App(models, data, methods=options.methods or offered_methods())
        app.warm_up()
        try:
            server, address = make_server(app, port=options.port)
        except OSError as error:
            raise InputError(f"port {options.port} is taken ({error.strerror}); choose another, or none") from error
        click.echo(f"{address}#{options.view.removeprefix('#')}")
        click.echo("Ctrl-C ends it.", err=True)
        if not options.no_browser:
            webbrowser.open(f"{address}#{options.view.removeprefix('#')}")
        with server:
            try:
                server.serve_forever(poll_interval=0.1)
            except KeyboardInterrupt:
                click.echo("", err=True)
