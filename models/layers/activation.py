"""Activations as dynamic-linear layers: f(x) = s(x) · x, as B-cosified networks keep them (Arya et al. 2024)."""

import torch
from torch import Tensor, nn

from scs_eval.models.explain.checkpointing import marked
from scs_eval.models.explain.dynamic_linear import explaining


class DynamicActivation(nn.Module):
    """f(x), for an f with f(0) = 0 (GELU, SiLU …); while explaining x · [f(x)/x] with the factor held constant.

    ReLU and its kin need none of it: their own gradient is that factor.
    """

    def __init__(self, activation: nn.Module) -> None:
        super().__init__()
        self.activation = activation

    def forward(self, x: Tensor) -> Tensor:
        """Any shape, same shape out."""
        y: Tensor = self.activation(x)
        if explaining():
            y = x * torch.where(x == 0, 0.0, y / x).detach()
        return marked(y, explaining())
