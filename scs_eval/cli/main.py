"""`scs-eval`: finds the command and imports only that one."""

import os
import sys
from importlib import import_module

import click
from click.shell_completion import CompletionItem

from scs_eval import __version__
from scs_eval.errors import InputError

# name -> one-line help. The help stands here so that `scs-eval --help` imports no command (and so no torch).
COMMANDS = {
    "models": "List the zoo: names, parameters, trained accuracy.",
    "doctor": "Tell what a checkpoint is and whether the analyses can work with it.",
    "data": "Show which images are there and where they are looked for.",
    "accuracy": "Measure how often each model is right, beside the paper.",
    "saliency": "Show what each model looks at, and how sparse, specific and steady that is.",
    "contributions": "Show what each pixel adds to the logit, and how complete that is.",
    "faithfulness": "Test whether maps say what the model does, against a random and an edge map.",
    "localisation": "Play the grid pointing game: does the map of a class lie on its image?",
    "pgd": "Attack each model with ever larger changes, and check whether its robustness is real.",
    "compare": "Compare any models on the same images: tests, curves, explanations, one page.",
    "train": "Train one model; its records, checkpoints and weights go to a directory.",
    "zoo": "Train many models, one after another or on a cluster.",
    "convert": "Swap the layers of any network for SCS, B-cos or other layers.",
    "dynamics": "Draw the records of training runs.",
    "bench": "Measure speed and memory against peers.",
}


class LazyGroup(click.Group):
    """A group that knows its commands' names and imports each only when it is run."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names in the order of COMMANDS, which is the order of a first tour."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        """Import `scs_eval.cli.<name>` and take its `command`."""
        if name not in COMMANDS:
            return None
        command: click.Command = import_module(f"scs_eval.cli.{name}").command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands from COMMANDS alone."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Complete the names of commands without importing them."""
        found = [CompletionItem(name, help=text) for name, text in COMMANDS.items() if name.startswith(incomplete)]
        return found or click.Command.shell_complete(self, ctx, incomplete)


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="scs-eval")
@click.option("--debug", is_flag=True, help="Show the traceback of an error.")
def cli(debug: bool) -> None:
    """Find out what an image classifier looks at and how easily it breaks."""
    from scs_eval.cli.memory import keep_freed_memory

    keep_freed_memory()


def main() -> None:
    """Run the command line; exit code 0 done, 1 the work failed, 2 the request was wrong."""
    try:
        code = cli.main(prog_name="scs-eval", standalone_mode=False)  # what `context.exit` was given, or None
        sys.exit(code)
    except click.Abort:
        _fail("interrupted", 130)
    except click.ClickException as error:
        if type(error).__name__ == "NoArgsIsHelpError":  # newer click's way to show the help of a bare group
            error.show()
            sys.exit(2)
        asked = error.ctx.command_path if isinstance(error, click.UsageError) and error.ctx else "scs-eval"
        _fail(f"{error.format_message()} See `{asked} --help`.", 2)
    except InputError as error:
        _fail(error, 2)
    except KeyboardInterrupt:
        _fail("interrupted", 130)
    except Exception as error:
        _fail(f"{type(error).__name__}: {error}", 1)


def _fail(message: object, code: int) -> None:
    if "--debug" in sys.argv and sys.exc_info()[0] is not None:
        raise
    if code != 2 or os.environ.get("LOCAL_RANK", "0") == "0":  # torchrun's processes are all asked the same
        print(f"Error: {' '.join(str(message).split())}", file=sys.stderr)
    sys.exit(code)
