"""`scs-eval saliency`: what each model looks at, as a figure and in numbers."""

import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from scs_eval.cli.images import pick_images
from scs_eval.cli.options import data_options, parse_indices
from scs_eval.cli.output import choose_device, choose_out, data_settings, finish, output_options
from scs_eval.cli.progress import progress
from scs_eval.cli.sources import (
    architecture_of,
    asked_for,
    choose_models,
    input_size_of,
    load_all,
    model_option,
    source_of,
)
from scs_eval.errors import InputError

if TYPE_CHECKING:
    from torch import nn

    from scs_eval.analyses.saliency import SaliencyResult
    from scs_eval.data import ImageData

CHEAP, COSTLY = 100, 20  # images for the metrics, by what a method costs
ENOUGH = 50  # images of a class, from which its accuracy is worth printing
Job = tuple[str, str]


@click.command()
@model_option(required=True)
@click.option("--method", "methods", multiple=True, default=("grad",), show_default=True, help="Repeatable, or all.")
@click.option("--class", "class_", metavar="NAME", help="Only images of this class.")
@click.option("--indices", metavar="I,J,…", help="Only these images, by their index in the original set.")
@click.option("--target", default="predicted", show_default=True, help="Class to explain: predicted, label or a name.")
@click.option("--reduce", default="max", show_default=True, help="Channels: max, mean, norm, sum or positive.")
@click.option("--min-accuracy", type=click.FloatRange(0, 1), help="Leave out models that are right less often.")
@click.option("--rows", type=click.IntRange(min=1), default=6, show_default=True, help="Images in the figure.")
@data_options(f"Images for the numbers.  [default: {CHEAP}; {COSTLY} for methods of many passes]")
@output_options
def command(
    models: tuple[str, ...],
    methods: tuple[str, ...],
    class_: str | None,
    indices: str | None,
    target: str,
    reduce: str,
    min_accuracy: float | None,
    rows: int,
    data: str,
    data_dir: str | None,
    n: int | None,
    seed: int,
    skip_bad: bool,
    out: Path | None,
    device: str,
) -> None:
    """Show what each model looks at: saliency maps, and how sparse, class-specific and steady they are.

    The figure has a row for each image and a column for each model and method. The table has means over n images with
    95 % intervals; with a network's convolution twin among the models, a paired test says whether its maps are sparser.

    Methods: grad, ixg, intgrad, smoothgrad, guided-backprop, deeplift, gradcam, lime, occlusion, rise, normgrad, wx,
    and rollout for ViTs. One that cannot serve a model is left out with a word why.

    \b
    Examples:
      scs-eval saliency --model rohrer100k_scs
      scs-eval saliency --model 'rohrer100k*' --class airplane --min-accuracy 0.6
      scs-eval saliency --model rohrer100k_scs --method grad --method wx --indices 27,36
    """
    methods = choose_methods(methods)
    wanted = parse_indices(indices)
    names = accurate(choose_models(models), min_accuracy)
    out = choose_out(out, analysis="saliency", names=models)
    device = choose_device(device)
    networks = {name: network.to(device) for name, network in load_all(names).items()}
    options: dict[str, Any] = {"data_dir": data_dir, "seed": seed, "skip_bad": skip_bad}

    @cache
    def images(size: int | None) -> "ImageData":
        usual = max(rows, *map(default_n, methods))
        return pick_images(data, class_=class_, indices=wanted, n=n, usual=usual, size=size, **options)

    @cache
    def own_accuracy(name: str, only: str) -> dict[str, float]:
        found = pick_images(data, class_=only, n=None, usual=sys.maxsize, size=input_size_of(name), **options)
        return class_accuracies(networks[name], found)

    def run(name: str, method: str) -> "SaliencyResult":
        from scs_eval.analyses.saliency import saliency

        chosen = images(input_size_of(name))
        if n is None and wanted is None:
            chosen = chosen.subset(slice(max(rows, default_n(method))))  # the first of what other methods get
        shown = len(wanted or ()) or rows
        only = only_class(chosen.subset(slice(shown))) if class_ or wanted else None
        result = saliency(
            networks[name], chosen.images, chosen.labels, classes=chosen.classes, method=method, reduce=reduce,
            target=target, label=name, indices=chosen.indices, shown=shown, seed=seed,
            network=architecture_of(name), accuracy=recorded_accuracy(name),
            class_accuracy=own_accuracy(name, only) if only else {},
        )  # fmt: skip
        return result.with_settings(data_settings(chosen, seed=seed))

    jobs = [(name, method) for name in names for method in methods]
    results = run_all(jobs, run)
    from scs_eval.analyses.saliency import compare

    finish(compare(results, label=out.name), out)


def run_all(jobs: list[Job], run: Any) -> "list[SaliencyResult]":
    """The results of all jobs; a method that cannot serve a model is left out with a line on stderr."""
    from scs_eval.analyses.layer_maps import UnsuitableError

    results, refused = [], []
    with progress("saliency", len(jobs)) as advance:
        for name, method in jobs:
            advance(0, f"{name} {method}")
            try:
                results.append(run(name, method))
            except UnsuitableError as error:
                refused.append(f"{name}, {method}: {error}")
            advance(1)
    if not results:
        raise InputError("; ".join(refused))
    for line in refused:
        click.echo(f"Left out: {' '.join(line.split())}", err=True)
    return results


def choose_methods(asked: Sequence[str]) -> tuple[str, ...]:
    """Each method once, `all` for every one; an unknown one raises."""
    from scs_eval.analyses.attribution import METHODS, find_method

    chosen = tuple(dict.fromkeys(name for each in asked for name in (METHODS if each == "all" else [each])))
    for name in chosen:
        find_method(name)
    return chosen


def accurate(names: Sequence[str], least: float | None) -> list[str]:
    """Models that are right at least that often by the index of weights; those it does not know stay."""
    if least is None:
        return list(names)
    shares = {name: recorded_accuracy(name) for name in names}
    low = {name: share for name, share in shares.items() if share is not None and share < least}
    if len(low) == len(shares):
        raise InputError(f"no model asked for has an accuracy of {least:g} or more; lower --min-accuracy")
    for name, share in low.items():
        click.echo(f"Left out: {name}: its accuracy is {share:g}", err=True)
    return [name for name in names if name not in low]


def recorded_accuracy(name: str) -> float | None:
    """On the whole test set, when the weights that are shipped were trained; None for any others."""
    from scs_eval.models.checkpoints import weights_index

    return weights_index().get(source_of(name), {}).get("accuracy") if asked_for()["weights"] is None else None


def default_n(method: str) -> int:
    """How many images a method is measured on unless -n says."""
    from scs_eval.analyses.attribution import find_method

    return CHEAP if find_method(method).cheap else COSTLY


def only_class(data: "ImageData") -> str | None:
    """The class that all of the images have, if they do."""
    found = set(data.labels.tolist())
    return data.classes[found.pop()] if len(found) == 1 else None


def class_accuracies(network: "nn.Module", data: "ImageData") -> dict[str, float]:
    """How often the network is right on each class that has enough images."""
    from scs_eval.analyses.accuracy import accuracy

    classes = accuracy(network, data.images, data.labels, classes=data.classes).per_class()
    enough = classes[classes["n"] >= ENOUGH]
    return {str(name): float(share) for name, share in zip(enough["class"], enough["accuracy"], strict=True)}
