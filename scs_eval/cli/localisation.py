"""`scs-eval localisation`: does the map of a class point at that class's image in a grid of several?"""

import shutil
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from scs_eval.cli.game_grids import BCOS_V2, GRIDS, choose, count_wrong, warn
from scs_eval.cli.options import data_options, load_images
from scs_eval.cli.output import choose_device, choose_out, data_settings, finish, folder_name, output_options
from scs_eval.cli.progress import Advance, progress
from scs_eval.cli.saliency import choose_methods
from scs_eval.cli.sources import choose_models, input_size_of, load_all, model_option
from scs_eval.errors import InputError

if TYPE_CHECKING:
    from torch import Tensor, nn

    from scs_eval.analyses.game_grids import Grids
    from scs_eval.analyses.localisation_result import LocalisationResult
    from scs_eval.data import ImageData

OCCLUSION = "occlusion"
Job = tuple[str, str]


@click.command()
@model_option(required=True)
@click.option("--method", "methods", multiple=True, default=("wx",), show_default=True, help="Repeatable, or all.")
@click.option("--grid", "side", type=click.Choice(["2", "3"]), help="Cells per side.  [default: 3, or as replayed]")
@click.option(
    "--setting", type=click.Choice(["grid", "difull", "dipart"]), default="grid", show_default=True,
    help="The pointing game, or one where a class's logit cannot depend on other cells (at all; but at the edges).",
)  # fmt: skip
@click.option(
    "--protocol", type=click.Choice(["paper", BCOS_V2]), default="paper", show_default=True,
    help="bcos-v2: grids, order of cells and arithmetic of the B-cos authors' code; every model has its own grids.",
)  # fmt: skip
@click.option(
    "--smooth", type=int,
    help="Side of the smoothing kernel.  [default: 3 at 32 pixels, 15 at 224; 1 for gradcam, normgrad and rollout, "
    "and in difull and dipart]",
)  # fmt: skip
@click.option("--top", type=float, help="Also score only the N strongest pixels, or a share of them such as 0.025.")
@click.option(
    "--look", type=click.Choice(["auto", "whole", "windows"]), default="auto", show_default=True,
    help="At the whole grid, or through windows of the model's own size; auto: whole if the model can and has no "
    "attention.",
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
    side: str | None,
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
    cells = None if side is None else int(side)
    grids = choose(logits, pictures, replay=replay, own=own_grids, protocol=protocol, seed=seed, side=cells, count=n)
    wrong = {name: count_wrong(logits[name], pictures[name], grids[name]) for name in names}
    warn(grids, wrong, methods if protocol == BCOS_V2 else (), replay=replay, each=own_grids or protocol == BCOS_V2)
    unfinished = out.with_name(f".{out.name}.partial")

    def run(name: str, method: str, progress: Advance) -> "LocalisationResult":
        from scs_eval.analyses.localisation import localisation

        found = pictures[name]
        result = localisation(
            networks[name], found.images, found.labels, grids[name], classes=found.classes, method=method,
            setting=setting, protocol=protocol, smooth=smooth, top=top, look=look, stride=stride,
            square=square if method == OCCLUSION else None, batch_size=at_once, indices=found.indices, label=name,
            seed=seed, correct=count_right(logits[name], found.labels), wrong=wrong[name],
            partial=str(unfinished / f"{folder_name([name, method])}.npz"), progress=progress, resumed=progress.resume,
        )  # fmt: skip
        return result.with_settings({**data_settings(found, seed=seed), "look": result.seen})

    results, failure = run_all([(name, method) for name in names for method in methods], run, grids)
    from scs_eval.analyses.localisation_result import compare

    finish(compare(results, label=out.name), out)
    if failure is not None:
        raise failure
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

    found = {}
    with progress("predictions", sum(len(pictures[name]) for name in networks)) as advance:
        for name, network in networks.items():
            advance(0, name)
            images, classes = pictures[name].images, len(pictures[name].classes)
            found[name] = answers(network, images, classes=classes, progress=advance)
    return found


def count_right(logits: "Tensor", labels: "Tensor") -> tuple[int, int]:
    """How many single images the model has right, and of how many."""
    return int((logits.argmax(1) == labels).sum()), len(labels)


def run_all(
    jobs: list[Job], run: Any, grids: "Mapping[str, Grids]"
) -> "tuple[list[LocalisationResult], Exception | None]":
    """The results of all jobs, and the first failure; a line on stderr for each that a method cannot serve or failed.

    If there is no result, whatever was in the way is raised.
    """
    from scs_eval.analyses.layer_maps import UnsuitableError
    from scs_eval.analyses.shards import processes

    results, lines, failures = [], [], []
    with progress("localisation", sum(len(grids[name]) for name, _ in jobs)) as advance:
        for name, method in jobs:
            advance(0, f"{name} {method}")
            try:
                results.append(run(name, method, advance))
            except UnsuitableError as error:
                lines.append(f"Left out: {name}, {method}: {error}")
                advance(len(grids[name]))
            except Exception as error:  # what is finished is to be written all the same
                if isinstance(error, InputError) or processes() > 1:  # a wrong request; others wait for this process
                    raise
                lines.append(f"Failed: {name}, {method}: {type(error).__name__}: {error}")
                failures.append(error)
                advance(len(grids[name]))
    if not results:
        raise failures[0] if failures else InputError("; ".join(line.removeprefix("Left out: ") for line in lines))
    for line in lines:
        click.echo(" ".join(line.split()), err=True)
    return results, failures[0] if failures else None
