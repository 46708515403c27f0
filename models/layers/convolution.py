"""What every layer here shares with a convolution: its geometry, and the norm of the patches it sees."""

import math
from contextlib import nullcontext
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Geometry(NamedTuple):
    """Where the patches of a convolution lie, with explicit symmetric zero padding."""

    kernel_size: tuple[int, int]
    stride: tuple[int, int]
    padding: tuple[int, int]
    dilation: tuple[int, int]
    groups: int

    def output_size(self, size: torch.Size) -> tuple[int, int]:
        """Height and width of the output for an image of this size."""
        down, across = (
            (side + 2 * pad - step * (kernel - 1) - 1) // stride + 1
            for side, pad, step, kernel, stride in zip(
                size, self.padding, self.dilation, self.kernel_size, self.stride, strict=True
            )
        )
        return down, across


def prepare(x: Tensor, conv: nn.Conv2d) -> tuple[Tensor, Geometry]:
    """Split a convolution's padding into what must be done beforehand and what the convolution itself can do.

    Circular, reflecting and replicating padding, and the lopsided half of `padding="same"`, are applied to `x`; plain
    zero padding is left to the geometry. Patch norms computed from both see exactly the convolution's patches.
    """
    # nn.Conv2d keeps (left, right, top, bottom) here, also for "same" and "valid".
    left, right, top, bottom = conv._reversed_padding_repeated_twice
    padding = (top, left)
    if conv.padding_mode != "zeros":
        x, padding = F.pad(x, (left, right, top, bottom), mode=conv.padding_mode), (0, 0)
    elif (left, top) != (right, bottom):
        x, padding = F.pad(x, (left, right, top, bottom)), (0, 0)
    pair = _pair
    return x, Geometry(pair(conv.kernel_size), pair(conv.stride), padding, pair(conv.dilation), conv.groups)


def _pair(value: tuple[int, ...]) -> tuple[int, int]:
    return value[0], value[1]


def convolve(x: Tensor, weight: Tensor, at: Geometry) -> Tensor:
    """Dot product of every kernel with every patch: (N, C, H, W) and (O, C/groups, kh, kw) to (N, O, h, w)."""
    return F.conv2d(x, weight, None, at.stride, at.padding, at.dilation, at.groups)


def laid_out_like(x: Tensor, weight: Tensor) -> Tensor:
    """The kernels channels last if the images are.

    torch cannot always know it of a batch of one image (the stride of its first dimension is arbitrary); it then looks
    at the kernels, and with the other layout nine rows of W(x) of a B-cos ResNet-20 take a fifth longer.
    """
    if not x.is_contiguous(memory_format=torch.channels_last) or x.is_contiguous():
        return weight
    return weight.to(memory_format=torch.channels_last)  # `contiguous` would leave the strides of 1×1 kernels


def patch_energy(x: Tensor, at: Geometry, *, as_published: bool = False) -> Tensor:
    """Σ x² over every patch and group, (N, C, H, W) to (N, groups, h, w).

    Summing the channels first makes the box filter one channel wide per group. Not in autocast's precision: under
    autocast a squared norm would lose the digits that the cosine is made of.
    as_published: with the rounding of the package `bcos`.
    """
    with nullcontext() if x.device.type == "meta" else torch.autocast(x.device.type, enabled=False):
        wide = x.float() if x.dtype in (torch.float16, torch.bfloat16) else x
        squares = (wide * wide).unflatten(1, (at.groups, -1)).sum(2)
        return pooled_sum(squares, at) if as_published else box_sum(squares, at)


def pooled_sum(x: Tensor, at: Geometry) -> Tensor:
    """Sums over every patch, channel by channel: the mean times the size, where torch's pooling can do it."""
    if at.dilation != (1, 1) or any(2 * pad > side for pad, side in zip(at.padding, at.kernel_size, strict=True)):
        return box_sum(x, at)
    if at.kernel_size == (1, 1):
        return x[:, :, :: at.stride[0], :: at.stride[1]]
    return F.avg_pool2d(x, at.kernel_size, at.stride, at.padding) * math.prod(at.kernel_size)


def box_sum(x: Tensor, at: Geometry) -> Tensor:
    """The same by adding shifted images, rows and then columns: a fifth of the time of torch's pooling."""
    if any(at.padding):
        x = F.pad(x, (at.padding[1], at.padding[1], at.padding[0], at.padding[0]))
    for dim, count in zip((2, 3), at._replace(padding=(0, 0)).output_size(x.shape[2:]), strict=True):
        x = _shifted_sum(x, dim, count, at)
    return x


def _shifted_sum(x: Tensor, dim: int, count: int, at: Geometry) -> Tensor:
    kernel, stride, dilation = (sizes[dim - 2] for sizes in (at.kernel_size, at.stride, at.dilation))
    shifted = (_every(x, dim, first * dilation, count, stride) for first in range(kernel))
    total = next(shifted)
    for image in shifted:
        total = total + image
    return total


def _every(x: Tensor, dim: int, first: int, count: int, step: int) -> Tensor:
    return x[(slice(None),) * dim + (slice(first, first + step * (count - 1) + 1, step),)]


def per_channel(per_group: Tensor, channels: int) -> Tensor:
    """Spread (N, groups, h, w) over the output channels; with one group broadcasting does it for free."""
    groups = per_group.shape[1]
    return per_group if groups == 1 else per_group.repeat_interleave(channels // groups, dim=1)


def convolution_backward(
    flow: Tensor, x: Tensor, weight: Tensor, at: Geometry, needs_x: bool, needs_weight: bool
) -> tuple[Any, Any]:
    """Gradients of x and of the weight, None where not needed."""
    options = (at.stride, at.padding, at.dilation, False, (0, 0), at.groups)
    mask = [needs_x, needs_weight, False]
    return torch.ops.aten.convolution_backward(flow, x, weight, None, *options, mask)[:2]


def add_norm_gradient(grad_x: Tensor, x: Tensor, per_patch: Tensor, at: Geometry) -> None:
    """d‖patch‖/dx = x/‖patch‖: send each patch's share (N, groups, h, w) back to its pixels, in place."""
    spread = _box_backward(per_patch, x, at)
    grad_x.addcmul_(x, per_channel(spread, x.shape[1]))


def _box_backward(per_patch: Tensor, x: Tensor, at: Geometry) -> Tensor:
    """Transposed box filter. With stride 1 it is a box filter too, and the faster one."""
    rows, columns = (
        step * (kernel - 1) - pad for step, kernel, pad in zip(at.dilation, at.kernel_size, at.padding, strict=True)
    )
    if at.stride == (1, 1) and rows >= 0 and columns >= 0:
        return box_sum(per_patch, at._replace(padding=(rows, columns)))
    squares = x.new_empty(x.shape[0], at.groups, *x.shape[2:])
    box = squares.new_ones(at.groups, 1, *at.kernel_size)
    return convolution_backward(per_patch, squares, box, at, True, False)[0]


def lengths(weight: Tensor) -> Tensor:
    """‖w‖ of each kernel, (O,)."""
    return torch.linalg.vector_norm(weight.flatten(1), dim=1)


def unit_kernels(weight: Tensor) -> Tensor:
    """w / ‖w‖ per kernel; a zero kernel stays zero, with a finite gradient that lets it grow again."""
    norm = torch.linalg.vector_norm(weight, dim=tuple(range(1, weight.ndim)), keepdim=True)
    return weight / torch.where(norm == 0, 1.0, norm)
