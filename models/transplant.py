"""Carry the weights of one network into its twin made of other layers."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn


@torch.no_grad()
def transplant(weights: Mapping[str, Tensor], into: nn.Module) -> list[str]:
    """Copy every kernel of the same name into `into`; the names that were carried over.

    Twins name their layers alike. A stem that sees [x, 1-x] gets the kernel w of its RGB twin as [w, -w]/2, which
    answers to x as w does, up to a constant; a MaxOut layer gets the kernel as the first of each unit.
    """
    carried = []
    own = {name: p for name, p in into.named_parameters() if p.ndim > 1 and name.endswith("weight")}
    for name, target in own.items():
        source = weights.get(name)
        if source is not None and _copy(source, target):
            carried.append(name)
    return carried


def _copy(source: Tensor, target: Tensor) -> bool:
    if source.ndim == 2 and target.ndim == 4:  # a linear head that the twin applies at every pixel
        source = source[:, :, None, None]
    units = target.shape[0] // source.shape[0]
    slots = target[::units] if units and target.shape[0] % source.shape[0] == 0 else target
    if slots.shape[1] == 2 * source.shape[1]:
        source = torch.cat([source, -source], dim=1) / 2
    if slots.shape != source.shape:
        return False
    slots.copy_(source)
    return True
