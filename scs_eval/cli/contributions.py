"""`scs-eval contributions`: what each pixel adds to the logit, and how complete that is."""

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import click

from scs_eval.cli.accuracy import choose_models, input_size_of, load_all
from scs_eval.cli.model_names import MODEL
from scs_eval.cli.options import data_options, load_images, parse_indices
from scs_eval.cli.output import choose_device, choose_out, data_settings, finish, output_options
from scs_eval.errors import InputError

if TYPE_CHECKING:
    from torch import Tensor

    from scs_eval.analyses.contributions import ContributionsResult
    from scs_eval.data import ImageData

DEFAULT_N = 6


@click.command()
@click.option("--model", "models", type=MODEL, multiple=True, required=True, help="Name, pattern or file; repeatable.")
@click.option("--class", "class_", metavar="NAME", help="Only images of this class.")
@click.option("--indices", metavar="I,J,…", help="Only these images, by their index in the original set.")
@click.option("--target", default="predicted", show_default=True, help="Class to explain: predicted, label or a name.")
@click.option(
    "--style", type=click.Choice(["paper", "bcos-v2"]), default="paper", show_default=True,
    help="How W(x) of a six-channel network becomes colours: as the paper says, or as the package bcos draws it.",
)  # fmt: skip
@click.option("--audit", is_flag=True, help="Also which layers put bias in, and how much: table and figure.")
@click.option("--delta", is_flag=True, help="Also the two most likely classes and the difference of their maps.")
@click.option("--mean-corrected", is_flag=True, help="Also the maps without what all classes share.")
@data_options
@output_options
def command(
    models: tuple[str, ...],
    class_: str | None,
    indices: str | None,
    target: str,
    style: str,
    audit: bool,
    delta: bool,
    mean_corrected: bool,
    data: str,
    data_dir: str | None,
    n: int | None,
    seed: int,
    skip_bad: bool,
    out: Path | None,
    device: str,
) -> None:
    """Show what each pixel adds to the logit of a class: W(x)⊙x, the B-cos explanation, for any dynamic-linear network.

    A map is shown with what it leaves out: the share of the layers' biases and the residual. Networks that encode
    [x, 1-x] also get W(x) as colours. The figure has the first six images, the table all.

    \b
    Examples:
      scs-eval contributions --model rohrer100k_scs
      scs-eval contributions --model rohrer100k_scs --class cat --target dog -n 4
      scs-eval contributions --model 'rohrer100k*' --audit --delta
    """
    wanted = parse_indices(indices)
    names = choose_models(models)
    out = choose_out(out, analysis="contributions", names=models)
    device = choose_device(device)
    networks = load_all(names)  # all of them first: a misspelt name should not cost the work before it
    extras = [name for name, on in (("audit", audit), ("delta", delta), ("mean-corrected", mean_corrected)) if on]

    @cache
    def images(size: int | None) -> "ImageData":
        count = None if class_ is not None or wanted is not None else DEFAULT_N if n is None else n
        found = load_images(data, data_dir=data_dir, n=count, seed=seed, skip_bad=skip_bad, size=size)
        return found if count is not None else choose_images(found, class_=class_, indices=wanted, n=n, seed=seed)

    def run(name: str) -> "ContributionsResult":
        from scs_eval.analyses.contributions import contributions

        found = images(input_size_of(name))
        result = contributions(
            networks[name].to(device), found.images, targets_of(found, target), labels=found.labels,
            classes=found.classes, indices=found.indices, label=name, picture=style, extras=extras,
        )  # fmt: skip
        return result.with_settings({**data_settings(found, seed=seed), "target": target, "style": style})

    results = [run(name) for name in names]
    from scs_eval.analyses.contributions import ContributionsComparison

    finish(results[0] if len(results) == 1 else ContributionsComparison.of(results, label=out.name), out)
    for result in results:
        warn_if_incomplete(result)


for _option in command.params:
    if _option.name == "n" and isinstance(_option, click.Option):
        _option.help = f"Take this many images, evenly over the classes.  [default: {DEFAULT_N}]"


def choose_images(
    data: "ImageData", *, class_: str | None, indices: list[int] | None, n: int | None, seed: int
) -> "ImageData":
    """The images with these indices in this order, or n of the class by `seed` (at most six unless n says)."""
    import torch

    from scs_eval.analyses.saliency import class_position
    from scs_eval.data.choice import choose

    if class_ is not None:
        data = data.subset(data.labels == class_position(class_, data.classes))
    if not len(data):
        raise InputError(f"no image of the class {class_!r} in {data.source}")
    if indices is None:
        count = min(DEFAULT_N, len(data)) if n is None else n
        return data.subset(torch.from_numpy(choose(data.labels.numpy(), n=count, seed=seed)))
    places = {int(index): place for place, index in enumerate(data.indices)}
    if missing := [index for index in indices if index not in places]:
        near = ", ".join(map(str, sorted(sorted(places, key=lambda index: abs(index - missing[0]))[:3])))
        of = "" if class_ is None else f" of the class {class_}"
        raise InputError(f"no image{of} with index {missing[0]} in {data.source}; the nearest are {near}")
    return data.subset(torch.tensor([places[index] for index in indices]))


def targets_of(data: "ImageData", target: str) -> "Tensor | None":
    """The class to explain for each image; None for the predicted one."""
    import torch

    from scs_eval.analyses.saliency import class_position

    if target == "predicted":
        return None
    return data.labels if target == "label" else torch.full_like(data.labels, class_position(target, data.classes))


def warn_if_incomplete(result: "ContributionsResult") -> None:
    """One line on stderr if maps leave out more than a thousandth of their logit."""
    if missing := int((~result.complete).sum()):
        worst = result.table()["relative_residual"].max()
        click.echo(
            f"Warning: {missing} of {len(result.complete)} maps of {result.label} leave more than 0.1 % of the logit "
            f"unexplained (up to {100 * worst:.2g} %); they are marked INCOMPLETE",
            err=True,
        )
