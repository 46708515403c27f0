"""MaxAbsPool2d: the strongest response, with its sign; and which of equally strong ones is explained."""

from itertools import product

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from scs_eval.models.explain.dynamic_linear import explaining

# Units in the last place within which two responses are equal. In float64, sums in another order come out up to 32
# apart where the patches are the same. In float32 those are as near as responses that only chance made alike.
TIE = {torch.float64: 32, torch.float32: 2}


class MaxAbsPool2d(nn.Module):
    """The element of largest magnitude in each window, with its sign; of equal ones the first in row order.

    y = x[i*], i* = argmax_i |x[i]|. Arguments as in nn.MaxPool2d. Recommended with sharpened layers, whose kernels
    respond to a feature and to its opposite.
    """

    def __init__(
        self,
        kernel_size: int | tuple[int, int],
        stride: int | tuple[int, int] | None = None,
        padding: int | tuple[int, int] = 0,
        dilation: int | tuple[int, int] = 1,
        ceil_mode: bool = False,
    ) -> None:
        super().__init__()
        self.kernel_size = kernel_size
        self.stride = kernel_size if stride is None else stride
        self.padding = padding
        self.dilation = dilation
        self.ceil_mode = ceil_mode

    def forward(self, x: Tensor) -> Tensor:
        """(N, C, H, W) to (N, C, h, w)."""
        return pooled(x, self)

    def indices(self, x: Tensor) -> Tensor:
        """Where in its plane of H·W pixels each window's winner lies, (N, C, h, w)."""
        settings = (self.kernel_size, self.stride, self.padding, self.dilation, self.ceil_mode)
        return F.max_pool2d(x.detach().abs(), *settings, return_indices=True)[1]

    def extra_repr(self) -> str:
        """The window."""
        return (
            f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}, "
            f"dilation={self.dilation}, ceil_mode={self.ceil_mode}"
        )


Pool = nn.MaxPool2d | MaxAbsPool2d


def take(x: Tensor, indices: Tensor) -> Tensor:
    """Pick from each plane of `x` (N, C, H, W) the elements that `indices` (N, C, h, w) points at."""
    rows, positions = (t.permute(0, 2, 3, 1).flatten(1, 2) for t in (x, indices))  # views if channels come last
    picked = rows.gather(1, positions)
    n, c, h, w = indices.shape
    return picked.view(n, h, w, c).permute(0, 3, 1, 2)


def pooled(x: Tensor, pool: Pool) -> Tensor:
    """`pool(x)`; while explaining, as a linear map of `x` that does not depend on how `x` was rounded.

    Of responses that are equal but for rounding (the patches of an even sky), the first in row order is given the
    gradient, with the factor that makes up for its rounding.
    """
    y = take(x, pool.indices(x)) if isinstance(pool, MaxAbsPool2d) else pool(x)
    if not explaining():
        return y
    winner = take(x, first_of_equals(x, y, pool))
    return winner * torch.where(winner == 0, 0.0, y / winner).detach()


@torch.no_grad()
def first_of_equals(x: Tensor, y: Tensor, pool: Pool) -> Tensor:
    """Where in its plane of H·W pixels each window first holds its winner `y`, to rounding: (N, C, h, w)."""
    (top, left), (down, across), (tall, wide), (rows, columns) = (
        nn.modules.utils._pair(value) for value in (pool.padding, pool.stride, pool.kernel_size, pool.dilation)
    )
    height, width = y.shape[2:]
    spare = [
        max(0, (count - 1) * step + (kernel - 1) * gap + 1 - pad - side)
        for count, step, kernel, gap, pad, side in zip(
            (height, width), (down, across), (tall, wide), (rows, columns), (top, left), x.shape[2:], strict=True
        )
    ]
    padded = F.pad(x, (left, spare[1], top, spare[0]), value=torch.nan)  # equals nothing
    pixels = torch.arange(height, device=x.device)[:, None] * (down * x.shape[3])
    pixels = pixels + torch.arange(width, device=x.device) * across
    tolerance = y.abs() * (TIE.get(x.dtype, 2) * torch.finfo(x.dtype).eps)
    first = pixels.new_zeros(()).expand(y.shape)
    for row, column in reversed(list(product(range(0, tall * rows, rows), range(0, wide * columns, columns)))):
        window = padded[:, :, row::down, column::across][:, :, :height, :width]
        here = pixels + ((row - top) * x.shape[3] + column - left)
        first = torch.where((window - y).abs() <= tolerance, here, first)
    return first
