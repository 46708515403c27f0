"""A network as a file that other programs run: ONNX, or torch's own exported program. Any number of images at once.

The network is exported as it answers, in evaluation mode and single precision, with its normalisation and encoding
inside: RGB in [0, 1] goes in, logits come out. What W(x) needs, gradients of a held network, is not part of it.
"""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from scs_eval.errors import InputError

FORMATS = {"onnx": ".onnx", "torch-export": ".pt2"}
INPUT, OUTPUT = "images", "logits"
EXAMPLE = 2  # images that are traced; one would be taken for a constant


def export_model(model: nn.Module, path: Path, *, format: str, size: int) -> None:
    """Write the model, which takes images (N, 3, size, size), to a file of that format."""
    if format not in FORMATS:
        raise InputError(f"expected a format of {', '.join(FORMATS)}, got {format!r}")
    program = _exported(model.eval(), size)
    path.parent.mkdir(parents=True, exist_ok=True)
    if format == "torch-export":
        torch.export.save(program, path)
    else:
        _write_onnx(program, path)


def _exported(model: nn.Module, size: int) -> Any:
    device = next((tensor.device for tensor in model.parameters()), torch.device("cpu"))
    example = torch.rand(EXAMPLE, 3, size, size, generator=torch.Generator().manual_seed(0)).to(device)
    try:
        with torch.no_grad(), _quiet():
            return torch.export.export(model, (example,), dynamic_shapes=({0: torch.export.Dim("batch")},))
    except Exception as error:  # torch's exporter raises its own kinds, from its own tracer
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise InputError(f"torch.export cannot trace this network: {reason}") from error


def _write_onnx(program: Any, path: Path) -> None:
    try:
        import onnxscript  # noqa: F401  # what torch's exporter needs
    except ImportError as error:
        raise InputError("--format onnx needs onnx and onnxscript: pip install 'scs-eval[export]'") from error
    with _quiet():
        written = torch.onnx.export(
            program, dynamo=True, verbose=False, input_names=[INPUT], output_names=[OUTPUT], external_data=False
        )
    assert written is not None
    written.save(str(path))


@contextmanager
def _quiet() -> Iterator[None]:
    """Without the exporter's remarks about itself."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def largest_difference(model: nn.Module, path: Path, *, format: str, images: Tensor) -> float | None:
    """The largest difference of the file's logits for the images and the model's own; None without onnxruntime."""
    with torch.no_grad():
        wanted = model.eval()(images)
    if format == "torch-export":
        with torch.no_grad():
            exported = torch.export.load(path).module()(images)
        return float((exported - wanted).abs().max())
    try:
        from onnxruntime import InferenceSession
    except ImportError:
        return None
    session = InferenceSession(str(path), providers=["CPUExecutionProvider"])
    (logits,) = session.run([OUTPUT], {INPUT: images.cpu().numpy()})
    return float((torch.from_numpy(logits) - wanted.cpu()).abs().max())
