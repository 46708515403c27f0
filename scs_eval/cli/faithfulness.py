"""`scs-eval faithfulness`: whether the maps say what the model does."""

from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from scs_eval.cli.images import pick_images, targets_of
from scs_eval.cli.options import data_options
from scs_eval.cli.output import choose_device, choose_out, data_settings, finish, output_options
from scs_eval.cli.progress import progress
from scs_eval.cli.saliency import CHEAP, COSTLY, choose_methods, default_n
from scs_eval.cli.sources import choose_models, input_size_of, load_all, model_option
from scs_eval.errors import InputError

if TYPE_CHECKING:
    from scs_eval.analyses.faithfulness import FaithfulnessResult
    from scs_eval.data import ImageData

DEFAULT_METHODS = ("grad", "ixg", "wx")


@click.command()
@model_option(required=True)
@click.option(
    "--method", "methods", multiple=True, default=DEFAULT_METHODS, show_default=True, help="Repeatable, or all."
)
@click.option("--class", "class_", metavar="NAME", help="Only images of this class.")
@click.option("--target", default="predicted", show_default=True, help="Class to explain: predicted, label or a name.")
@click.option(
    "--baseline", type=click.Choice(["black", "mean", "blur"]), default="black", show_default=True,
    help="What replaces a pixel of the curves: black, the image's mean colour, or the blurred image.",
)  # fmt: skip
@click.option(
    "--order", type=click.Choice(["signed", "magnitude"]), default="signed", show_default=True,
    help="Pixels of the curves: by the signed sum of the channels, or by the largest |value|.",
)  # fmt: skip
@click.option("--steps", type=int, default=32, show_default=True, help="Steps of the insertion and deletion curves.")
@click.option(
    "--sigma",
    type=float,
    default=0.02,
    show_default=True,
    help="Infidelity: a pixel loses or gains this share of itself.",
)
@data_options(f"Images.  [default: {CHEAP}; {COSTLY} if a method needs many passes]")
@output_options
def command(
    models: tuple[str, ...],
    methods: tuple[str, ...],
    class_: str | None,
    target: str,
    baseline: str,
    order: str,
    steps: int,
    sigma: float,
    data: str,
    data_dir: str | None,
    n: int | None,
    seed: int,
    skip_bad: bool,
    out: Path | None,
    device: str,
) -> None:
    """Test whether maps say what the model does: insertion and deletion, infidelity, and forgetting with the model.

    Deletion and insertion replace or show pixels in the order of the map (area under the probability of the class);
    infidelity is the share of a logit's change under noise that the map does not predict; the cascade re-initialises
    the network layer by layer from the head and compares the maps with the original ones. A random map and an edge map
    stand beside every method. The table marks what differs from the random map by a paired bootstrap (Holm, 5 %): ✓ is
    better, ✗ worse, and ≠ of the cascade means that the maps keep something although nothing learned is left.

    Methods are those of `scs-eval saliency`. One that cannot serve a model is left out with a word why.

    \b
    Examples:
      scs-eval faithfulness --model rohrer100k_scs
      scs-eval faithfulness --model rohrer100k_scs --model rohrer100k_conv --method wx --method gradcam
      scs-eval faithfulness --model rohrer100k_scs --baseline blur --order magnitude -n 50
    """
    methods = choose_methods(methods)
    usual = min(default_n(method) for method in methods)
    names = choose_models(models)
    out = choose_out(out, analysis="faithfulness", names=models)
    device = choose_device(device)
    networks = load_all(names)  # all of them first: a misspelt name should not cost the work before it

    @cache
    def images(size: int | None) -> "ImageData":
        options: dict[str, Any] = {"data_dir": data_dir, "seed": seed, "skip_bad": skip_bad, "size": size}
        return pick_images(data, class_=class_, n=n, usual=usual, **options)

    def run(name: str, watch: Callable[[str], None]) -> "FaithfulnessResult":
        from scs_eval.analyses.faithfulness import faithfulness

        found = images(input_size_of(name))
        result = faithfulness(
            networks[name].to(device), found.images, targets_of(found, target), classes=found.classes, method=methods,
            baseline=baseline, order=order, steps=steps, sigma=sigma, label=name, indices=found.indices, seed=seed,
            watch=lambda method: watch(f"{name} {method}"),
        )  # fmt: skip
        return result.with_settings({**data_settings(found, seed=seed), "target": target})

    results = run_all(names, len(methods), run)
    from scs_eval.analyses.faithfulness import compare

    finish(compare(results, label=out.name), out)


def run_all(
    names: Sequence[str], methods: int, run: "Callable[[str, Callable[[str], None]], FaithfulnessResult]"
) -> "list[FaithfulnessResult]":
    """A result for each model; a method, or a model that no method can serve, is left out with a line on stderr."""
    from scs_eval.analyses.layer_maps import UnsuitableError

    results, refused = [], []
    with progress("faithfulness", len(names) * (methods + 2)) as advance:
        for name in names:
            try:
                results.append(run(name, lambda step: advance(1, step)))
                refused += [f"{name}, {method}: {why}" for method, why in results[-1].left_out.items()]
            except UnsuitableError as error:
                refused.append(f"{name}: {error}")
    if not results:
        raise InputError("; ".join(refused))
    for line in refused:
        click.echo(f"Left out: {' '.join(line.split())}", err=True)
    return results
