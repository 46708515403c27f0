"""Put the tensors of a file into a network, strictly, or say in one line what does not fit."""

import math

import torch
from torch import Tensor, nn

from scs_eval.errors import InputError
from scs_eval.models.loading.identify import tensor_shapes
from scs_eval.models.zoo.parameter_counts import parameter_count
from scs_eval.models.zoo.registry import default_classes, resolve

SLACK = 1_000_000  # numbers that a network may have beyond twice a file's, so that what is missing can be named


def fill(model: nn.Module, state: dict[str, Tensor], *, file: str, name: str) -> None:
    """Copy the tensors into the network, whose names and shapes they must have all; numbers must be finite floats."""
    _check_types(model, state, file)
    try:
        keys = model.load_state_dict(state, strict=False)
    except RuntimeError as error:
        first = next((line.strip() for line in str(error).splitlines()[1:] if line.strip()), str(error))
        raise InputError(f"the weights in {file} do not fit {name}: {first}") from error
    if keys.missing_keys or keys.unexpected_keys:
        missing, unexpected = _few(keys.missing_keys), _few(keys.unexpected_keys)
        raise InputError(f"the weights in {file} do not fit {name}: missing {missing}; unexpected {unexpected}")
    if not all(value.isfinite().all() for value in state.values()):
        raise InputError(f"the weights in {file} hold NaN or infinity; the model may not have been trained to the end")


def refuse_larger(name: str, num_classes: int, state: dict[str, Tensor], *, file: str) -> None:
    """Raise, before it is built, for a network of the zoo that is far larger than the file that claims to hold it."""
    if resolve(name, missing_ok=True) is None:
        return  # the user's own, whose size is not known
    if num_classes > (most := max((len(value) for value in state.values() if value.ndim), default=0)):
        raise InputError(f"{file} claims {num_classes:,} classes, but no tensor in it has more than {most:,} rows")
    if num_classes == default_classes(name):
        needed = parameter_count(name)
    else:
        needed = sum(math.prod(shape) for shape in tensor_shapes(name, num_classes).values())
    refuse_size(needed, state, file=file, name=name)


def refuse_size(needed: int, state: dict[str, Tensor], *, file: str, name: str) -> None:
    """Raise if a network with that many numbers cannot be what the file holds."""
    held = sum(value.numel() for value in state.values())
    if needed > 2 * held + SLACK:
        raise InputError(f"the weights in {file} do not fit {name}: it has {needed:,} numbers, the file {held:,}")


def _check_types(model: nn.Module, state: dict[str, Tensor], file: str) -> None:
    """Quantised and complex weights would be copied without a word, as other numbers."""
    for key, value in state.items():
        if value.is_quantized or value.is_complex() or value.dtype in (torch.bool, torch.int8, torch.uint8):
            raise InputError(f"expected floats in {file}, got {_dtype(value)} for {key}; save the weights as floats")
    for key, own in model.state_dict().items():
        if key in state and state[key].is_floating_point() != own.is_floating_point():
            raise InputError(f"expected {_dtype(own)} for {key} in {file}, got {_dtype(state[key])}; save it as such")


def _dtype(tensor: Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def _few(names: list[str], *, most: int = 3) -> str:
    return (", ".join(names[:most]) or "nothing") + (f" and {len(names) - most} more" if len(names) > most else "")
