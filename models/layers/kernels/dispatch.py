"""Which computation serves a layer: compiled passes, hand-written ones of torch's operations, or the plain formula.

The plain formula serves wherever something else takes the derivative or rewrites the program.
"""

import torch
from torch import Tensor

from scs_eval.models.explain.checkpointing import marked
from scs_eval.models.explain.dynamic_linear import explaining
from scs_eval.models.layers.kernels import bcos, fused, scs
from scs_eval.models.layers.kernels.autograd import replaceable
from scs_eval.models.layers.kernels.fused_bcos import FusedAligned
from scs_eval.models.layers.kernels.fused_scs import FusedSharpened


def sharpened_convolution(x: Tensor, weight: Tensor, p: Tensor, q: Tensor | None, plan: scs.ScsSettings) -> Tensor:
    """Sharpened responses of kernels `weight` (O, C/groups, kh, kw) on `x` (N, C, H, W); no `q`, no normalisation."""
    explain = explaining()
    if not replaceable(x):
        return marked(scs.sharpened(x, weight, p, q, plan), explain)
    keep = torch.is_grad_enabled() and not torch.is_inference_mode_enabled()
    if not explain and fused.serves(x, plan.at.groups) and fused.pools(plan.pool):
        return FusedSharpened.apply(x, weight, p, q, plan, keep)
    return scs.FastSharpened.apply(x, weight, p, q, plan, explain, keep)


def aligned_convolution(x: Tensor, weight: Tensor, plan: bcos.BcosSettings) -> Tensor:
    """B-cos responses of unit kernels `weight` (O · max_out, C/groups, kh, kw) on `x`, (N, C, H, W) to (N, O, h, w)."""
    explain = explaining()
    paired = plan.max_out <= 2 and len(weight) % (plan.max_out * plan.at.groups) == 0
    if not (paired and x.ndim == 4 and replaceable(x)):
        return marked(bcos.aligned_responses(x, weight, plan), explain)
    if not explain and bcos.compiles(x, plan):
        return FusedAligned.apply(x, weight, plan)
    return bcos.FastAligned.apply(x, weight, plan, explain)
