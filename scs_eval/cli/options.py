"""Options that several commands share."""

import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.shell_completion import CompletionItem

from scs_eval.cli.sources import classes_of_models, remember, said
from scs_eval.errors import InputError

if TYPE_CHECKING:
    from scs_eval.data import ImageData

Function = TypeVar("Function", bound=Callable[..., Any])


def complete_source(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete the names of data sources, then folders."""
    names = [CompletionItem(name) for name in ("sample", "cifar10") if name.startswith(incomplete)]
    return names or [CompletionItem(incomplete, type="dir")]


EVALUATED = {224: 256}  # pixels of the network: to what the B-cos paper (C.1.2) and torchvision scale the shorter side
ALL_IMAGES = "Take this many images, evenly over the classes.  [default: all]"


def data_options(n_help: str = ALL_IMAGES) -> Callable[[Function], Function]:
    """Add --data and the options of `choice_options`; the command receives data, data_dir, n, seed, skip_bad."""
    text = "Images: sample (bundled), cifar10, or a folder of class folders."
    option = click.option("--data", default="sample", show_default=True, shell_complete=complete_source, help=text)
    return lambda function: option(choice_options(function, n_help))


def _at_least_one(context: click.Context, parameter: click.Parameter, value: int | None) -> int | None:
    if value is not None and value < 1:
        raise InputError(f"expected -n of at least 1, got {value}")
    return value


def choice_options(function: Function, n_help: str = ALL_IMAGES) -> Function:
    """Add --data-dir, -n, --seed and --skip-bad, and --resize, which `load_images` finds by itself."""
    for option in (
        click.option(
            "--resize",
            type=click.IntRange(min=1),
            expose_value=False,
            callback=remember,
            help="Of a folder: shorter side before the centre is cut out.  [default: 256 for 224 pixels]",
        ),
        click.option("--skip-bad", is_flag=True, help="Leave out unreadable images of a folder and say how many."),
        click.option("--seed", default=0, show_default=True, help="Seed of every random choice."),
        click.option("-n", "n", type=int, callback=_at_least_one, help=n_help),
        click.option(
            "--data-dir",
            type=click.Path(),
            help="Folder to look for cifar10 in, before $SCS_EVAL_DATA and the user cache.",
        ),
    ):
        function = option(function)
    return function


def load_images(
    source: str, *, data_dir: str | None, n: int | None, seed: int, skip_bad: bool, size: int | None
) -> "ImageData":
    """`load_data` for a command: a warning becomes one line on stderr."""
    from scs_eval.data import load_data
    from scs_eval.data.load import NAMES

    folder: dict[str, Any] = {}
    if source not in NAMES:
        resize = said("resize") or (EVALUATED.get(size) if size else None)
        folder = {"resize": resize, "num_classes": classes_of_models()}
    with warnings.catch_warnings():  # restores showwarning, too
        warnings.showwarning = lambda message, *_: click.echo(f"Warning: {message}", err=True)
        return load_data(source, data_dir=data_dir, n=n, seed=seed, skip_bad=skip_bad, size=size, **folder)


def parse_indices(text: str | None) -> list[int] | None:
    """`--indices`: whole numbers between commas, each once."""
    if text is None:
        return None
    try:
        numbers = [int(part) for part in text.split(",")]
    except ValueError:
        raise InputError(f"expected --indices as whole numbers such as 3,10, got {text!r}") from None
    return list(dict.fromkeys(numbers))
