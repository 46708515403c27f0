"""Pool the responses of a layer, and send gradients back through the pooling."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from scs_eval.models.layers.kernels.autograd import empty_map
from scs_eval.models.layers.kernels.tiles import pool_tiles, tile_of
from scs_eval.models.layers.pooling import MaxAbsPool2d, Pool, take


def pool_responses(c: Tensor, pool: Pool | None, *, keep: bool) -> tuple[Tensor, Tensor | None]:
    """`pool(c)` and, if there will be a backward pass, the winners' indices; None without a pool."""
    if pool is None:
        return c, None
    # Not on a GPU, where torch's pooling is the faster one.
    if not keep and c.device.type == "cpu" and (tile := tile_of(pool)) is not None:
        return pool_tiles(c, pool, tile), None
    if isinstance(pool, MaxAbsPool2d):
        indices = pool.indices(c)
        return take(c, indices), indices
    return F.max_pool2d(c, *_window(pool), return_indices=True)


def unpool_responses(flow: Tensor, indices: Tensor | None, pool: Pool | None, size: tuple[int, int]) -> Tensor:
    """Send the gradient of the pooled responses to where they came from, (N, C, h, w) to (N, C, *size)."""
    if pool is None or indices is None:
        return flow
    *window, ceil_mode = _window(pool)
    pairs = map(nn.modules.utils._pair, window)
    like = empty_map(flow, *flow.shape[:2], *size)  # only its shape and layout are read
    return torch.ops.aten.max_pool2d_with_indices_backward(flow, like, *pairs, ceil_mode, indices)


def sum_channels(product: Tensor, indices: Tensor | None, size: tuple[int, int], groups: int) -> Tensor:
    """Add up the channels of each group where the pooled values came from, (N, C, h, w) to (N, groups, *size)."""
    if indices is None:
        return product.unflatten(1, (groups, -1)).sum(2)
    n = len(product)
    if groups == 1:  # in the order the numbers lie in memory
        where, what = (t.permute(0, 2, 3, 1).flatten(1).unsqueeze(1) for t in (indices, product))
    else:
        where, what = (t.unflatten(1, (groups, -1)).flatten(2) for t in (indices, product))
    sums = product.new_zeros(n, groups, size[0] * size[1]).scatter_add_(2, where, what)
    return sums.view(n, groups, *size)


def _window(pool: Pool) -> tuple[Any, ...]:
    return pool.kernel_size, pool.stride, pool.padding, pool.dilation, pool.ceil_mode
