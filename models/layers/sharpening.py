"""Pool first, then sharpen: the computation behind SCS2d, CosineSim2d and SharpenedSDP2d.

    u = conv(x, w);  c = u / (‖patch‖ + q) or c = u;  c = relu(pool(c));  y = sign(c) (|c| + eps)^p

Sharpening grows with c for every kernel, so it commutes with ReLU, MaxPool and MaxAbsPool: pooling the cosine and
sharpening the quarter that is left gives the same output and gradient with a quarter of the logarithms.

`sharpened` is the formula in plain differentiable operations. `FastSharpened` computes the same with a hand-written
backward pass that keeps only pooled tensors. `sharpened_convolution` picks between them.
"""

from collections.abc import Iterable
from itertools import repeat
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from scs_eval.models.dynamic_linear import dynamic, explaining, explanation_mode
from scs_eval.models.layers.convolution import Geometry, box, convolve, patch_energy, per_channel
from scs_eval.models.layers.pooling import MaxAbsPool2d, take

Pool = nn.MaxPool2d | MaxAbsPool2d


class Plan(NamedTuple):
    """What happens to the responses of a sharpened layer, besides its tensors."""

    at: Geometry
    relu: bool
    pool: Pool | None
    eps: float


def sharpened_convolution(x: Tensor, weight: Tensor, q: Tensor | None, p: Tensor, plan: Plan) -> Tensor:
    """Sharpened responses of kernels `weight` (O, C/groups, kh, kw) on `x` (N, C, H, W); no `q`, no normalisation.

    The plain formula serves wherever something else takes the derivative or rewrites the program.
    """
    elsewhere = (
        explaining()
        or torch.compiler.is_compiling()
        or torch._C._are_functorch_transforms_active()
        or torch.is_autocast_enabled(x.device.type)
        or torch.autograd.forward_ad._current_level >= 0
    )
    return sharpened(x, weight, q, p, plan) if elsewhere else FastSharpened.apply(x, weight, q, p, plan)


def sharpened(x: Tensor, weight: Tensor, q: Tensor | None, p: Tensor, plan: Plan) -> Tensor:
    """The formula; the factors 1/(‖patch‖ + q) and y/c are its dynamic-linear part."""
    c = convolve(x, weight, plan.at)
    if q is not None:
        norm = (patch_energy(x, plan.at) + plan.eps).sqrt() + q
        c = c / dynamic(per_channel(norm, c.shape[1]))
    if plan.pool is not None:
        c = plan.pool(c)
    if plan.relu:
        c = F.relu(c)
    y = c.sign() * (c.abs() + plan.eps) ** p
    return c * torch.where(c == 0, 0.0, y / c).detach() if explaining() else y


class FastSharpened(torch.autograd.Function):
    """`sharpened` with its own backward pass, channels last."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, q: Tensor | None, p: Tensor, plan: Plan) -> Tensor:
        """Saves what is left after pooling, and one number per patch."""
        channels_last = x.contiguous(memory_format=torch.channels_last)
        norm = inverse = None
        if q is not None:
            norm = patch_energy(channels_last, plan.at).add_(plan.eps).sqrt_()
            inverse = (norm + q).reciprocal_()
        ctx.slice = _slice_size(x, weight, plan)
        slices = zip(channels_last.split(ctx.slice), _split(inverse, ctx.slice), strict=False)
        pooled = [_pooled_responses(part, weight, scale, plan) for part, scale in slices]
        c, indices = _join([part[0] for part in pooled]), _join([part[1] for part in pooled])
        assert c is not None
        if plan.relu:
            c.clamp_(min=0)
        # Not the output: the layer after may overwrite it, as it may overwrite a convolution's.
        ctx.save_for_backward(x, weight, q, p, c, norm, inverse, indices)
        ctx.plan = plan
        return c.abs().add_(plan.eps).log_().mul_(p).exp_().mul_(c.sign())  # faster than torch's general power

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        """Gradients of x, weight, q and p. Under create_graph the formula is differentiated instead."""
        x, weight, q, p = ctx.saved_tensors[:4]
        if torch.is_grad_enabled():
            return _differentiable_backward(ctx, grad)
        c, norm, inverse, indices = ctx.saved_tensors[4:]
        plan, (needs_x, needs_weight, needs_q, needs_p, _) = ctx.plan, ctx.needs_input_grad
        signed = c + torch.copysign(c.new_tensor(plan.eps), c)  # sign(c)(|c| + eps)
        logs = signed.abs().log_()
        flow = (logs * p).exp_().mul_(grad).mul_(c.sign())
        grad_p = logs.mul_(flow).sum((0, 2, 3), keepdim=True) if needs_p else None
        flow.mul_(p).div_(signed)  # the gradient of c
        grad_q = None
        if norm is not None and inverse is not None:
            # c = u·r with r = 1/(norm + q):  -r·dr = -Σ_o dc·c, summed where the winners of the pooling came from.
            grad_norm = -_sum_channels(flow * c, indices, plan.at.groups, inverse.shape[2:]).mul_(inverse)
            grad_q = grad_norm.sum().view_as(q) if needs_q else None
        sliced = (flow.split(ctx.slice), _split(indices, ctx.slice), _split(inverse, ctx.slice), x.split(ctx.slice))
        parts = [_pooled_backward(*part, weight, plan, needs_x, needs_weight) for part in zip(*sliced, strict=False)]
        grad_x = _join([part[0] for part in parts])
        grad_weight = torch.stack([part[1] for part in parts]).sum(0) if needs_weight else None
        if grad_x is not None and norm is not None:
            _add_norm_gradient(grad_x, x, grad_norm.div_(norm), plan.at)
        return grad_x, grad_weight, grad_q, grad_p, None


SLICE_BYTES = 4 << 20  # what stays in the cache between the convolution and the pooling
SMALL_KERNEL = 256  # weights per kernel below which a convolution waits for memory and not for arithmetic


def _slice_size(x: Tensor, weight: Tensor, plan: Plan) -> int:
    """How many images to convolve and pool at a time.

    A first layer makes a response map ten times its input only to pool it away: slice by slice the map never leaves
    the cache, and the layer takes half the time. Layers that compute more than they store gain nothing.
    """
    images = max(len(x), 1)
    if plan.pool is None or weight[0].numel() > SMALL_KERNEL or x.device.type != "cpu":
        return images
    strides = plan.at.stride[0] * plan.at.stride[1]
    map_bytes = weight.shape[0] * x.shape[2] * x.shape[3] * x.element_size() // strides
    return max(1, min(images, SLICE_BYTES // max(map_bytes, 1)))


def _split(tensor: Tensor | None, size: int) -> Iterable[Tensor | None]:
    return repeat(None) if tensor is None else tensor.split(size)


def _join(parts: list[Any]) -> Tensor | None:
    return parts[0] if len(parts) == 1 or parts[0] is None else torch.cat(parts)


def _pooled_responses(x: Tensor, weight: Tensor, inverse: Tensor | None, plan: Plan) -> tuple[Tensor, Tensor | None]:
    """Convolve, normalise, pool; and where the winners of the pooling were."""
    c = convolve(x, weight, plan.at)
    if inverse is not None:
        c.mul_(per_channel(inverse, c.shape[1]))
    if plan.pool is None:
        return c, None
    if isinstance(plan.pool, MaxAbsPool2d):
        indices = plan.pool.indices(c)
        return take(c, indices), indices
    return F.max_pool2d(c, *_window(plan.pool), return_indices=True)


def _pooled_backward(
    flow: Tensor,
    indices: Tensor | None,
    inverse: Tensor | None,
    x: Tensor,
    weight: Tensor,
    plan: Plan,
    needs_x: bool,
    needs_weight: bool,
) -> tuple[Any, Any]:
    """The way back through pooling, normalisation (as a constant) and convolution."""
    flow = _unpool(flow, indices, plan, x)
    if inverse is not None:
        flow.mul_(per_channel(inverse, flow.shape[1]))
    return _convolution_backward(flow, x, weight, plan.at, needs_x, needs_weight)


def _differentiable_backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    """The gradients as a graph of their own, by differentiating the formula."""
    inputs = x, weight, q, p = ctx.saved_tensors[:4]
    wanted = [tensor for tensor, needs in zip(inputs, ctx.needs_input_grad, strict=False) if needs]
    with explanation_mode(False):  # the fast forward pass was not one that explains
        y = sharpened(x, weight, q, p, ctx.plan)
    found = iter(torch.autograd.grad(y, wanted, grad, create_graph=True))
    return *(next(found) if needs else None for needs in ctx.needs_input_grad[:4]), None


def _window(pool: Pool) -> tuple[Any, ...]:
    return pool.kernel_size, pool.stride, pool.padding, pool.dilation, pool.ceil_mode


def _unpool(flow: Tensor, indices: Tensor | None, plan: Plan, x: Tensor) -> Tensor:
    if indices is None or plan.pool is None:
        return flow
    pair = nn.modules.utils._pair
    *window, ceil_mode = _window(plan.pool)
    # Only the shape and layout of the pooled tensor are read.
    shape = (len(flow), flow.shape[1], *plan.at.places(x.shape[2:]))
    like = torch.empty(shape, dtype=flow.dtype, device=flow.device, memory_format=torch.channels_last)
    return torch.ops.aten.max_pool2d_with_indices_backward(flow, like, *map(pair, window), ceil_mode, indices)


def _sum_channels(product: Tensor, indices: Tensor | None, groups: int, places: torch.Size) -> Tensor:
    """Add up the channels of each group at the places the pooled values came from, (N, groups, h, w)."""
    if indices is None:
        return product.unflatten(1, (groups, -1)).sum(2)
    n = len(product)
    if groups == 1:  # in the order the numbers lie in memory
        where, what = (t.permute(0, 2, 3, 1).flatten(1).unsqueeze(1) for t in (indices, product))
    else:
        where, what = (t.reshape(n, groups, -1) for t in (indices, product))
    return product.new_zeros(n, groups, places.numel()).scatter_add_(2, where, what).view(n, groups, *places)


def _convolution_backward(
    flow: Tensor, x: Tensor, weight: Tensor, at: Geometry, needs_x: bool, needs_weight: bool
) -> tuple[Any, Any]:
    """Gradients of x and of the weight, None where not needed."""
    place = (at.stride, at.padding, at.dilation, False, (0, 0), at.groups)
    mask = [needs_x, needs_weight, False]
    return torch.ops.aten.convolution_backward(flow, x, weight, None, *place, mask)[:2]


def _add_norm_gradient(grad_x: Tensor, x: Tensor, per_patch: Tensor, at: Geometry) -> None:
    """d‖patch‖/dx = x/‖patch‖: send each patch's share back to its pixels, in place."""
    squares = x.new_empty(x.shape[0], at.groups, *x.shape[2:])
    spread = _convolution_backward(per_patch, squares, box(squares, at), at, True, False)[0]
    grad_x.addcmul_(x, per_channel(spread, x.shape[1]))
