"""Carry the weights of one network into its twin made of other layers."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn


@torch.no_grad()
def transfer_weights(weights: Mapping[str, Tensor], into: nn.Module) -> list[str]:
    """Copy every kernel and bias of the same name into `into`; the names that were carried over.

    Twins name their layers alike. A stem that sees [x, 1-x] gets the kernel w of its RGB twin as [w, -w]/2, which
    responds to x as w does, up to a constant; a MaxOut layer gets the kernel as the first of each unit.
    """
    carried = []
    for path, module in into.named_modules():
        for key, target in module.named_parameters(prefix=path, recurse=False):
            source = weights.get(key)
            if source is not None and _copy(source, target, units=getattr(module, "max_out", 1)):
                carried.append(key)
    return carried


def _copy(source: Tensor, target: Tensor, *, units: int) -> bool:
    slots = target[::units]
    if source.ndim == 2 and target.ndim == 4:  # a linear head that the twin applies at every pixel, or window of them
        source = source.unflatten(1, (-1, *target.shape[2:]))
    if source.ndim == 4 and (source.shape[1], target.shape[1]) == (3, 6):
        source = torch.cat([source, -source], dim=1) / 2
    if slots.shape != source.shape:
        return False
    slots.copy_(source)
    return True
