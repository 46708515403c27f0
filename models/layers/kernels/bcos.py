"""Convolve, take the largest kernel of each unit, scale by the alignment: the computation behind BcosConv2d.

    u = max(conv(x, ŵ));  y = γ · u · (|u| / ‖patch‖)^(B-1)

`aligned_responses` is the formula in plain differentiable operations. `FastAligned` computes the same with a
hand-written backward pass that keeps the responses of the kernels and one number per patch; `dispatch` picks between
them and the compiled passes. Its steps are those of the published package, so that in one memory layout the outputs of
released networks are the same bit for bit; a hundred layers magnify another rounding to 1e-4.
"""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor

from scs_eval.models.explain.checkpointing import mark
from scs_eval.models.explain.dynamic_linear import dynamic, explanation_mode
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
    batch_slices,
    differentiable_backward,
    images_per_slice,
    wanted,
)

EPS = 1e-6  # of the published package: added to ‖patch‖², and to |cos| unless B = 2


class BcosSettings(NamedTuple):
    """What happens to the responses of a B-cos layer, besides its tensors."""

    at: Geometry
    b: float
    max_out: int
    scale: float


def aligned_responses(x: Tensor, weight: Tensor, plan: BcosSettings) -> Tensor:
    """The formula; the alignment is its dynamic-linear part."""
    out = largest(convolve(x, weight, plan.at), plan.max_out, dim=-3)
    if plan.b != 1:
        norm = (patch_energy(x, plan.at, as_published=True) + EPS).sqrt()
        out = aligned(out, per_channel(norm, out.shape[-3]), plan.b)
    return (out if plan.scale == 1 else out * plan.scale).to(weight.dtype)  # norms of half precision are single


def aligned(out: Tensor, norm: Tensor, b: float) -> Tensor:
    """`out` scaled by |cos|^(B-1), cos = out/norm; the scale is the layer's dynamic-linear part."""
    cosine = (dynamic(out) / dynamic(norm)).abs()
    return out * (cosine if b == 2 else (cosine + EPS) ** (b - 1))


def largest(out: Tensor, max_out: int, *, dim: int) -> Tensor:
    """MaxOut: the largest of each `max_out` neighbours along the negative `dim`."""
    return out if max_out == 1 else out.unflatten(dim, (-1, max_out)).max(dim).values


def compiles(x: Tensor, plan: BcosSettings) -> bool:
    """Whether the compiled passes serve: channels last. In torch's own layout the steps are the published package's."""
    return plan.b != 1 and fused.serves(x, plan.at.groups) and fused.is_dense(x) and not x.is_contiguous()


def _norms(x: Tensor, plan: BcosSettings, *, compiled: bool) -> Tensor | None:
    if plan.b == 1:
        return None
    if compiled:
        return fused.patch_norm(x, plan.at, EPS)
    return patch_energy(x, plan.at, as_published=True).add_(EPS).sqrt_()


class FastAligned(torch.autograd.Function):
    """`aligned_responses` with its own backward pass, for one or two kernels per unit."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, plan: BcosSettings, explain: bool) -> Tensor:
        """Saves the response of every kernel and ‖patch‖; not the output, which the next layer may overwrite.

        To explain, it saves in place of the responses what the layer multiplies them with, 0 for kernels that lost:
        the layer is linear then, and explaining many classes costs one product and one convolution each.
        """
        kernels = laid_out_like(x, kernel_by_kernel(weight, plan))
        responses = convolve(x, kernels, plan.at)
        compiled = compiles(x, plan) and fused.is_dense(responses)
        norm = _norms(x, plan, compiled=compiled)
        y = _empty(responses, len(weight) // plan.max_out)
        for part, length, out in _slices(responses, norm, y):
            u = _winners(part, plan)
            factor = _factor(u, length, plan)
            if compiled:  # an explanation must not change a logit's last digit
                fused.align(part, length, out, b=plan.b, eps=EPS, scale=plan.scale)
            else:
                torch.mul(factor, u, out=out)
            if explain:
                _to_winners(factor, part, plan, out=part)
        ctx.save_for_backward(x, weight, kernels, responses, norm, mark(x, explain))
        ctx.plan, ctx.explain = plan, explain
        return y

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        """Gradients of x and weight. Under create_graph the formula is differentiated instead."""
        if torch.is_grad_enabled():
            return *differentiated(ctx, grad, explain=ctx.explain), None, None
        x, _, kernels, responses, norm, _ = ctx.saved_tensors
        plan, share = ctx.plan, None
        if ctx.explain:
            flow = _linear_gradient(responses, grad, plan)
        else:
            flow, share = torch.empty_like(responses), None if norm is None else torch.empty_like(norm)
            for part in _slices(responses, norm, grad, flow, share):
                _response_gradient(*part, plan=plan)
        needs_x, needs_weight = wanted(ctx, 0), wanted(ctx, 1)
        grad_x, grad_weight = convolution_backward(flow, x, kernels, plan.at, needs_x, needs_weight)
        if needs_x and share is not None:
            # dy/d‖patch‖ · ‖patch‖ = -share
            add_norm_gradient(grad_x, x, share.div_(norm).div_(norm).neg_(), plan.at)
        return grad_x, unit_by_unit(grad_weight, plan) if needs_weight else None, None, None


def differentiated(ctx: Any, grad: Tensor, *, explain: bool) -> tuple[Tensor | None, ...]:
    """Gradients of x and weight that can be differentiated themselves: those of the formula."""
    x, weight, *_ = ctx.saved_tensors
    with explanation_mode(explain):
        return differentiable_backward(ctx, grad, lambda x, w: aligned_responses(x, w, ctx.plan), (x, weight))


def kernel_by_kernel(weight: Tensor, plan: BcosSettings) -> Tensor:
    """Reorder (groups, units, max_out) to (groups, max_out, units): rivals then lie in two blocks, not interleaved."""
    if plan.max_out == 1:
        return weight
    return weight.unflatten(0, (plan.at.groups, -1, plan.max_out)).transpose(1, 2).flatten(0, 2)


def unit_by_unit(weight: Tensor, plan: BcosSettings) -> Tensor:
    """The reverse."""
    if plan.max_out == 1:
        return weight
    return weight.unflatten(0, (plan.at.groups, plan.max_out, -1)).transpose(1, 2).flatten(0, 2)


def _rivals(responses: Tensor, plan: BcosSettings) -> tuple[Tensor, Tensor]:
    """First and second kernel of every unit, each (N, groups, units, h, w)."""
    first, second = responses.unflatten(1, (plan.at.groups, 2, -1)).unbind(2)
    return first, second


def _winners(responses: Tensor, plan: BcosSettings) -> Tensor:
    return responses if plan.max_out == 1 else torch.maximum(*_rivals(responses, plan)).flatten(1, 2)


def _to_winners(flow: Tensor, responses: Tensor, plan: BcosSettings, out: Tensor) -> None:
    """Send the gradient to the kernel that won, of equals to the first; `out` may be `responses`."""
    if plan.max_out == 1:
        out.copy_(flow)
        return
    flow = flow.unflatten(1, (plan.at.groups, -1))
    (first, second), (to_first, to_second) = _rivals(responses, plan), _rivals(out, plan)
    # `flow` where second > first, else 0. Masks are not vectorised in torch, the gradient of ReLU is.
    torch.sub(second, first, out=to_second)
    torch.ops.aten.threshold_backward.grad_input(flow, to_second, 0, grad_input=to_second)
    torch.sub(flow, to_second, out=to_first)


def _factor(u: Tensor, norm: Tensor | None, plan: BcosSettings) -> Tensor:
    """y/u = γ |cos|^(B-1), in a tensor of its own."""
    if norm is None:
        return torch.full_like(u, plan.scale)
    cosine = u.abs()
    if plan.b == 2:
        return cosine.div_(per_channel(norm / plan.scale, u.shape[1]))
    power = _power_(cosine.div_(per_channel(norm, u.shape[1])).add_(EPS), plan.b - 1)
    return power if plan.scale == 1 else power.mul_(plan.scale)


# Roots take a third of the time of a logarithm and an exponential; these are the paper's B of 1.25 to 2.5, less one.
ROOTS: dict[float, Callable[[Tensor], Tensor]] = {
    0.25: lambda t: t.sqrt_().sqrt_(),
    0.5: lambda t: t.sqrt_(),
    0.75: lambda t: t.sqrt_().mul_(t.sqrt()),
    1.25: lambda t: t.mul_(t.sqrt().sqrt_()),
    1.5: lambda t: t.mul_(t.sqrt()),
}


def _power_(base: Tensor, exponent: float) -> Tensor:
    """A power of positive numbers in place, faster than torch's general one."""
    return ROOTS[exponent](base) if exponent in ROOTS else base.log_().mul_(exponent).exp_()


def _linear_gradient(factors: Tensor, grad: Tensor, plan: BcosSettings) -> Tensor:
    """The gradient of the responses where each of them was multiplied with a constant."""
    if plan.max_out == 1:
        return factors * grad
    flow, units = torch.empty_like(factors), grad.unflatten(1, (plan.at.groups, -1))
    for rival, to_rival in zip(_rivals(factors, plan), _rivals(flow, plan), strict=True):
        torch.mul(rival, units, out=to_rival)  # a third of the time of one product that is broadcast over both
    return flow


def _response_gradient(
    responses: Tensor, norm: Tensor | None, grad: Tensor, out: Tensor, share: Tensor | None, *, plan: BcosSettings
) -> None:
    """Fill `out` with the gradient of the responses, and `share` with -‖patch‖ times that of the norm.

    y grows with |cos| as y (B-1) r / |cos|, with r = |cos|/(|cos| + eps), or 1 for B = 2.
    """
    u = _winners(responses, plan)
    flow = _factor(u, norm, plan).mul_(grad)
    if share is not None and norm is not None:
        if plan.b == 2:
            through = flow
        else:
            cosine = u.abs().div_(per_channel(norm, u.shape[1])).add_(EPS)
            through = cosine.reciprocal_().mul_(-EPS * (plan.b - 1)).add_(plan.b - 1).mul_(flow)
        torch.sum((through * u).unflatten(1, (plan.at.groups, -1)), 2, out=share)
        flow.add_(through)
    _to_winners(flow, responses, plan, out)


SLICE_BYTES = 1 << 20  # of responses: what stays in the cache from one operation to the next


def _slices(responses: Tensor, *others: Tensor | None) -> Iterator[tuple[Any, ...]]:
    """A few images at a time on the CPU, all of them elsewhere."""
    per_image = responses.numel() * responses.element_size() // max(len(responses), 1)
    return batch_slices(images_per_slice(responses, SLICE_BYTES, per_image), responses, *others)


def _empty(like: Tensor, channels: int) -> Tensor:
    layout = torch.channels_last if like.is_contiguous(memory_format=torch.channels_last) else torch.contiguous_format
    shape = (len(like), channels, *like.shape[2:])
    return torch.empty(shape, dtype=like.dtype, device=like.device, memory_format=layout)
