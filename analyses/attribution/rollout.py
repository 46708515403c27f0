"""Maps from attention: plain rollout, weighted by gradients, and the sum of attention times gradient."""

import torch
from torch import Tensor, nn

from scs_eval.analyses.attribution.attention import attention_gradients, logits_and_attention, patch_map, read_out
from scs_eval.analyses.attribution.methods import MapOptions


def attention_rollout(model: nn.Module, images: Tensor, targets: Tensor, options: MapOptions) -> Tensor:
    """Π_l ½(A_l + I), A_l the mean attention over heads, bilinearly upsampled (Abnar and Zuidema 2020).

    The row of the class token; without one, the mean row. The map says nothing about classes: it is the same for all.
    """
    with torch.no_grad():
        _, layers = logits_and_attention(model, images)
        paths = torch.eye(layers[0].shape[-1], device=images.device, dtype=layers[0].dtype)
        for attention in layers:
            paths = 0.5 * (attention.mean(1) @ paths + paths)
        return patch_map(read_out(paths[:, None], images), images).expand(-1, targets.shape[1], -1, -1, -1)


def gradient_rollout(model: nn.Module, images: Tensor, targets: Tensor, options: MapOptions) -> Tensor:
    """R ← R + Ā_l R from R = I, Ā_l the mean over heads of (∂ logit/∂A_l ⊙ A_l)⁺ (Chefer et al. 2021, Eqs. 5 and 6).

    The row of the class token; without one, the mean row.
    """
    logits, layers = logits_and_attention(model, images.detach().requires_grad_())
    paths = []
    for gradients in attention_gradients(logits, layers, targets):
        path = torch.eye(layers[0].shape[-1], device=images.device, dtype=layers[0].dtype)
        for attention, gradient in zip(layers, gradients, strict=True):
            path = path + (gradient * attention.detach()).clamp(min=0).mean(1) @ path
        paths.append(path)
    return patch_map(read_out(torch.stack(paths, 1), images), images)


def grad_sam(model: nn.Module, images: Tensor, targets: Tensor, options: MapOptions) -> Tensor:
    """The mean over layers, heads and rows of A ⊙ (∂ logit/∂A)⁺ (Barkan et al. 2021)."""
    logits, layers = logits_and_attention(model, images.detach().requires_grad_())
    shares = []
    for gradients in attention_gradients(logits, layers, targets):
        pairs = zip(layers, gradients, strict=True)
        shares.append(torch.stack([(a.detach() * g.clamp(min=0)).mean((1, 2)) for a, g in pairs]).mean(0))
    return patch_map(torch.stack(shares, 1), images)
