"""Pooling whose windows tile the image, such as the usual 2×2: no overlap, no gap, no padding.

torch pools with an index for every window, one element after another. Where only the values are wanted, all first rows
of the windows are compared with all second ones, and then the columns, which vectorises: a third of the time.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from scs_eval.models.layers.pooling import MaxAbsPool2d, Pool, take

Fold = Callable[..., Tensor]


def tile_of(pool: Pool) -> tuple[int, int] | None:
    """Height and width of the windows if they tile the image, else None."""
    pair = nn.modules.utils._pair
    kernel, stride, padding, dilation = map(pair, (pool.kernel_size, pool.stride, pool.padding, pool.dilation))
    tiled = (stride, padding, dilation) == (kernel, (0, 0), (1, 1)) and kernel != (1, 1)
    return kernel if tiled else None


def pool_tiles(c: Tensor, pool: Pool, tile: tuple[int, int]) -> Tensor:
    """`pool(c)`, (N, C, H, W) to (N, C, h, w)."""
    inside = _covered(c, pool, tile)
    top = _folded(torch.maximum, inside, tile)
    if not isinstance(pool, MaxAbsPool2d):
        return top
    bottom = _folded(torch.minimum, inside, tile)
    strongest = torch.maximum(top, -bottom)
    balance = top.add_(bottom)  # has the sign of the stronger one
    if balance.numel() and not balance.abs().amin() and (strongest[balance == 0] > 0).any():
        return take(c, pool.indices(c))  # x and -x in one window: which comes first?
    return strongest.mul_(balance.sign_())


def _covered(c: Tensor, pool: Pool, tile: tuple[int, int]) -> Tensor:
    """Without the last rows and columns if they fill no window."""
    if pool.ceil_mode:
        return c
    (height, width), (down, across) = c.shape[2:], tile
    return c[:, :, : height // down * down, : width // across * across]


def _folded(fold: Fold, c: Tensor, tile: tuple[int, int]) -> Tensor:
    """Rows first: their runs in memory are the longest."""
    for dim, size in zip((2, 3), tile, strict=True):
        c = _folded_along(fold, c, dim, size) if size > 1 else c
    return c


def _folded_along(fold: Fold, c: Tensor, dim: int, size: int) -> Tensor:
    every = [c[(slice(None),) * dim + (slice(first, None, size),)] for first in range(size)]
    out = torch.empty(every[0].shape, dtype=c.dtype, device=c.device, memory_format=torch.channels_last)
    complete, rest = divmod(c.shape[dim], size)
    _fold_into(fold, [part.narrow(dim, 0, complete) for part in every], out.narrow(dim, 0, complete))
    if rest:
        _fold_into(fold, [part.narrow(dim, complete, 1) for part in every[:rest]], out.narrow(dim, complete, 1))
    return out


def _fold_into(fold: Fold, parts: list[Tensor], out: Tensor) -> None:
    if len(parts) == 1:
        out.copy_(parts[0])
        return
    fold(parts[0], parts[1], out=out)
    for part in parts[2:]:
        fold(out, part, out=out)
