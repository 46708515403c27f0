"""A logit taken apart: f(x) = W(x)·x + b(x), with W from the gradient and b from the layers that add something.

The two halves are computed independently, so that their sum meeting the logit is evidence and not arithmetic.
Source: B-cos v2, Eq. 14 (W), section 3.3.2 and Fig. 13 (the bias).
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from scs_eval.errors import InputError
from scs_eval.models.dynamic_linear import explanation_mode
from scs_eval.models.layers.encoding import AddInverse


@dataclass(frozen=True)
class Decomposition:
    """One logit per image, as a sum over the input plus a sum over biased layers."""

    weights: Tensor  # (N, C, H, W), the logit's row of W(x); C is 6 for networks that encode [x, 1-x]
    inputs: Tensor  # (N, C, H, W), what W(x) multiplies
    biases: dict[str, Tensor]  # layer name -> (N,), what its additive constant contributes to the logit
    logits: Tensor  # (N,)

    @property
    def contributions(self) -> Tensor:
        """W(x)⊙x, (N, C, H, W) (Eq. 16)."""
        return self.weights * self.inputs

    @property
    def bias(self) -> Tensor:
        """b(x), (N,)."""
        return sum(self.biases.values(), torch.zeros_like(self.logits))

    @property
    def residual(self) -> Tensor:
        """What neither half explains, (N,): rounding for a dynamic-linear network, more for any other."""
        return self.logits - self.contributions.sum((1, 2, 3)) - self.bias


def decompose(model: nn.Module, images: Tensor, targets: Tensor) -> Decomposition:
    """Take apart the logit `targets[i]` (N,) of each image (N, 3, H, W). The model must be in evaluation mode."""
    if any(module.training for module in model.modules()):
        raise InputError("expected a model in evaluation mode, got one in training; call model.eval() first")
    with torch.enable_grad(), explanation_mode(), _probed(model) as taps:
        inputs = images.detach().clone().requires_grad_()
        logits = model(inputs).gather(1, targets[:, None]).squeeze(1)
        start = taps.encoded if taps.encoded is not None else inputs
        gradients = torch.autograd.grad(logits.sum(), [start, *(probe for _, probe, _ in taps.probes)])
    biases: dict[str, Tensor] = {}
    for (name, _, bias), gradient in zip(taps.probes, gradients[1:], strict=True):
        biases[name] = biases.get(name, 0) + gradient @ bias  # a layer that runs twice adds twice
    return Decomposition(gradients[0], start.detach(), biases, logits.detach())


class _Taps:
    """What the hooks saw during one forward pass."""

    def __init__(self) -> None:
        self.encoded: Tensor | None = None
        self.probes: list[tuple[str, Tensor, Tensor]] = []


@contextmanager
def _probed(model: nn.Module) -> Iterator[_Taps]:
    """Add a zero to the output of every layer with an additive constant; the zero's gradient weighs the constant."""
    taps = _Taps()
    handles = []
    for name, module in model.named_modules():
        if isinstance(module, AddInverse):
            handles.append(module.register_forward_hook(partial(_start_here, taps)))
        elif (bias := additive_bias(module)) is not None:
            handles.append(module.register_forward_hook(partial(_probe, taps, name, bias)))
    try:
        yield taps
    finally:
        for handle in handles:
            handle.remove()


def additive_bias(module: nn.Module) -> Tensor | None:
    """The constant a layer adds to each of its output channels in evaluation mode, or None."""
    if callable(own := getattr(module, "additive_bias", None)):
        constant: Tensor | None = own()
        return constant
    if isinstance(module, nn.BatchNorm2d) and module.running_mean is not None and module.running_var is not None:
        factor = (module.running_var + module.eps).rsqrt() * (1 if module.weight is None else module.weight.detach())
        return -module.running_mean * factor + (0 if module.bias is None else module.bias.detach())
    if isinstance(module, nn.Conv2d | nn.Linear) and module.bias is not None:
        return module.bias.detach()
    return None


def _start_here(taps: _Taps, _module: nn.Module, _inputs: Any, output: Tensor) -> Tensor:
    taps.encoded = output.detach().requires_grad_()
    return taps.encoded


def _probe(taps: _Taps, name: str, bias: Tensor, module: nn.Module, _inputs: Any, output: Tensor) -> Tensor:
    probe = output.new_zeros(output.shape[0], bias.numel(), requires_grad=True)
    taps.probes.append((name, probe, bias.to(output)))
    last = isinstance(module, nn.Linear) or output.ndim == 2  # where the channels are
    shape = [output.shape[0], *[1] * (output.ndim - 2)]
    shape.insert(len(shape) if last else 1, bias.numel())
    return output + probe.view(shape)
