"""Pool first, then sharpen: the computation behind SCS2d, CosineSim2d and SharpenedSDP2d.

    u = conv(x, w);  c = u / (‖patch‖ + q) or c = u;  c = relu(pool(c));  y = sign(c) (|c| + eps)^p

Sharpening grows with c for every kernel, so it commutes with ReLU, MaxPool and MaxAbsPool: pooling the cosine and
sharpening the quarter that is left gives the same output and gradient with a quarter of the logarithms.

`sharpened` is the formula in plain differentiable operations. `FastSharpened` computes the same with a hand-written
backward pass. `sharpened_convolution` picks between them.
"""

import math
from functools import partial
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from scs_eval.models.dynamic_linear import dynamic, explaining, explanation_mode
from scs_eval.models.layers.convolution import (
    Geometry,
    add_norm_gradient,
    convolution_backward,
    convolve,
    patch_energy,
    per_channel,
)
from scs_eval.models.layers.handwritten import (
    differentiable_backward,
    empty_map,
    images_at_once,
    replaceable,
    slices,
    wanted,
)
from scs_eval.models.layers.pooled import pool_responses, sum_channels, unpool_responses
from scs_eval.models.layers.pooling import Pool


class Plan(NamedTuple):
    """What happens to the responses of a sharpened layer, besides its tensors."""

    at: Geometry
    relu: bool
    pool: Pool | None
    eps: float


def sharpened_convolution(x: Tensor, weight: Tensor, p: Tensor, q: Tensor | None, plan: Plan) -> Tensor:
    """Sharpened responses of kernels `weight` (O, C/groups, kh, kw) on `x` (N, C, H, W); no `q`, no normalisation.

    The plain formula serves wherever something else takes the derivative or rewrites the program.
    """
    if replaceable(x):
        return FastSharpened.apply(x, weight, p, q, plan, explaining(), torch.is_grad_enabled())
    return sharpened(x, weight, p, q, plan)


def sharpened(x: Tensor, weight: Tensor, p: Tensor, q: Tensor | None, plan: Plan) -> Tensor:
    """The formula; the factors 1/(‖patch‖ + q) and y/c are its dynamic-linear part."""
    c = convolve(x, weight, plan.at)
    if q is not None:
        norm = (patch_energy(x, plan.at) + plan.eps).sqrt() + q
        c = c / dynamic(per_channel(norm, c.shape[1]))
    if plan.pool is not None:
        c = plan.pool(c)
    if plan.relu:
        c = F.relu(c)
    # torch.compile makes a power three times as slow as a logarithm and an exponential.
    y = c.sign() * torch.exp2((c.abs() + plan.eps).log() * (p * LOG2_E))
    return c * torch.where(c == 0, 0.0, y / c).detach() if explaining() else y


SLICE_BYTES = 4 << 20  # of responses: what stays in the cache from one operation to the next
SMALL_KERNEL = 256  # weights per kernel below which a convolution waits for memory and not for arithmetic
LOG2_E = 1 / math.log(2)  # torch's exp2 takes a third of the time of its exp


class FastSharpened(torch.autograd.Function):
    """`sharpened` with its own backward pass, channels last, a few images at a time."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, p: Tensor, q: Tensor | None, plan: Plan, explain: bool, keep: bool
    ) -> Tensor:
        """Saves the responses and one number per patch."""
        inner = x.contiguous(memory_format=torch.channels_last)
        norm = inverse = None
        y: Any = None  # made when its shape is known
        if q is not None:
            norm = patch_energy(inner, plan.at).add_(plan.eps).sqrt_()
            inverse = (norm + q).reciprocal_()
        images, kept, done = _images_at_once(x, weight, plan), [], 0
        for piece, scale in slices(images, inner, inverse):
            part = _respond(piece, weight, scale, plan, keep)
            y = empty_map(x, len(x), *part.c.shape[1:]) if y is None else y
            out = y[done : done + len(piece)]
            torch.mul(part.logs, p * LOG2_E, out=out).exp2_().mul_(part.c.sign())
            done += len(piece)
            kept += _worth_keeping(part, out, plan) if keep else []
        ctx.save_for_backward(x, weight, p, q, norm, inverse, *kept)
        ctx.plan, ctx.explain, ctx.images = plan, explain, images
        return y

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        """Gradients of x, weight, p and q. Under create_graph the formula is differentiated instead."""
        x, weight, p, q, norm, inverse, *kept = ctx.saved_tensors
        if torch.is_grad_enabled():
            formula = partial(sharpened, plan=ctx.plan)
            with explanation_mode(ctx.explain):
                return *differentiable_backward(ctx, grad, formula, (x, weight, p, q)), None, None, None
        needs_x, needs_weight, needs_p = (wanted(ctx, index) for index in range(3))
        needs = _Needs(needs_x, needs_weight, needs_p, q is not None and wanted(ctx, 3), ctx.explain)
        parts = [
            _way_back(_Responses(*kept[4 * i : 4 * i + 4]), *part, weight=weight, p=p, plan=ctx.plan, needs=needs)
            for i, part in enumerate(slices(ctx.images, grad, inverse, x))
        ]
        grad_x, grad_norm = (_joined(column) for column in list(zip(*parts, strict=True))[:2])
        grad_weight, grad_p = (_added(column) for column in list(zip(*parts, strict=True))[2:])
        grad_q = grad_norm.sum().view_as(q) if needs.q and grad_norm is not None else None
        if grad_x is not None and grad_norm is not None:
            add_norm_gradient(grad_x, x, grad_norm.div_(norm), ctx.plan.at)
        return grad_x, grad_weight, grad_p, grad_q, None, None, None


class _Responses(NamedTuple):
    """Of some images: pooled responses (N, O, h, w), log(|c| + eps), where the pooling found them, and the output."""

    c: Tensor
    logs: Tensor
    indices: Tensor | None
    y: Tensor | None = None


class _Needs(NamedTuple):
    """Which gradients are asked for, and whether the layer's factors are constants, for W(x)."""

    x: bool
    weight: bool
    p: bool
    q: bool
    explain: bool


def _respond(x: Tensor, weight: Tensor, inverse: Tensor | None, plan: Plan, keep: bool) -> _Responses:
    """Convolve, normalise, pool, and take the logarithm of what is left."""
    responses = convolve(x, weight, plan.at)
    if inverse is not None:
        responses.mul_(per_channel(inverse, responses.shape[1]))
    c, indices = pool_responses(responses, plan.pool, keep=keep)
    if plan.relu:
        c.clamp_(min=0)
    return _Responses(c, _logs(c, plan), indices)


def _logs(c: Tensor, plan: Plan) -> Tensor:
    return c.abs().add_(plan.eps).log_()


def _worth_keeping(part: _Responses, y: Tensor, plan: Plan) -> list[Tensor | None]:
    """Pooled, all of it; else logarithms and output would be further full maps: they are computed again.

    The layer after may overwrite the output itself, hence the copy.
    """
    return [part.c, None, None, None] if plan.pool is None else [part.c, part.logs, part.indices, y.clone()]


def _way_back(
    at: _Responses,
    grad: Tensor,
    inverse: Tensor | None,
    x: Tensor,
    *,
    weight: Tensor,
    p: Tensor,
    plan: Plan,
    needs: _Needs,
) -> tuple[Tensor | None, Tensor | None, Tensor | None, Tensor | None]:
    """Gradients of x but for the norm's part, of the norms, the weight and p."""
    flow, grad_p = _response_gradient(at, grad, p, plan, needs)
    size = plan.at.places(x.shape[2:])
    full = unpool_responses(flow, at.indices, plan.pool, size)
    grad_norm = None
    if inverse is not None and not needs.explain and (needs.x or needs.q):
        # c = u·r with r = 1/(norm + q): the gradient of the norm is -r·Σ dc·c over the kernels.
        grad_norm = sum_channels(flow * at.c, at.indices, size, plan.at.groups).mul_(inverse).neg_()
    if inverse is not None:
        full.mul_(per_channel(inverse, full.shape[1]))
    grad_x, grad_weight = convolution_backward(full, x, weight, plan.at, needs.x, needs.weight)
    return grad_x, grad_norm, grad_weight, grad_p


def _response_gradient(
    at: _Responses, grad: Tensor, p: Tensor, plan: Plan, needs: _Needs
) -> tuple[Tensor, Tensor | None]:
    """The gradient of the pooled responses in a tensor of its own, and of p."""
    if at.y is None or at.logs is None:  # computed again, and free to be overwritten
        logs = _logs(at.c, plan)
        flow = (logs * (p * LOG2_E)).exp2_().mul_(at.c.sign()).mul_(grad)
    else:
        logs, flow = at.logs, at.y * grad
    if needs.explain:  # y/c is a constant, 0 where c is
        return flow.div_(at.c.sign().abs_().neg_().add_(1).add_(at.c)), None
    grad_p = None
    if needs.p:
        grad_p = torch.mul(logs, flow, out=logs if at.logs is None else None).sum((0, 2, 3), keepdim=True)
    return flow.mul_(p).div_(torch.copysign(at.c.new_tensor(plan.eps), at.c).add_(at.c)), grad_p


def _images_at_once(x: Tensor, weight: Tensor, plan: Plan) -> int:
    """A first layer makes maps ten times its input only to pool them away: slice by slice they never leave the cache.

    Layers that compute more than they store gain nothing.
    """
    if weight[0].numel() > SMALL_KERNEL:
        return max(len(x), 1)
    down, across = plan.at.places(x.shape[2:])
    return images_at_once(x, SLICE_BYTES, len(weight) * down * across * x.element_size())


def _joined(parts: tuple[Tensor | None, ...]) -> Any:
    return parts[0] if len(parts) == 1 or parts[0] is None else torch.cat(parts)  # type: ignore[arg-type]


def _added(parts: tuple[Tensor | None, ...]) -> Any:
    return parts[0] if len(parts) == 1 or parts[0] is None else torch.stack(parts).sum(0)  # type: ignore[arg-type]
