"""`scs-eval localisation`: does the map of a class point at that class's image in a grid of several?"""

import shutil
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from scs_eval.cli.options import data_options, load_images
from scs_eval.cli.output import choose_device, choose_out, data_settings, finish, folder_name, output_options
from scs_eval.cli.progress import progress
from scs_eval.cli.saliency import choose_methods
from scs_eval.cli.sources import choose_models, input_size_of, load_all, model_option
from scs_eval.errors import InputError

if TYPE_CHECKING:
    from torch import Tensor, nn

    from scs_eval.analyses.game_grids import Grids
    from scs_eval.analyses.localisation_result import LocalisationResult
    from scs_eval.data import ImageData

GRIDS = 500
OCCLUSION = "occlusion"
Job = tuple[str, str]


@click.command()
@model_option(required=True)
@click.option("--method", "methods", multiple=True, default=("wx",), show_default=True, help="Repeatable, or all.")
@click.option("--grid", "side", type=click.Choice(["2", "3"]), default="3", show_default=True, help="Cells per side.")
@click.option(
    "--setting", type=click.Choice(["grid", "difull", "dipart"]), default="grid", show_default=True,
    help="The pointing game, or one where a class's logit cannot depend on other cells (at all; but at the edges).",
)  # fmt: skip
@click.option(
    "--protocol", type=click.Choice(["paper", "bcos-v2"]), default="paper", show_default=True,
    help="bcos-v2: grids, order of cells and arithmetic of the B-cos authors' code; every model has its own grids.",
)  # fmt: skip
@click.option("--smooth", type=int, help="Side of the smoothing kernel.  [default: 3 at 32 pixels, 15 at 224]")
@click.option("--top", type=float, help="Also score only the N strongest pixels, or a share of them such as 0.025.")
@click.option(
    "--look", type=click.Choice(["auto", "whole", "windows"]), default="auto", show_default=True,
    help="At the whole grid, or through windows of the model's own size; auto: whole if the model can.",
)  # fmt: skip
@click.option(
    "--stride", type=click.IntRange(min=1), help="Step of the windows.  [default: half their side, where that is whole]"
)
@click.option(
    "--square", type=click.IntRange(min=1), help="Side of occlusion's square.  [default: a sixth of an image's side]"
)
@click.option(
    "--grids", "replay", type=click.Path(path_type=Path), help="Replay grids.csv of a result (with -n its first)."
)
@click.option(
    "--images", "pool", type=click.IntRange(min=1),
    help="Choose from this many images, evenly over the classes.  [default: all; of 224 pixels 1,000 take 0.6 GB]",
)  # fmt: skip
@click.option("--own-grids", is_flag=True, help="Let each model have grids of its own, by its own confidence.")
@click.option("--batch-size", default="auto", show_default=True, help="Grids at once; auto: what fits into memory.")
@data_options(f"Grids to play, as far as there are images.  [default: {GRIDS}]")
@output_options
def command(
    models: tuple[str, ...],
    methods: tuple[str, ...],
    side: str,
    setting: str,
    protocol: str,
    smooth: int | None,
    top: float | None,
    look: str,
    stride: int | None,
    square: int | None,
    replay: Path | None,
    pool: int | None,
    own_grids: bool,
    batch_size: str,
    data: str,
    data_dir: str | None,
    n: int | None,
    seed: int,
    skip_bad: bool,
    out: Path | None,
    device: str,
) -> None:
    """Play the grid pointing game: images of different classes side by side, and the map of each class's logit.

    The score is the positive attribution in the class's own cell, as a share of all. Beside it stand chance and what
    smoothing leaves of a map that is even in its cell; a map that keeps away from the edges can score more. All models
    of one call see the same grids, made of images that every one of them has right, the most confidently classified
    first. A model that cannot take a grid looks at it through overlapping windows of its own size; the table says
    which. An interrupted run goes on where it stopped when the same command is given again.

    \b
    Examples:
      scs-eval localisation --model rohrer100k_scs --model rohrer100k_conv --grid 2 -n 100
      scs-eval localisation --model resnet20_bcos --method wx --method ixg --method gradcam --top 0.025
      scs-eval localisation --model 'bcos_cnn9*' --data cifar10
    """
    at_once = parse_batch_size(batch_size)
    if smooth is not None:
        from scs_eval.analyses.pointing import check_smooth

        check_smooth(smooth)
    methods, names = choose_methods(methods), choose_models(models)
    if square is not None and OCCLUSION not in methods:
        raise InputError(f"--square is for occlusion, got {', '.join(methods)}; add --method occlusion or leave it out")
    out = choose_out(out, analysis="localisation", names=models)
    device = choose_device(device)
    networks = {name: network.to(device) for name, network in load_all(names).items()}

    @cache
    def images(size: int | None) -> "ImageData":
        return load_images(data, data_dir=data_dir, n=pool, seed=seed, skip_bad=skip_bad, size=size)

    pictures = {name: images(input_size_of(name)) for name in names}
    logits = answer_all(networks, pictures)
    grids = choose(
        logits, pictures, replay=replay, own=own_grids, protocol=protocol, seed=seed, side=int(side), count=n
    )
    unfinished = out.with_name(f".{out.name}.partial")

    def run(name: str, method: str, progress: Callable[[int], None]) -> "LocalisationResult":
        from scs_eval.analyses.localisation import localisation

        found = pictures[name]
        result = localisation(
            networks[name], found.images, found.labels, grids[name], classes=found.classes, method=method,
            setting=setting, protocol=protocol, smooth=smooth, top=top, look=look, stride=stride,
            square=square if method == OCCLUSION else None, batch_size=at_once, indices=found.indices, label=name,
            seed=seed, correct=count_right(logits[name], found.labels),
            partial=str(unfinished / f"{folder_name([name, method])}.npz"), progress=progress,
        )  # fmt: skip
        return result.with_settings({**data_settings(found, seed=seed), "look": result.seen})

    results = run_all([(name, method) for name in names for method in methods], run, grids)
    from scs_eval.analyses.localisation_result import compare

    finish(compare(results, label=out.name), out)
    shutil.rmtree(unfinished, ignore_errors=True)


def parse_batch_size(text: str) -> int | None:
    """None for auto."""
    if text == "auto":
        return None
    if not text.isdigit() or int(text) < 1:
        raise InputError(f"expected --batch-size as auto or a whole number of at least 1, got {text!r}")
    return int(text)


def answer_all(networks: "Mapping[str, nn.Module]", pictures: "Mapping[str, ImageData]") -> "dict[str, Tensor]":
    """Every model's logits for all single images."""
    from scs_eval.analyses.localisation import answers

    return {
        name: answers(network, pictures[name].images, classes=len(pictures[name].classes))
        for name, network in networks.items()
    }


def choose(
    logits: "Mapping[str, Tensor]",
    pictures: "Mapping[str, ImageData]",
    *,
    replay: Path | None,
    own: bool,
    protocol: str,
    side: int,
    count: int | None,
    seed: int,
) -> "dict[str, Grids]":
    """The grids of each model: replayed, the same for all, or each its own."""
    from scs_eval.analyses.game_grids import choose_grids, published_grids, read_grids

    def grids_of(name: str) -> "Grids":
        found = pictures[name]
        if replay is not None:
            return read_grids(replay, found.labels, found.indices, classes=found.classes, model=name, count=count)
        if protocol == "bcos-v2":
            return published_grids(logits[name], found.labels, found.indices, side=side, count=count or GRIDS)
        judges = [logits[name]] if own else list(logits.values())
        return choose_grids(judges, found.labels, found.indices, side=side, count=count or GRIDS, seed=seed)

    grids = {name: grids_of(name) for name in logits}
    for name, found in grids.items():
        if len(found) < found.asked:
            whose = f" of {name}" if own or protocol == "bcos-v2" else ""
            click.echo(f"Only {len(found)} of {found.asked} grids{whose}: the images ran out", err=True)
            if not whose:
                break
    return grids


def count_right(logits: "Tensor", labels: "Tensor") -> tuple[int, int]:
    """How many single images the model has right, and of how many."""
    return int((logits.argmax(1) == labels).sum()), len(labels)


def run_all(jobs: list[Job], run: Any, grids: "Mapping[str, Grids]") -> "list[LocalisationResult]":
    """The results of all jobs; a method that cannot serve a model is left out with a line on stderr."""
    from scs_eval.analyses.layer_maps import UnsuitableError

    results, refused = [], []
    with progress("localisation", sum(len(grids[name]) for name, _ in jobs)) as advance:
        for name, method in jobs:
            advance(0, f"{name} {method}")
            try:
                results.append(run(name, method, advance))
            except UnsuitableError as error:
                refused.append(f"{name}, {method}: {error}")
                advance(len(grids[name]))
    if not results:
        raise InputError("; ".join(refused))
    for line in refused:
        click.echo(f"Left out: {' '.join(line.split())}", err=True)
    return results
