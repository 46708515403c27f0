"""The sharpened layers with compiled passes: convolve a few images, then one pass over their responses each way."""

from functools import partial
from typing import Any

import torch
from torch import Tensor

from scs_eval.models.explain.checkpointing import mark
from scs_eval.models.explain.dynamic_linear import explanation_mode
from scs_eval.models.layers.convolution import convolution_backward, convolve, laid_out_like
from scs_eval.models.layers.kernels import fused
from scs_eval.models.layers.kernels.autograd import (
    added,
    batch_slices,
    differentiable_backward,
    empty_map,
    joined_gradients,
    wanted,
)
from scs_eval.models.layers.kernels.scs import ScsSettings, patch_norms, scs_slice, sharpened


class FusedSharpened(torch.autograd.Function):
    """`sharpened` outside explanation mode. It keeps c: its logarithm is cheaper to take again than to read."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, p: Tensor, q: Tensor | None, plan: ScsSettings, keep: bool
    ) -> Tensor:
        """Saves the pooled c, where in its window each lay (a byte), and the norms of the patches."""
        inner, exponents = fused.dense(x), p.contiguous()
        kernels = laid_out_like(inner, weight)
        norm, inverse = patch_norms(inner, q, plan)
        y = empty_map(x, len(x), len(weight), *fused.pooled_size(plan.at.output_size(x.shape[2:]), plan.pool))
        c = torch.empty_like(y) if keep else None
        codes = torch.empty_like(y, dtype=torch.uint8) if keep and plan.pool is not None else None
        for piece, scale, *out in batch_slices(scs_slice(x, weight, plan), inner, inverse, y, c, codes):
            u = fused.dense(convolve(piece, kernels, plan.at))
            fused.sharpen(u, scale, exponents, *out, pool=plan.pool, relu=plan.relu, eps=plan.eps)
        ctx.plan = plan
        ctx.save_for_backward(mark(x, False), x, weight, p, q, norm, inverse, c, codes)
        return y

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        """Gradients of x, weight, p and q. Under create_graph the formula is differentiated instead."""
        _, x, weight, p, q, norm, inverse, c, codes = ctx.saved_tensors
        plan = ctx.plan
        if torch.is_grad_enabled():
            with explanation_mode(False):
                formula = partial(sharpened, plan=plan)
                return *differentiable_backward(ctx, grad, formula, (x, weight, p, q)), None, None
        needs_x, needs_weight, needs_p = (wanted(ctx, index) for index in range(3))
        needs_q = q is not None and wanted(ctx, 3)
        inner, exponents = fused.dense(x), p.contiguous()
        kernels, size = laid_out_like(inner, weight), plan.at.output_size(x.shape[2:])
        parts, at_once = [], scs_slice(x, weight, plan)
        for piece, flow, cosine, code, scale in batch_slices(at_once, inner, fused.dense(grad), c, codes, inverse):
            full, *others = fused.sharpen_backward(
                flow,
                cosine,
                code,
                scale,
                exponents,
                size=size,
                pool=plan.pool,
                eps=plan.eps,
                needs_norm=q is not None and (needs_x or needs_q),
                needs_p=needs_p,
            )
            parts.append((*convolution_backward(full, piece, kernels, plan.at, needs_x, needs_weight), *others))
        columns = list(zip(*parts, strict=True))
        grad_x, grad_norm = joined_gradients(columns[0]), joined_gradients(columns[2])
        grad_weight, grad_p = added(columns[1]), added(columns[3])
        if grad_x is not None and grad_norm is not None:
            grad_x = fused.dense(grad_x)
            fused.add_norm_gradient(grad_x, inner, grad_norm, norm, plan.at)
        grad_q = grad_norm.sum().view_as(q) if needs_q else None
        return grad_x, grad_weight, grad_p, grad_q, None, None
