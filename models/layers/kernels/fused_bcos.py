"""The B-cos layer with compiled passes: one convolution, then one pass over its responses each way."""

from typing import Any

import torch
from torch import Tensor

from scs_eval.models.explain.checkpointing import mark
from scs_eval.models.layers.convolution import convolution_backward, convolve, laid_out_like
from scs_eval.models.layers.kernels import fused
from scs_eval.models.layers.kernels.autograd import empty_map, wanted
from scs_eval.models.layers.kernels.bcos import EPS, BcosSettings, differentiated, kernel_by_kernel, unit_by_unit


class FusedAligned(torch.autograd.Function):
    """`aligned_responses` outside explanation mode, for B other than 1 and one or two kernels per unit."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, plan: BcosSettings) -> Tensor:
        """Saves the response of every kernel and ‖patch‖."""
        inner = fused.dense(x)
        kernels = laid_out_like(inner, kernel_by_kernel(weight, plan))
        responses = fused.dense(convolve(inner, kernels, plan.at))
        norm = fused.patch_norm(inner, plan.at, EPS)
        y = empty_map(responses, len(x), len(weight) // plan.max_out, *responses.shape[2:])
        fused.align(responses, norm, y, b=plan.b, eps=EPS, scale=plan.scale)
        ctx.save_for_backward(x, weight, kernels, responses, norm, mark(x, False))
        ctx.plan = plan
        return y

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        """Gradients of x and weight. Under create_graph the formula is differentiated instead."""
        if torch.is_grad_enabled():
            return *differentiated(ctx, grad, explain=False), None
        x, _, kernels, responses, norm, _ = ctx.saved_tensors
        plan = ctx.plan
        flow, grad_norm = fused.align_backward(responses, norm, fused.dense(grad), b=plan.b, eps=EPS, scale=plan.scale)
        needs_x, needs_weight = wanted(ctx, 0), wanted(ctx, 1)
        inner = fused.dense(x)
        grad_x, grad_weight = convolution_backward(flow, inner, kernels, plan.at, needs_x, needs_weight)
        if needs_x:
            grad_x = fused.dense(grad_x)
            fused.add_norm_gradient(grad_x, inner, grad_norm, norm, plan.at)
        return grad_x, unit_by_unit(grad_weight, plan) if needs_weight else None, None
