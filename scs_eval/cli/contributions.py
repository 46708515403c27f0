"""`scs-eval contributions`: what each pixel adds to a logit or a neuron, and how complete that is."""

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from scs_eval.cli.images import pick_images, targets_of
from scs_eval.cli.options import data_options, parse_indices
from scs_eval.cli.output import choose_device, choose_out, data_settings, finish, output_options
from scs_eval.cli.sources import choose_models, input_size_of, load_all, model_option
from scs_eval.errors import InputError

if TYPE_CHECKING:
    from scs_eval.analyses.contributions import ContributionsComparison, ContributionsResult
    from scs_eval.analyses.neurons import NeuronsResult
    from scs_eval.data import ImageData

DEFAULT_N, SEARCHED = 6, 500  # images to explain; among which those are looked for that activate a neuron most
DIRECTIONS = 3


@click.command()
@model_option(required=True)
@click.option("--class", "class_", metavar="NAME", help="Only images of this class.")
@click.option("--indices", metavar="I,J,…", help="Only these images, by their index in the original set.")
@click.option("--target", default="predicted", show_default=True, help="Class to explain: predicted, label or a name.")
@click.option(
    "--style", type=click.Choice(["paper", "bcos-v2"]), default="paper", show_default=True,
    help="How W(x) of a six-channel network becomes colours: as the paper says, or as the package bcos draws it.",
)  # fmt: skip
@click.option("--audit", is_flag=True, help="Also which layers put bias in, and how much; try -n 100.")
@click.option("--delta", is_flag=True, help="Also the two most likely classes and the difference of their maps.")
@click.option("--mean-corrected", is_flag=True, help="Also the maps without what all classes share.")
@click.option("--layer", metavar="NAME", help="Explain this layer of the network instead of its logits.")
@click.option("--neuron", "neurons", type=int, multiple=True, metavar="K", help="A channel of --layer; repeatable.")
@click.option(
    "--directions", type=int, metavar="K",
    help="The K feature directions of --layer that contribute most.  [default: 3 if no neuron is named]",
)  # fmt: skip
@data_options(f"Take this many images, evenly over the classes.  [default: {DEFAULT_N}; with --layer {SEARCHED}]")
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
    layer: str | None,
    neurons: tuple[int, ...],
    directions: int | None,
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

    With --layer, the activations inside the network are explained in the same way: of neurons, or of the feature
    directions that contribute most to the class (of each image, --target). Each is shown with those of the -n images
    that activate it most, at their strongest position. A layer that runs several times in a pass is taken at its last.

    \b
    Examples:
      scs-eval contributions --model rohrer100k_scs
      scs-eval contributions --model rohrer100k_scs --class cat --target dog -n 4
      scs-eval contributions --model 'rohrer100k*' --audit --delta
      scs-eval contributions --model rohrer100k_scs --layer stages.1 --neuron 3 --neuron 5
      scs-eval contributions --model rohrer100k_scs --layer stages.2 --directions 5 --target dog
    """
    extras = [name for name, on in (("audit", audit), ("delta", delta), ("mean-corrected", mean_corrected)) if on]
    check_layer_options(layer, neurons, directions, extras)
    wanted = parse_indices(indices)
    names = choose_models(models)
    out = choose_out(out, analysis="neurons" if layer else "contributions", names=models)
    device = choose_device(device)
    networks = load_all(names)  # all of them first: a misspelt name should not cost the work before it
    usual = SEARCHED if layer else DEFAULT_N
    count = directions if directions is not None else 0 if neurons else DIRECTIONS

    @cache
    def images(size: int | None) -> "ImageData":
        options: dict[str, Any] = {"data_dir": data_dir, "seed": seed, "skip_bad": skip_bad, "size": size}
        return pick_images(data, class_=class_, indices=wanted, n=n, usual=usual, **options)

    def explain_layer(name: str) -> "NeuronsResult":
        from scs_eval.analyses.neurons import neurons as explain

        found = images(input_size_of(name))
        result = explain(
            networks[name].to(device), found.images, targets_of(found, target), layer=str(layer), channels=neurons,
            directions=count, labels=found.labels, classes=found.classes, indices=found.indices, label=name,
            picture=style,
        )  # fmt: skip
        return result.with_settings({**data_settings(found, seed=seed), "target": target, "style": style})

    def explain_logits(name: str) -> "ContributionsResult":
        from scs_eval.analyses.contributions import contributions

        found = images(input_size_of(name))
        result = contributions(
            networks[name].to(device), found.images, targets_of(found, target), labels=found.labels,
            classes=found.classes, indices=found.indices, label=name, picture=style, extras=extras,
        )  # fmt: skip
        return result.with_settings({**data_settings(found, seed=seed), "target": target, "style": style})

    if layer is not None:
        from scs_eval.analyses.neurons import NeuronsComparison

        explained = [explain_layer(name) for name in names]
        finish(explained[0] if len(explained) == 1 else NeuronsComparison.of(explained, label=out.name), out)
        for each in explained:
            warn_if_incomplete(each)
            warn_if_fewer(each, wanted=count)
        return
    from scs_eval.analyses.contributions import ContributionsComparison

    results = [explain_logits(name) for name in names]
    found = results[0] if len(results) == 1 else ContributionsComparison.of(results, label=out.name)
    if audit:
        show_audit(found)
    finish(found, out)
    for result in results:
        warn_if_incomplete(result)


def show_audit(result: "ContributionsResult | ContributionsComparison") -> None:
    """Print which layers put bias in."""
    from scs_eval.analyses.bias_audit import audit_summary
    from scs_eval.report.markdown import markdown

    click.echo(markdown(audit_summary(result.tables()["audit"])))


def check_layer_options(layer: str | None, neurons: tuple[int, ...], directions: int | None, extras: list[str]) -> None:
    """Raise unless the options about a layer go together."""
    if layer is None and (neurons or directions is not None):
        raise InputError(f"{'--neuron' if neurons else '--directions'} needs --layer, the layer that it is about")
    if layer is not None and extras:
        raise InputError(f"--{extras[0]} is about logits; leave it or --layer out")
    if directions is not None and directions < 1:
        raise InputError(f"expected --directions of at least 1, got {directions}")


def warn_if_incomplete(result: "ContributionsResult | NeuronsResult") -> None:
    """One line on stderr if maps leave out more than a thousandth of their logit or activation."""
    if missing := int((~result.complete).sum()):
        table = result.table()
        worst = table["relative_residual"].max()
        click.echo(
            f"Warning: {missing} of {result.complete.size} maps of {result.label} leave more than 0.1 % of the "
            f"{'logit' if 'logit' in table else 'activation'} unexplained (up to {100 * worst:.2g} %); "
            "they are marked INCOMPLETE",
            err=True,
        )


def warn_if_fewer(result: "NeuronsResult", *, wanted: int) -> None:
    """One line on stderr if a layer does not have as many different directions as were asked for."""
    if (found := int((result.sources >= 0).sum())) < wanted:
        click.echo(
            f"Note: {result.layer} of {result.label} has only {found} directions that differ (cosine below 0.8) among "
            "those that contribute most",
            err=True,
        )
