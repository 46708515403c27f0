"""Divide by the standard deviation without subtracting the mean: the computation behind the uncentred norms.

    y = γ x / sqrt(var + eps),   var over the dimensions `dims`          (B-cos v2, Eqs. 25-27)

`FastUncentred` is this with a hand-written backward pass that keeps the input and its statistics, nothing as large.
"""

import math
from typing import Any

import torch
from torch import Tensor

from scs_eval.models.layers.kernels.autograd import differentiable_backward


def moments(x: Tensor, dims: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    """Mean and (biased) variance, the dimensions kept."""
    if x.device.type != "cpu" or x.dtype in (torch.float16, torch.bfloat16):
        var, mean = torch.var_mean(x, dims, correction=0, keepdim=True)
        return mean, var
    mean = x.mean(dims, keepdim=True)  # on the CPU two vectorised passes are ten times faster than torch's one
    centred = x - mean
    return mean, (centred * centred).mean(dims, keepdim=True)


def uncentred(x: Tensor, weight: Tensor, dims: tuple[int, ...], eps: float) -> Tensor:
    """The formula in plain operations, γ in the shape of `x` but for dimensions of size 1."""
    return x * ((moments(x, dims)[1] + eps).rsqrt() * weight)


class FastUncentred(torch.autograd.Function):
    """`uncentred` with its own backward pass; gives the mean and the variance, too, as constants."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, dims: tuple[int, ...], eps: float
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Saves the input and one mean and 1/σ for all of `dims`."""
        mean, var = moments(x, dims)
        inverse = (var + eps).rsqrt_()
        ctx.save_for_backward(x, weight, mean, inverse)
        ctx.mark_non_differentiable(mean, var)
        ctx.dims, ctx.eps = dims, eps
        return x * (inverse * weight), mean, var

    @staticmethod
    def backward(ctx: Any, grad: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
        """Gradients of x and γ. Under create_graph the formula is differentiated instead."""
        x, weight, mean, inverse = ctx.saved_tensors
        dims, eps = ctx.dims, ctx.eps
        if torch.is_grad_enabled():
            formula = lambda x, weight: uncentred(x, weight, dims, eps)  # noqa: E731
            return *differentiable_backward(ctx, grad, formula, (x, weight)), None, None
        product = grad * x
        if len(dims) > 1:  # all of them hold the pixels, over which neither γ nor 1/σ changes
            product = product.sum((-2, -1), keepdim=True)
        grad_weight = (product * inverse).sum_to_size(weight.shape) if ctx.needs_input_grad[1] else None
        if not ctx.needs_input_grad[0]:
            return None, grad_weight, None, None
        # dx = γ g/σ - (x - mean) · Σ(γ g x) / (count σ³)
        count = math.prod(x.shape[dim] for dim in dims)
        slope = (product * weight).sum(dims, keepdim=True).mul_(inverse.pow(3)).div_(-count)
        grad_x = torch.addcmul(-slope * mean, x, slope).addcmul_(grad, inverse * weight)
        return grad_x, grad_weight, None, None
