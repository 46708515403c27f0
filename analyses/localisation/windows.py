"""How a network looks at a grid: at the whole of it, or through windows of the size that it was made for.

A head with a fixed input size (a flattened feature map, learnt positions) cannot take a grid, and attention spreads
what is strange about a grid to everywhere. B-cos v2 (section 4) applies such networks to windows that move by half
their side. Together the windows are one network, F(grid) = Σ_windows f(window), whose map is the sum of the windows'
maps, each where its window lies. A window on another class's cell, or on parts of several, is asked about the class as
well, and what it finds there counts against the map: the game is not won by cutting the grid up.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from scs_eval.analyses.core.batching import is_out_of_memory, map_batched
from scs_eval.analyses.core.model_state import device_of, evaluating
from scs_eval.errors import InputError
from scs_eval.models.layers import SelfAttention

Maps = Callable[[Tensor, Tensor], Tensor]  # images (N, 3, h, w), targets (N, K) -> (N, K, h, w)


@dataclass(frozen=True)
class Windows:
    """Square windows of `size` pixels at every multiple of `stride` that fits."""

    size: int
    stride: int

    def __post_init__(self) -> None:
        if self.stride < 1 or self.size % self.stride:
            raise InputError(f"expected a stride that divides the window of {self.size} pixels, got {self.stride}")

    def __str__(self) -> str:
        return f"windows of {self.size}, stride {self.stride}"

    def corners(self, extent: int) -> list[tuple[int, int]]:
        """Top and left of every window in a grid of extent × extent pixels."""
        starts = range(0, extent - self.size + 1, self.stride)
        return [(top, left) for top in starts for left in starts]

    def cut(self, grids: Tensor) -> Tensor:
        """Grids (G, 3, H, W) to their windows (G·V, 3, size, size), those of one grid together."""
        corners = self.corners(grids.shape[-1])
        parts = [grids[..., top : top + self.size, left : left + self.size] for top, left in corners]
        return torch.stack(parts, 1).flatten(0, 1)

    def maps(self, function: Maps, grids: Tensor, targets: Tensor) -> Tensor:
        """The sum of the windows' maps (G, K, H, W), each where its window lies."""
        corners = self.corners(grids.shape[-1])
        pictures, classes = self.cut(grids), targets.repeat_interleave(len(corners), 0)

        def some(part: slice) -> Tensor:
            return function(pictures[part], classes[part])

        parts = map_batched(some, len(pictures), units=len(grids)).unflatten(0, (len(grids), -1))
        total = parts.new_zeros(len(grids), targets.shape[1], *grids.shape[-2:])
        for position, (top, left) in enumerate(corners):
            total[..., top : top + self.size, left : left + self.size] += parts[:, position]
        return total


def half_of(size: int) -> int:
    """The usual stride: the largest divisor of the side that is at most half of it."""
    return next((stride for stride in range(size // 2, 0, -1) if size % stride == 0), 1)


def has_attention(model: nn.Module) -> bool:
    """Whether every place of an image can draw on every other: our layer, torch's, or what another library calls so."""
    return any(
        isinstance(module, SelfAttention | nn.MultiheadAttention) or "attention" in type(module).__name__.lower()
        for module in model.modules()
    )


def takes(model: nn.Module, grid: Tensor, *, classes: int) -> bool:
    """Whether the network gives one logit per class for a grid (1, 3, H, W) as it is."""
    with evaluating(model), torch.inference_mode():
        try:
            logits = model(grid.to(device_of(model)))
        except (RuntimeError, ValueError, AssertionError) as error:
            if is_out_of_memory(error):
                raise
            return False
    return isinstance(logits, Tensor) and logits.shape == (1, classes)
