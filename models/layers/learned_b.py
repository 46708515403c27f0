"""A B that is learned (Arya et al. 2024 try it): dy/dB = y · ln|cos|, beside the passes that take B as a number.

    y = u · |cos|^(B-1) with |cos| = |u|/‖x‖,   so |cos|^B = |y|/‖x‖   and   dy/dB = y · ln(|y|/‖x‖) / B

A layer's `b` is that number, and what every analysis reads; `constrain_` puts what was learned into it.
"""

from typing import Any

import torch
from torch import Tensor, nn

SMALLEST = 1e-12  # of |cos|^B; y ln|cos| goes to 0 with it


def learned_exponent(layer: nn.Module, b: float, **factory: Any) -> nn.Parameter:
    """The parameter of a layer that starts with this B; weights that are loaded bring theirs."""
    layer.register_load_state_dict_post_hook(take_learned_b)
    return nn.Parameter(torch.tensor(float(b), **factory))


def learns(layer: nn.Module) -> bool:
    """Whether a gradient of B can be asked for."""
    return layer.training and torch.is_grad_enabled()


def with_exponent(y: Tensor, norm: Tensor, b: float, learned: Tensor) -> Tensor:
    """The same values; the gradient of `learned` is that of B. norm: ‖x‖, and what else scales y."""
    with torch.no_grad():
        slope = y * (y.abs() / norm).clamp(min=SMALLEST).log() / b
    return y + slope * (learned - learned.detach())


@torch.no_grad()
def take_learned_b(layer: nn.Module, *_: object) -> None:
    """Hold what was learned at 1 or more, and compute with it."""
    learned = layer.learned_b
    if isinstance(learned, Tensor) and not learned.is_meta:
        learned.clamp_(min=1)
        layer.b = learned.item()  # type: ignore[assignment]
