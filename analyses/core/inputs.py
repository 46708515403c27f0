"""What users hand over, as the analyses work with it: models, and arrays of any kind as plain tensors."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from scs_eval.errors import InputError

ArrayLike = Tensor | np.ndarray | Sequence[Any]
HALF = (torch.float16, torch.bfloat16)


def as_model(model: nn.Module) -> nn.Module:
    """The model, if it is one that can be explained; a name, or a network in half precision, raises."""
    if isinstance(model, str):
        raise InputError(f"expected a model, got the name {model!r}; load it with scs_eval.load_model({model!r})")
    if not isinstance(model, nn.Module):
        raise InputError(f"expected a model (torch.nn.Module), got {type(model).__name__}")
    half = next((tensor.dtype for tensor in model.parameters() if tensor.dtype in HALF), None)
    if half is not None:  # gradients underflow, and few layers have kernels for it on a CPU
        name = str(half).removeprefix("torch.")
        raise InputError(f"expected a model in single or double precision, got {name}; call model.float() first")
    return model


def as_tensor(values: ArrayLike, *, what: str) -> Tensor:
    """A tensor of its own values: from numpy arrays and lists, without a graph, and not of inference mode."""
    with torch.inference_mode(False):
        try:
            if not isinstance(values, Tensor):
                values = torch.as_tensor(np.asarray(values))
        except (TypeError, ValueError, RuntimeError) as error:
            reason = str(error).splitlines()[0]
            raise InputError(
                f"expected {what} as a tensor or an array, got {type(values).__name__}: {reason}"
            ) from error
        return values.detach().clone() if values.is_inference() else values.detach()


def as_images(images: ArrayLike) -> Tensor:
    """Images as a tensor; double precision of numpy and lists becomes single, which networks are in."""
    given = as_tensor(images, what="images")
    return given.float() if given.dtype == torch.float64 and not isinstance(images, Tensor) else given


def as_labels(labels: ArrayLike, *, what: str = "labels") -> Tensor:
    """Labels or targets as a tensor."""
    return as_tensor(labels, what=what)


def check_several_classes(classes: Sequence[str]) -> None:
    """Raise where there is nothing to tell apart: the probability of an only class is always 1."""
    if len(classes) < 2:
        raise InputError(f"expected at least two classes, got {len(classes)}; the probability of an only class is 1")
