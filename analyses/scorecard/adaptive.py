"""Gradients that an attacker would use who knows that the layers are sharpened.

Sharpening multiplies the gradient of c by p (|c| + eps)^(p-1), which all but vanishes where |c| is small: a network can
look robust because its gradient says nothing there. These networks answer exactly as the original does and differ in
the backward pass alone (BPDA: Athalye, Carlini, Wagner 2018), so any attack can use them as they are.
"""

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from scs_eval.models.explain.dynamic_linear import explanation_mode
from scs_eval.models.layers import BcosConv2d, BcosLinear, SharpenedSDP2d


class BorrowedGradient(nn.Module):
    """Answers as `model` does; its gradient is that of `surrogate` at the same image."""

    def __init__(self, model: nn.Module, surrogate: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.model, self.surrogate = model, surrogate

    def forward(self, images: Tensor) -> Tensor:
        """The model's logits, to the last bit."""
        with torch.no_grad():
            logits = self.model(images)
        return _Borrow.apply(logits, self.surrogate(images)) if torch.is_grad_enabled() else logits


class _Borrow(torch.autograd.Function):
    """The first argument's value with the second one's gradient."""

    @staticmethod
    def forward(ctx: Any, value: Tensor, carrier: Tensor) -> Tensor:
        return value.clone()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[None, Tensor]:
        return None, grad


def is_sharpened(model: nn.Module) -> bool:
    """Whether any layer has an exponent to hide behind: SCS or SharpenedSDP with p ≠ 1, B-cos with B ≠ 1."""
    return any(map(_sharpened, model.modules()))


def straight_through(model: nn.Module) -> nn.Module:
    """A copy whose every sharpened layer answers with its own p (B) and differentiates with 1, at the true activations.

    The layers' inputs stay the true ones all the way up, so only the vanishing factor is taken out of the gradient.
    """
    copied = copy.deepcopy(model)
    for layer in [module for module in copied.modules() if _sharpened(module)]:
        layer.register_forward_hook(_differentiate_with(flattened(layer)))
    return copied


def unsharpened_gradient(model: nn.Module) -> nn.Module:
    """The model with the gradient of the same network with p (or B) = 1 throughout, whose activations are others."""
    return BorrowedGradient(model, flattened(model))


def detached_gradient(model: nn.Module) -> nn.Module:
    """The model with the gradient of explanation mode: its row of W(x), every dynamic factor held constant."""

    def explained(images: Tensor) -> Tensor:
        with explanation_mode():
            return model(images)

    return BorrowedGradient(model, explained)


def flattened(model: nn.Module) -> nn.Module:
    """A copy with p = 1 in every SCS and SharpenedSDP layer and B = 1 in every B-cos layer."""
    copied = copy.deepcopy(model).requires_grad_(False)
    for module in copied.modules():
        if isinstance(module, SharpenedSDP2d):
            module.p.fill_(1)
        elif isinstance(module, BcosConv2d | BcosLinear):
            module.b = 1.0
    return copied


def _sharpened(module: nn.Module) -> bool:
    if isinstance(module, SharpenedSDP2d):
        return bool((module.p != 1).any())
    return isinstance(module, BcosConv2d | BcosLinear) and module.b != 1


def _differentiate_with(soft: nn.Module) -> Callable[[nn.Module, tuple[Tensor], Tensor], Tensor]:
    def hook(_module: nn.Module, inputs: tuple[Tensor], output: Tensor) -> Tensor:
        return _Borrow.apply(output.detach(), soft(inputs[0])) if torch.is_grad_enabled() else output

    return hook
