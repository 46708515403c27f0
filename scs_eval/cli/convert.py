"""`scs-eval convert`: the layers of a network swapped for others, as a file that every command takes."""

from pathlib import Path

import click

from scs_eval.cli.model_names import MODEL
from scs_eval.cli.sources import asked_for, source_options
from scs_eval.errors import InputError
from scs_eval.models.form import LAYERS

SHOWN = 6  # layers that are named


@click.command()
@click.option("--model", "source", type=MODEL, required=True, help="Name, file, torchvision:NAME or module:factory.")
@click.option("--layer", type=click.Choice(LAYERS), required=True, help="What its convolutions become.")
@click.option("--norm", help="keep, none, or bn, ln, in, pn, an, with u uncentred.  [default: bnu for bcos, else keep]")
@click.option("--activation", help="keep, linear or relu.  [default: keep for conv, else linear]")
@click.option("--b", default=2.0, show_default=True, help="The B of B-cos layers.")
@click.option("--classifier-first", is_flag=True, help="Classify at every place, then average, as B-cos networks do.")
@click.option("--keep-weights", is_flag=True, help="Carry the weights over, for fine-tuning.")
@click.option("--seed", default=0, show_default=True, help="Of the layers that start anew.")
@click.option("--out", type=click.Path(path_type=Path), required=True, help="The safetensors file to write.")
@source_options
def command(
    source: str,
    layer: str,
    norm: str | None,
    activation: str | None,
    b: float,
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
      scs-eval convert --model torchvision:resnet50 --layer bcos --classifier-first --keep-weights --out r50.safetensors
      scs-eval convert --model resnet20_conv --layer scs --norm none --out scs.safetensors
    """
    from scs_eval.models.checkpoints import open_source
    from scs_eval.models.convert import conversion
    from scs_eval.models.converted_files import save_converted
    from scs_eval.models.form import Form
    from scs_eval.models.leftovers import summarise

    form = Form(layer=layer, norm=norm, activation=activation, b=b, classifier_first=classifier_first)
    check_file(out)
    origin = open_source(source, **asked_for())
    done = conversion(origin.model, form, keep_weights=keep_weights, seed=seed)
    partial = out.with_name(f".{out.name}.part")
    save_converted(done.model, partial, origin=origin, form=form)
    partial.replace(out)
    click.echo(f"{len(done.replaced)} layers: {_few([f'{where} {what}' for where, what in done.replaced.items()])}")
    if done.left:
        click.echo(f"Left as they are: {summarise(done.left)}", err=True)
    click.echo(out)


def check_file(out: Path) -> None:
    """Raise unless such a file can be written."""
    if out.suffix != ".safetensors":
        raise InputError(f"expected --out to end in .safetensors, got {out}")
    if not out.parent.is_dir():
        raise InputError(f"no such directory: {out.parent}")


def _few(items: list[str]) -> str:
    more = f" and {len(items) - SHOWN} more" if len(items) > SHOWN else ""
    return "; ".join(items[:SHOWN]) + more
