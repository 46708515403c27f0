"""`scs-eval saliency`: what each model looks at, as a figure and in numbers."""

import sys
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from scs_eval.cli.accuracy import choose_models, input_size_of, load_all
from scs_eval.cli.model_names import MODEL
from scs_eval.cli.options import data_options, load_images, parse_indices
from scs_eval.cli.output import choose_device, choose_out, data_settings, finish, output_options
from scs_eval.errors import InputError

if TYPE_CHECKING:
    from torch import nn

    from scs_eval.analyses.saliency import SaliencyResult
    from scs_eval.data import ImageData

CHEAP, COSTLY = 100, 20  # images for the metrics, by what a method costs
ENOUGH = 50  # images of a class, from which its accuracy is worth printing
Job = tuple[str, str]


@click.command()
@click.option("--model", "models", type=MODEL, multiple=True, required=True, help="Name, pattern or file; repeatable.")
@click.option("--method", "methods", multiple=True, default=("grad",), show_default=True, help="Repeatable, or all.")
@click.option("--class", "class_", metavar="NAME", help="Only images of this class.")
@click.option("--indices", metavar="I,J,…", help="Only these images, by their index in the original set.")
@click.option("--target", default="predicted", show_default=True, help="Class to explain: predicted, label or a name.")
@click.option("--reduce", default="max", show_default=True, help="Channels: max, mean, norm, sum or positive.")
@click.option("--min-accuracy", type=click.FloatRange(0, 1), help="Leave out models that are right less often.")
@click.option("--rows", type=click.IntRange(min=1), default=6, show_default=True, help="Images in the figure.")
@data_options
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
    and rollout for ViTs.
    One that cannot serve a model is left out with a word why.

    \b
    Examples:
      scs-eval saliency --model rohrer100k_scs
      scs-eval saliency --model 'rohrer100k*' --class airplane --min-accuracy 0.6
      scs-eval saliency --model rohrer100k_scs --method grad --method wx --indices 3,10
    """
    if n is not None and n < 1:
        raise InputError(f"expected -n of at least 1, got {n}")
    methods = choose_methods(methods)
    wanted = parse_indices(indices)
    names = accurate(choose_models(models), min_accuracy)
    out = choose_out(out, analysis="saliency", names=models)
    device = choose_device(device)
    networks = {name: network.to(device) for name, network in load_all(names).items()}

    @cache
    def images(size: int | None) -> "ImageData":
        some = data not in ("sample", "cifar10") and class_ is None and wanted is None  # not all of a large folder
        options: dict[str, Any] = {"data_dir": data_dir, "seed": seed, "skip_bad": skip_bad, "size": size}
        try:
            return load_images(data, n=(n or CHEAP) if some else None, **options)
        except InputError:
            if n or not some:
                raise
            return load_images(data, n=None, **options)  # a folder with fewer images than we would have taken

    @cache
    def accuracies(name: str) -> dict[str, float]:
        return class_accuracies(networks[name], images(input_size_of(name)))

    def run(name: str, method: str) -> "SaliencyResult":
        from scs_eval.analyses.saliency import saliency

        everything = images(input_size_of(name))
        chosen = choose_images(everything, class_=class_, indices=wanted, n=n or default_n(method), exact=n, seed=seed)
        shares = accuracies(name)
        result = saliency(
            networks[name], chosen.images, chosen.labels, classes=chosen.classes, method=method, reduce=reduce,
            target=target, label=name, indices=chosen.indices, shown=len(wanted or ()) or rows, seed=seed,
            accuracy=recorded_accuracy(name), class_accuracy=shares,
        )  # fmt: skip
        return result.with_settings(data_settings(chosen, seed=seed))

    jobs = [(name, method) for name in names for method in methods]
    results = run_all(jobs, run)
    from scs_eval.analyses.saliency import compare

    finish(compare(results, label=out.name), out)


for _option in command.params:
    if _option.name == "n" and isinstance(_option, click.Option):
        _option.help = f"Images for the numbers.  [default: {CHEAP}; {COSTLY} for methods of many passes]"


def run_all(jobs: list[Job], run: Any) -> "list[SaliencyResult]":
    """The results of all jobs; a method that cannot serve a model is left out with a line on stderr."""
    from scs_eval.analyses.layer_maps import UnsuitableError

    results, refused = [], []
    with progress(jobs) as bar:
        for name, method in bar:
            try:
                results.append(run(name, method))
            except UnsuitableError as error:
                refused.append(f"{name}, {method}: {error}")
    if not results:
        raise InputError("; ".join(refused))
    for line in refused:
        click.echo(f"Left out: {' '.join(line.split())}", err=True)
    return results


def progress(jobs: list[Job]) -> AbstractContextManager[Iterable[Job]]:
    """The jobs with a bar on stderr, if somebody is watching."""
    if not sys.stderr.isatty():
        return nullcontext(jobs)
    return click.progressbar(jobs, label="saliency", file=sys.stderr, item_show_func=lambda job: job and " ".join(job))


def choose_methods(asked: Sequence[str]) -> tuple[str, ...]:
    """Each method once, `all` for every one; an unknown one raises."""
    from scs_eval.analyses.attribution import METHODS, find_method

    chosen = tuple(dict.fromkeys(name for each in asked for name in (METHODS if each == "all" else [each])))
    for name in chosen:
        find_method(name)
    return chosen


def accurate(names: list[str], least: float | None) -> list[str]:
    """Models that are right at least that often by the index of weights; those it does not know stay."""
    if least is None:
        return names
    kept = [name for name in names if (share := recorded_accuracy(name)) is None or share >= least]
    if not kept:
        raise InputError(f"no model asked for has an accuracy of {least:g} or more; lower --min-accuracy")
    return kept


def recorded_accuracy(name: str) -> float | None:
    """On the whole test set, when the model was trained."""
    from scs_eval.models.checkpoints import weights_index

    return weights_index().get(name, {}).get("accuracy")


def default_n(method: str) -> int:
    """How many images a method is measured on unless -n says."""
    from scs_eval.analyses.attribution import find_method

    return CHEAP if find_method(method).cheap else COSTLY


def choose_images(
    data: "ImageData", *, class_: str | None, indices: list[int] | None, n: int, exact: int | None, seed: int
) -> "ImageData":
    """The images with these indices, in this order; else n of the class or of all, by `seed`, shuffled.

    Without `exact` fewer will do where there are not so many.
    """
    import torch

    from scs_eval.analyses.saliency import class_position
    from scs_eval.data.choice import choose

    if class_ is not None:
        data = data.subset(data.labels == class_position(class_, data.classes))
    if not len(data):
        raise InputError(f"no image of the class {class_!r} in {data.source}")
    if indices is not None:
        return data.subset(torch.tensor(_positions(data, indices)))
    taken = choose(data.labels.numpy(), n=n if exact else min(n, len(data)), seed=seed)
    return data.subset(torch.from_numpy(_class_by_class(data.labels.numpy(), taken)))


def _positions(data: "ImageData", indices: list[int]) -> list[int]:
    places = {int(index): place for place, index in enumerate(data.indices)}
    if missing := [index for index in indices if index not in places]:
        examples = ", ".join(map(str, sorted(places)[:5]))
        raise InputError(f"no image with index {missing[0]} in {data.source}; it has {examples} … {max(places)}")
    return [places[index] for index in indices]


def _class_by_class(labels: Any, taken: Any) -> Any:
    """The images dealt in rounds, one of each class, so that the first few show as many classes as they can."""
    import numpy as np

    rounds = np.empty(len(taken), dtype=int)
    for label in np.unique(labels[taken]):
        here = labels[taken] == label
        rounds[here] = np.arange(here.sum())
    return taken[np.lexsort((labels[taken], rounds))]


def class_accuracies(network: "nn.Module", data: "ImageData") -> dict[str, float]:
    """How often the network is right on each class that has enough images."""
    from scs_eval.analyses.accuracy import accuracy

    classes = accuracy(network, data.images, data.labels, classes=data.classes).per_class()
    enough = classes[classes["n"] >= ENOUGH]
    return {str(name): float(share) for name, share in zip(enough["class"], enough["accuracy"], strict=True)}
