"""Pool first, then sharpen: the computation behind SCS2d, CosineSim2d and SharpenedSDP2d.

    u = conv(x, w);  c = u / (‖patch‖ + q) or c = u;  c = relu(pool(c));  y = sign(c) (|c| + eps)^p

Sharpening grows with c for every kernel, so it commutes with ReLU, MaxPool and MaxAbsPool: pooling the cosine and
sharpening the quarter that is left gives the same output and gradient with a quarter of the logarithms.

`sharpened` is the formula in plain differentiable operations. `FastSharpened` computes the same with a hand-written
backward pass of torch's operations; `dispatch` picks between them and the compiled passes.
"""

import math
from functools import partial
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from scs_eval.models.explain.checkpointing import mark
from scs_eval.models.explain.dynamic_linear import dynamic, explaining, explanation_mode
from scs_eval.models.layers.convolution import (
    Geometry,
    add_norm_gradient,
    convolution_backward,
    convolve,
    laid_out_like,
    patch_energy,
    per_channel,
)
from scs_eval.models.layers.kernels import fused
from scs_eval.models.layers.kernels.autograd import (
    added,
    batch_slices,
    counter_of_changes,
    differentiable_backward,
    empty_map,
    images_per_slice,
    joined_gradients,
    wanted,
)
from scs_eval.models.layers.kernels.pooling import pool_responses, sum_channels, unpool_responses
from scs_eval.models.layers.pooling import Pool, first_of_equals, pooled, take


class ScsSettings(NamedTuple):
    """What happens to the responses of a sharpened layer, besides its tensors."""

    at: Geometry
    relu: bool
    pool: Pool | None
    eps: float


def sharpened(x: Tensor, weight: Tensor, p: Tensor, q: Tensor | None, plan: ScsSettings) -> Tensor:
    """The formula; the factors 1/(‖patch‖ + q) and y/c are its dynamic-linear part."""
    c = convolve(x, weight, plan.at)
    if weight.dtype in (torch.float16, torch.bfloat16):
        c = c.float()  # a logarithm of half precision would cost two more digits
    if q is not None:
        norm = (patch_energy(x, plan.at) + plan.eps).sqrt() + q
        c = c / dynamic(per_channel(norm, c.shape[1]))
    if plan.pool is not None:
        c = pooled(c, plan.pool)
    if plan.relu:
        c = F.relu(c)
    # torch.compile makes a power three times as slow as a logarithm and an exponential.
    y = c.sign() * torch.exp2((c.abs() + plan.eps).log() * (p * LOG2_E))
    return (c * torch.where(c == 0, 0.0, y / c).detach() if explaining() else y).to(weight.dtype)


SLICE_BYTES = 4 << 20  # of responses: what stays in the cache from one operation to the next
SMALL_KERNEL = 256  # weights per kernel below which a convolution waits for memory and not for arithmetic
LOG2_E = 1 / math.log(2)  # torch's exp2 takes a third of the time of its exp


class FastSharpened(torch.autograd.Function):
    """`sharpened` with its own backward pass, channels last, a few images at a time.

    A logarithm costs as much as eight products, so the backward pass takes none: with y and L = log2(|c| + eps),
    dy/dp = ln 2 · L y and dy/dc = p y / (sign(y) 2^L). After a layer that overwrote y, y is computed once more.
    """

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, p: Tensor, q: Tensor | None, plan: ScsSettings, explain: bool, keep: bool
    ) -> Tensor:
        """Saves L and y (to explain, y/c), the winners of the pooling, and the norms of the patches."""
        inner = x.contiguous(memory_format=torch.channels_last)
        norm, inverse = patch_norms(inner, q, plan)
        y, kept = _respond(inner, weight, p, inverse, plan, explain=explain, keep=keep)
        ctx.plan, ctx.explain, again = plan, explain, y.new_empty(0)
        if keep and not explain:
            # Not a copy of y: the next layer mostly keeps it anyway. Its `data`, because torch would refuse the
            # backward pass after a layer that overwrites y (ReLU in place); here that is noticed and y computed again.
            again, ctx.changes, ctx.version = y.data, counter_of_changes(y), y._version
        ctx.save_for_backward(mark(x, explain), x, weight, p, q, norm, inverse, again, *kept)
        return y

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        """Gradients of x, weight, p and q. Under create_graph the formula is differentiated instead."""
        _, x, weight, p, q, norm, inverse, y, *kept = ctx.saved_tensors
        plan = ctx.plan
        if torch.is_grad_enabled():
            formula = partial(sharpened, plan=plan)
            with explanation_mode(ctx.explain):
                return *differentiable_backward(ctx, grad, formula, (x, weight, p, q)), None, None, None
        needs_x, needs_weight, needs_p = (wanted(ctx, index) for index in range(3))
        needs = _Needs(needs_x, needs_weight, needs_p, q is not None and wanted(ctx, 3))
        if ctx.explain:
            y = None
        elif ctx.changes._version != ctx.version:
            inner = x.contiguous(memory_format=torch.channels_last)
            y, _ = _respond(inner, weight, p, inverse, plan, explain=False, keep=False)
        kernels = laid_out_like(x, weight)
        pieces = batch_slices(scs_slice(x, weight, plan), grad, y, inverse, x)
        parts = [
            _gradients(*kept[2 * i : 2 * i + 2], *piece, weight=kernels, p=p, plan=plan, needs=needs)
            for i, piece in enumerate(pieces)
        ]
        grad_x, grad_norm = (joined_gradients(column) for column in list(zip(*parts, strict=True))[:2])
        grad_weight, grad_p = (added(column) for column in list(zip(*parts, strict=True))[2:])
        grad_q = grad_norm.sum().view_as(q) if needs.q and grad_norm is not None else None
        if grad_x is not None and grad_norm is not None:
            add_norm_gradient(grad_x, x, grad_norm.div_(norm), plan.at)
        return grad_x, grad_weight, grad_p, grad_q, None, None, None


class _Needs(NamedTuple):
    """Which gradients are asked for."""

    x: bool
    weight: bool
    p: bool
    q: bool


def _respond(
    x: Tensor, weight: Tensor, p: Tensor, inverse: Tensor | None, plan: ScsSettings, *, explain: bool, keep: bool
) -> tuple[Tensor, list[Tensor | None]]:
    """Output of all images and, slice by slice, what the backward pass needs: L or, to explain, y/c; and indices."""
    y: Any = None  # made when its shape is known
    weight, kept, done = laid_out_like(x, weight), [], 0
    for piece, scale in batch_slices(scs_slice(x, weight, plan), x, inverse):
        c, indices, winners = _pooled(piece, weight, scale, plan, explain=explain, keep=keep)
        y = empty_map(x, len(x), *c.shape[1:]) if y is None else y
        out = y[done : done + len(piece)]
        logs = _sharpen(c, p, out, plan, explain=explain)
        if keep:
            kept += [_ratio(out, winners) if explain else logs, indices]
        done += len(piece)
    return y, kept


def patch_norms(x: Tensor, q: Tensor | None, plan: ScsSettings) -> tuple[Tensor | None, Tensor | None]:
    """‖patch‖ and 1/(‖patch‖ + q), (N, groups, h, w); neither without q."""
    if q is None:
        return None, None
    if fused.serves(x, plan.at.groups):
        return fused.patch_norm_and_inverse(x, plan.at, plan.eps, q.item())
    norm = patch_energy(x, plan.at).add_(plan.eps).sqrt_()
    return norm, (norm + q).reciprocal_()


def _sharpen(c: Tensor, p: Tensor, out: Tensor, plan: ScsSettings, *, explain: bool) -> Tensor | None:
    """Fill `out` with y; log2(|c| + eps), which the backward pass needs unless it explains.

    While explaining, by the same pass as otherwise: an explanation must not change a logit's last digit.
    """
    if explain and fused.serves(c, plan.at.groups) and fused.is_dense(c):
        fused.sharpen(c, None, p.contiguous(), out, None, None, pool=None, relu=plan.relu, eps=plan.eps)
        return None
    logs = (c + plan.eps if plan.relu else c.abs().add_(plan.eps)).log2_()
    torch.mul(logs, p, out=out).exp2_().mul_(c.sign())
    return logs


def _pooled(
    x: Tensor, weight: Tensor, inverse: Tensor | None, plan: ScsSettings, *, explain: bool, keep: bool
) -> tuple[Tensor, Tensor | None, Tensor]:
    """Convolve, normalise and pool: c (N, O, h, w), the winners' indices and, to explain, the winners before ReLU."""
    responses = convolve(x, weight, plan.at)
    if inverse is not None:
        responses.mul_(per_channel(inverse, responses.shape[1]))
    c, indices = pool_responses(responses, plan.pool, keep=keep and not explain)
    winners = c
    if plan.pool is not None and explain and keep:
        indices = first_of_equals(responses, c, plan.pool)
        winners = take(responses, indices)
    elif plan.relu and explain:
        winners = c.clone()
    return c.clamp_(min=0) if plan.relu else c, indices, winners


def _ratio(y: Tensor, c: Tensor) -> Tensor:
    """y/c, 0 where c is; overwrites c."""
    return y / c.add_(c.sign().abs_().neg_().add_(1))


def _gradients(
    kept: Tensor,
    indices: Tensor | None,
    grad: Tensor,
    y: Tensor | None,
    inverse: Tensor | None,
    x: Tensor,
    *,
    weight: Tensor,
    p: Tensor,
    plan: ScsSettings,
    needs: _Needs,
) -> tuple[Tensor | None, Tensor | None, Tensor | None, Tensor | None]:
    """Gradients of x but for the norm's part, of the norms, the weight and p."""
    size = plan.at.output_size(x.shape[2:])
    grad_norm = grad_p = None
    if y is None:  # kept is y/c, a constant
        flow = kept * grad
    else:
        by_log = y * grad
        if needs.p:
            grad_p = (kept * by_log).sum((0, 2, 3), keepdim=True).div_(LOG2_E)
        flow = by_log.mul_(p) / kept.exp2()
        if inverse is not None and (needs.x or needs.q):
            # c = u·r with r = 1/(norm + q): the gradient of the norm is -r·Σ dc·c, dc·c = by_log·(1 - eps/(|c| + eps)).
            product = by_log.sub_(flow, alpha=plan.eps)
            grad_norm = sum_channels(product, indices, size, plan.at.groups).mul_(inverse).neg_()
        flow.mul_(y.sign())
    full = unpool_responses(flow, indices, plan.pool, size)
    if inverse is not None:
        full.mul_(per_channel(inverse, full.shape[1]))
    grad_x, grad_weight = convolution_backward(full, x, weight, plan.at, needs.x, needs.weight)
    return grad_x, grad_norm, grad_weight, grad_p


def scs_slice(x: Tensor, weight: Tensor, plan: ScsSettings) -> int:
    """A first layer makes maps ten times its input only to pool them away: slice by slice they never leave the cache.

    Layers that compute more than they store gain nothing.
    """
    if weight[0].numel() > SMALL_KERNEL:
        return max(len(x), 1)
    down, across = plan.at.output_size(x.shape[2:])
    return images_per_slice(x, SLICE_BYTES, len(weight) * down * across * x.element_size())
