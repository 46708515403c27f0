"""MaxAbsPool2d: keep what answered most strongly, with its sign."""

import torch.nn.functional as F
from torch import Tensor, nn


class MaxAbsPool2d(nn.Module):
    """The element of largest magnitude in each window, with its sign; of equal ones the first in row order.

    y = x[i*], i* = argmax_i |x[i]|. Arguments as in nn.MaxPool2d. Recommended with sharpened layers, whose kernels
    answer to a feature and to its opposite.
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
        return take(x, self.indices(x))

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
    rows, places = (t.permute(0, 2, 3, 1).flatten(1, 2) for t in (x, indices))  # views if channels come last
    picked = rows.gather(1, places)
    n, c, h, w = indices.shape
    return picked.view(n, h, w, c).permute(0, 3, 1, 2)
