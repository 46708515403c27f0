"""`scs-eval`: finds the command and imports only that one."""

import io
import os
import sys
from contextlib import suppress
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import click
from click.shell_completion import CompletionItem

from scs_eval import __version__
from scs_eval.analyses.catalogue import ENTRIES
from scs_eval.errors import InputError, printable, shortened
from scs_eval.plugins import load_plugin, names_from_outside

# Commands that are no analyses: name -> one-line help. Those before the analyses come first on a first tour.
BEFORE = {
    "models": "List the zoo: names, parameters, trained accuracy.",
    "doctor": "Tell what a checkpoint is and whether the analyses can work with it.",
    "methods": "List the attribution methods: what they measure, need and cost, where they fail.",
    "metrics": "List the metrics of maps: what they measure, which way is better, their cost.",
    "attacks": "List the attacks: what they do, their norms, budget and cost.",
    "data": "Show which images are there and where they are looked for.",
}
AFTER = {
    "explore": "Open a page on which maps and attacks follow what you pick.",
    "train": "Train one model; its records, checkpoints and weights go to a directory.",
    "zoo": "Train many models, one after another or on a cluster.",
    "convert": "Swap the layers of any network for SCS, B-cos or other layers.",
    "export": "Write a network as a file that ONNX Runtime or torch alone can run.",
}


def commands() -> dict[str, str]:
    """Every command and its one-line help, in the order of a first tour; nothing is imported for it."""
    return {**BEFORE, **{name: entry.command for name, entry in ENTRIES.items() if entry.command}, **AFTER}


def split_plugins(args: list[str]) -> tuple[list[str], list[str]]:
    """What was typed without `--plugin FILE`, and those files; behind `--` nothing is an option."""
    end = args.index("--") if "--" in args else len(args)
    rest, files, words = [], [], iter(args[:end])
    for word in words:
        flag, equals, value = word.partition("=")
        if flag != "--plugin":
            rest.append(word)
            continue
        file = value if equals else next(words, "")
        if not file:
            raise click.UsageError("Option '--plugin' requires an argument.")
        files.append(file)
    return rest + args[end:], files


def plugin_lines() -> str:
    """What was registered from outside, for the end of every help; nothing if nothing was."""
    lines = [f"  {kind}: {', '.join(names)}" for kind, names in names_from_outside().items()]
    return "\n".join(["\b", "From plugins:", *lines]) if lines else ""


class LazyGroup(click.Group):
    """A group that knows its commands' names and imports each only when it is run."""

    asks_help = False

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names in the order of a first tour."""
        return list(commands())

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Run the files of --plugin, wherever it stands: what they register may be the very command."""
        args, files = split_plugins(args)
        for file in files:
            load_plugin(file)
        self.asks_help = not set(args[: args.index("--") if "--" in args else len(args)]).isdisjoint(("-h", "--help"))
        return super().parse_args(ctx, args)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """What plugins registered."""
        self.epilog = plugin_lines()
        super().format_epilog(ctx, formatter)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        """The command of that name; where help is asked for, it and its subcommands name what plugins registered."""
        command = self._find(name)
        if command is not None and self.asks_help:
            for part in (command, *getattr(command, "commands", {}).values()):
                part.epilog = plugin_lines()
        return command

    def _find(self, name: str) -> click.Command | None:
        """The `command` of `scs_eval.cli.commands.<name>`; an analysis without such a file gets one made."""
        if not (name in BEFORE or name in AFTER or (name in ENTRIES and ENTRIES[name].command)):
            return None
        module = f"scs_eval.cli.commands.{name}"
        if find_spec(module) is None:
            from scs_eval.cli.analysis_command import make_command

            return make_command(ENTRIES[name])
        command: click.Command = import_module(module).command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands without importing any."""
        with formatter.section("Commands"):
            formatter.write_dl(list(commands().items()))

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Complete the names of commands without importing them."""
        names = [CompletionItem(name, help=text) for name, text in commands().items() if name.startswith(incomplete)]
        return names or click.Command.shell_complete(self, ctx, incomplete)


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="scs-eval")
@click.option("--debug", is_flag=True, help="Show the traceback of an error.")
@click.option(
    "--plugin", metavar="FILE.py", multiple=True,
    help="Run a file that registers methods, attacks, metrics, data, models or analyses; also behind the command.",
)  # fmt: skip
def cli(debug: bool, plugin: tuple[str, ...]) -> None:
    """Find out what an image classifier looks at and how easily it breaks."""
    from scs_eval.memory import keep_freed_memory

    keep_freed_memory()


def main() -> None:
    """Run the command line; exit code 0 done, 1 the work failed, 2 the request was wrong, 3 a gate."""
    prepare_streams()
    try:
        code = cli.main(prog_name="scs-eval", standalone_mode=False)  # what `context.exit` was given, or None
        sys.stdout.flush()
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
    except BrokenPipeError:  # nobody reads on, as in `scs-eval models | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        sys.exit(1)
    except OSError as error:  # a file that cannot be read or written: the system says why
        ours = error.filename is not None or _is_full(error)
        what = "the disk" if error.filename is None else shortened(str(error.filename))
        _fail(f"{what}: {error.strerror or error}{_advice(error)}", 2 if ours else 1)
    except Exception as error:
        _fail(f"{type(error).__name__}: {error}", 1)


def prepare_streams() -> None:
    """Let every line be printed: a terminal that knows only ASCII shows ?, and a closed stream takes what it gets."""
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:  # or the next file that is opened gets this number, and with it what is printed
            os.open(os.devnull, os.O_RDWR)
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115 (until the end)
        elif isinstance(stream := getattr(sys, name), io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def _is_full(error: OSError) -> bool:
    from scs_eval.files import FULL  # here: `scs-eval --help` starts without it

    return error.errno in FULL


def _advice(error: OSError) -> str:
    if _is_full(error):
        return "; make room or choose another --out"
    return "; check the path" if error.filename else ""


def _fail(message: object, code: int) -> None:
    if "--debug" in sys.argv and sys.exc_info()[0] is not None:
        raise
    if code != 2 or os.environ.get("LOCAL_RANK", "0") == "0":  # torchrun's processes are all asked the same
        with suppress(OSError):  # also where stderr is a full disk
            print(f"Error: {printable(' '.join(str(message).split()))}", file=sys.stderr, flush=True)
    sys.exit(code)
