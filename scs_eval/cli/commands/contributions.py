"""`scs-eval contributions`: what each pixel adds to a logit or a neuron, and how complete that is."""

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Literal

import click

from scs_eval.analyses.core.options import check_at_least
from scs_eval.cli.data_request import targets_of
from scs_eval.cli.output import say
from scs_eval.cli.params import options_from
from scs_eval.cli.request import Request, Session, request_options
from scs_eval.errors import InputError
from scs_eval.progress import progress

if TYPE_CHECKING:
    from scs_eval.analyses.contributions import ContributionsResult
    from scs_eval.analyses.contributions.neurons import NeuronsResult

DEFAULT_N, SEARCHED = 6, 500  # images to explain; among which those are looked for that activate a neuron most
DIRECTIONS = 3


@dataclass(frozen=True, kw_only=True)
class ContributionsOptions:
    """What is explained, of which images."""

    class_name: Annotated[str | None, "Only images of this class.", {"flag": "--class", "metavar": "NAME"}] = None
    target: Annotated[str, "Class to explain: predicted, label or a name."] = "predicted"
    style: Annotated[
        Literal["paper", "bcos-v2"],
        "How W(x) of a six-channel network becomes colours: as the paper says, or as the package bcos draws it.",
    ] = "paper"
    rows: Annotated[int, "Images in the figure; with --layer it has those that activate most."] = DEFAULT_N
    audit: Annotated[bool, "Also which layers put bias in, and how much; try -n 100."] = False
    delta: Annotated[bool, "Also the two most likely classes and the difference of their maps."] = False
    mean_corrected: Annotated[bool, "Also the maps without what all classes share."] = False
    shift: Annotated[
        int | None, "One image and its copies shifted by up to so many pixels: does the map move along?"
    ] = None
    layer: Annotated[str | None, "Explain this layer of the network instead of its logits.", {"metavar": "NAME"}] = None
    neurons: Annotated[tuple[int, ...], "A channel of --layer; repeatable.", {"flag": "--neuron", "metavar": "K"}] = ()
    directions: Annotated[
        int | None,
        "The K feature directions of --layer that contribute most.  [default: 3 if no neuron is named]",
        {"metavar": "K"},
    ] = None

    def __post_init__(self) -> None:
        """Refuse options about a layer that do not go together."""
        if self.layer is None and (self.neurons or self.directions is not None):
            flag = "--neuron" if self.neurons else "--directions"
            raise InputError(f"{flag} needs --layer, the layer that it is about")
        if self.layer is not None and self.extras:
            raise InputError(f"--{self.extras[0]} is about logits; leave it or --layer out")
        check_at_least(1, rows=self.rows)
        if self.shift is not None and (self.layer is not None or self.extras):
            raise InputError("--shift shows the maps of one image; leave it or the other figures out")
        if self.directions is not None and self.directions < 1:
            raise InputError(f"expected --directions of at least 1, got {self.directions}")

    @property
    def extras(self) -> list[str]:
        """What is wanted besides the maps."""
        flags = {"audit": self.audit, "delta": self.delta, "mean-corrected": self.mean_corrected}
        return [name for name, on in flags.items() if on]

    @property
    def direction_count(self) -> int:
        """How many feature directions are explained."""
        return self.directions if self.directions is not None else 0 if self.neurons else DIRECTIONS


@click.command()
@request_options(
    "contributions",
    n_help=f"Take this many images, evenly over the classes.  [default: {DEFAULT_N}; with --layer {SEARCHED}]",
)
@options_from(ContributionsOptions, into="options")
def command(request: Request, options: ContributionsOptions) -> None:
    """Show what each pixel adds to the logit of a class: W(x)⊙x, the B-cos explanation, for any dynamic-linear network.

    A map is shown with what it leaves out: the share of the layers' biases and the residual. Networks that encode
    [x, 1-x] also get W(x) as colours. The figure has the first --rows images, the table all. A constant that all
    classes get stands apart from the network's biases; what is no larger than the residual is called so.

    With --layer, the activations inside the network are explained in the same way: of neurons, or of the feature
    directions that contribute most to the class (of each image, --target). Each is shown with those of the -n images
    that activate it most, at their strongest position. A layer that runs several times in a pass is taken at its last.

    \b
    Examples:
      scs-eval contributions --model rohrer100k_scs
      scs-eval contributions --model rohrer100k_scs --class cat --target dog -n 4
      scs-eval contributions --model 'rohrer100k*' --audit --delta
      scs-eval contributions resnet20_bcos rohrer100k_bcos --shift 4
      scs-eval contributions --model rohrer100k_scs --layer stages.1 --neuron 3 --neuron 5
      scs-eval contributions --model rohrer100k_scs --layer stages.2 --directions 5 --target dog
    """
    if options.layer is not None:
        explain_layers(replace(request, analysis="neurons"), options)
    elif options.shift is not None:
        explain_shifted(request, options, most=options.shift)
    else:
        explain_logits(request, options)


def explain_logits(request: Request, options: ContributionsOptions) -> None:
    """What each pixel adds to a logit."""
    from scs_eval.analyses.contributions import KEPT, contributions
    from scs_eval.analyses.core.result import side_by_side

    with request.open() as session:
        default_n = max(DEFAULT_N, options.rows)
        given = {name: explained(session, name, options, default_n=default_n) for name in session.models}
        results = []
        with progress("contributions", sum(len(shared.arguments["images"]) for shared in given.values())) as advance:
            for name, shared in given.items():
                advance(0, name)
                network = session.models[name].model
                run = partial(
                    contributions, network, **shared.arguments, extras=options.extras, shown=options.rows,
                    kept=max(KEPT, options.rows), progress=advance,
                )  # fmt: skip
                result = session.result(run, name)
                results.append(result.with_settings(shared.settings))
        whole = side_by_side(results, label=request.out.name)
        if options.audit:
            show_audit(whole)
        session.finish(whole)
        for result in results:
            warn_if_incomplete(result)


def explain_shifted(request: Request, options: ContributionsOptions, *, most: int) -> None:
    """Whether the maps of one image move along with it."""
    from scs_eval.analyses.contributions.shifts import explain_shifts
    from scs_eval.analyses.core.result import side_by_side

    with request.open() as session:
        results = []
        for name, named in session.models.items():
            shared = explained(session, name, options, default_n=1)
            image = shared.arguments["images"].images[0]
            run = partial(explain_shifts, named.model, image, label=name, most=most)
            results.append(session.result(run, name).with_settings({**shared.settings, "shift": most}))
        session.finish(side_by_side(results, label=request.out.name))


def explain_layers(request: Request, options: ContributionsOptions) -> None:
    """What each pixel adds to a neuron or a direction of a layer."""
    from scs_eval.analyses.contributions.neurons import neurons
    from scs_eval.analyses.core.result import side_by_side

    with request.open() as session:
        results = []
        for name, named in session.models.items():
            shared = explained(session, name, options, default_n=SEARCHED)
            run = partial(
                neurons, named.model, **shared.arguments, layer=str(options.layer), channels=options.neurons,
                directions=options.direction_count,
            )  # fmt: skip
            result = session.result(run, name)
            results.append(result.with_settings(shared.settings))
        session.finish(side_by_side(results, label=request.out.name))
        for result in results:
            warn_if_incomplete(result)
            warn_if_fewer(result, wanted=options.direction_count)


@dataclass(frozen=True)
class Explained:
    """What the explanation of logits and of a layer are given alike, and what their results say of it."""

    arguments: dict[str, Any]
    settings: dict[str, Any]


def explained(session: Session, name: str, options: ContributionsOptions, *, default_n: int) -> Explained:
    """The images and targets of a model."""
    data = session.images(name, class_name=options.class_name, default_n=default_n)
    arguments = {
        "images": data, "targets": targets_of(data, options.target), "label": name, "picture": options.style,
    }  # fmt: skip
    return Explained(arguments, {**session.settings(data), "target": options.target, "style": options.style})


def show_audit(result: Any) -> None:
    """Print which layers put bias in."""
    from scs_eval.analyses.contributions.bias_audit import audit_summary
    from scs_eval.report.markdown import markdown

    click.echo(markdown(audit_summary(result.tables()["audit"])))


def warn_if_incomplete(result: "ContributionsResult | NeuronsResult") -> None:
    """One line on stderr if maps leave out more than a thousandth of their logit or activation."""
    if missing := int((~result.complete).sum()):
        table = result.table()
        worst = table["relative_residual"].max()
        say(
            f"Warning: {missing} of {result.complete.size} maps of {result.label} leave more than 0.1 % of the "
            f"{'logit' if 'logit' in table else 'activation'} unexplained (up to {100 * worst:.2g} %); "
            "they are marked INCOMPLETE",
            err=True,
        )


def warn_if_fewer(result: "NeuronsResult", *, wanted: int) -> None:
    """One line on stderr if a layer does not have as many different directions as were asked for."""
    if (count := int((result.sources >= 0).sum())) < wanted:
        say(
            f"Note: {result.layer} of {result.label} has only {count} directions that differ (cosine below 0.8) among "
            "those that contribute most",
            err=True,
        )
