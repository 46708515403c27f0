"""From signed attributions per channel (N, C, H, W) to one map ≥ 0 per image (N, H, W)."""

from collections.abc import Callable
from typing import NamedTuple

from torch import Tensor

from scs_eval.errors import InputError


class Reduction(NamedTuple):
    """What becomes of the channels, and how a caption says it."""

    function: Callable[[Tensor], Tensor]
    words: str


REDUCTIONS = {
    "max": Reduction(lambda maps: maps.abs().amax(1), "largest |value| of the channels"),
    "mean": Reduction(lambda maps: maps.abs().mean(1), "mean |value| of the channels"),
    "norm": Reduction(lambda maps: maps.norm(dim=1), "norm over the channels"),
    "sum": Reduction(lambda maps: maps.sum(1).abs(), "|sum| of the channels"),
    "positive": Reduction(lambda maps: maps.sum(1).clamp(min=0), "positive part of the channels' sum"),
}


def find_reduction(name: str) -> Reduction:
    """The reduction of that name; an unknown one raises."""
    if name not in REDUCTIONS:
        raise InputError(f"expected a reduction among {', '.join(REDUCTIONS)}, got {name!r}")
    return REDUCTIONS[name]
