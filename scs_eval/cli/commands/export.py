"""`scs-eval export`: a network as a file that other programs run."""

from pathlib import Path
from typing import Literal

import click

from scs_eval.cli.output import folder_name, say
from scs_eval.cli.params import COUNT, one_model, source_options
from scs_eval.errors import InputError
from scs_eval.models.loading.sources import parse_sources

SUFFIXES = {"onnx": ".onnx", "torch-export": ".pt2"}
CHECKED = 5  # images, another number than was traced


@click.command()
@one_model()
@source_options
@click.option("--format", "kind", type=click.Choice(list(SUFFIXES)), default="onnx", show_default=True, help="Of what.")
@click.option("--size", type=COUNT, help="Pixels of an image's side.  [default: what the model was made for]")
@click.option("--out", type=click.Path(path_type=Path), help="File to write.  [default: MODEL.onnx or MODEL.pt2]")
def command(
    model: str,
    arch: str | None,
    weights: str | None,
    normalize: str | None,
    kind: Literal["onnx", "torch-export"],
    size: int | None,
    out: Path | None,
) -> None:
    """Write MODEL to a file that ONNX Runtime (onnx) or torch alone (torch-export) can run.

    It takes any number of RGB images in [0, 1] and gives logits. The file is run once and its logits are compared with
    the network's.

    \b
    Examples:
      scs-eval export rohrer100k_scs
      scs-eval export resnet20_bcos --format torch-export --out resnet20_bcos.pt2
    """
    import torch

    from scs_eval.models.export import export_model, largest_difference

    (source,) = parse_sources([model], arch=arch, weights=weights, normalize=normalize)
    named = source.open()
    side = size or named.input_size
    if side is None:
        raise InputError(f"the size of {named.label}'s images is not known; give --size")
    path = out or Path(folder_name([named.label]) + SUFFIXES[kind])
    export_model(named.model, path, format=kind, size=side)
    images = torch.rand(CHECKED, 3, side, side, generator=torch.Generator().manual_seed(1))
    apart = largest_difference(named.model, path, format=kind, images=images)
    checked = "not run: onnxruntime is not installed" if apart is None else f"logits differ by {apart:.1e} at most"
    say(f"{path}: {checked}")
