"""`scs-eval convert`: the layers of a network swapped for others, as a file that every command takes."""

from pathlib import Path

import click

from scs_eval.cli.output import say
from scs_eval.cli.params import NUMBER, SEED, one_model, source_options
from scs_eval.errors import InputError
from scs_eval.files import replacing_file
from scs_eval.models.conversion.target import LAYERS

SHOWN = 6  # layers that are named


@click.command()
@one_model()
@source_options
@click.option("--layer", type=click.Choice(LAYERS), required=True, help="What its convolutions become.")
@click.option("--norm", help="keep, none, or bn, ln, in, pn, an, with u uncentred.  [default: bnu for bcos, else keep]")
@click.option("--activation", help="keep, linear or relu.  [default: keep for conv, else linear]")
@click.option("--b", type=NUMBER, default=2.0, show_default=True, help="The B of B-cos layers.")
@click.option(
    "--same-function", is_flag=True, help="bcos, scs: computes what the network did, to fine-tune (train --recipe)."
)
@click.option("--learn-b", is_flag=True, help="bcos, with --same-function: layers learn their B.")
@click.option("--classifier-first", is_flag=True, help="Classify at every place, then average, as B-cos networks do.")
@click.option("--keep-weights", is_flag=True, help="Carry the weights over, for fine-tuning.")
@click.option("--seed", type=SEED, default=0, show_default=True, help="Of the layers that start anew.")
@click.option("--out", type=click.Path(path_type=Path), required=True, help="The safetensors file to write.")
def command(
    model: str,
    arch: str | None,
    weights: str | None,
    normalize: str | None,
    layer: str,
    norm: str | None,
    activation: str | None,
    b: float,
    same_function: bool,
    learn_b: bool,
    classifier_first: bool,
    keep_weights: bool,
    seed: int,
    out: Path,
) -> None:
    """Swap the layers of a network for others and write the result as a file.

    B-cos: biases go, norms become uncentred, linear layers become B-cos too, and the stem sees [x, 1-x]. Sharpened
    layers replace the convolutions only. What has no such form is named.

    \b
    Examples:
      scs-eval convert torchvision:resnet50 --layer bcos --classifier-first --keep-weights --out r50.safetensors
      scs-eval convert resnet20_conv --layer bcos --same-function --out start.safetensors
      scs-eval convert resnet20_conv --layer scs --norm none --out scs.safetensors
    """
    from scs_eval.models.conversion.convert import conversion
    from scs_eval.models.conversion.files import save_converted
    from scs_eval.models.conversion.target import ConversionSpec
    from scs_eval.models.conversion.unconverted import summarise
    from scs_eval.models.loading.load import open_source

    spec = ConversionSpec(
        layer=layer,
        norm=norm,
        activation=activation,
        b=1.0 if same_function else b,
        classifier_first=classifier_first,
        same_function=same_function,
        learn_b=learn_b,
    )
    check_file(out)
    origin = open_source(model, arch=arch, weights=weights, normalize=normalize)
    done = conversion(origin.model, spec, keep_weights=keep_weights or same_function, seed=seed)
    with replacing_file(out) as beside:
        save_converted(done.model, beside, origin=origin, spec=spec)
    layers = "layer" if len(done.replaced) == 1 else "layers"
    say(f"{len(done.replaced)} {layers}: {_few([f'{where} {what}' for where, what in done.replaced.items()])}")
    if done.unconverted:
        say(f"Not converted: {summarise(done.unconverted)}", err=True)
    click.echo(out)


def check_file(out: Path) -> None:
    """Raise unless such a file can be written."""
    if out.suffix != ".safetensors":
        raise InputError(f"expected --out to end in .safetensors, got {out}")
    if out.is_dir():
        raise InputError(f"expected --out to be a file, {out} is a directory; choose another name")
    if not out.parent.is_dir():
        raise InputError(f"no such directory: {out.parent}")


def _few(items: list[str]) -> str:
    more = f" and {len(items) - SHOWN} more" if len(items) > SHOWN else ""
    return "; ".join(items[:SHOWN]) + more
