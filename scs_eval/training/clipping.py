"""Adaptive gradient clipping (Brock et al. 2021, "High-performance … recognition without normalization")."""

import torch
from torch import Tensor, nn

EPS = 1e-3  # the norm that an all-zero weight is treated as having


def unit_norm(values: Tensor) -> Tensor:
    """The L2 norm per output unit (all dimensions but the first), kept broadcastable; of a vector as a whole."""
    if values.ndim <= 1:
        return torch.linalg.vector_norm(values)
    return torch.linalg.vector_norm(values, dim=tuple(range(1, values.ndim)), keepdim=True)


@torch.no_grad()
def clip_adaptively(model: nn.Module, *, share: float) -> None:
    """Shorten every unit's gradient g to at most share · max(‖w‖, EPS), in place."""
    for weight in model.parameters():
        if weight.grad is not None:
            longest = share * unit_norm(weight).clamp(min=EPS)
            weight.grad.mul_((longest / unit_norm(weight.grad).clamp(min=1e-6)).clamp(max=1))
