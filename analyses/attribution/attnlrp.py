"""AttnLRP: layer-wise relevance propagation through a transformer (Achtibat et al. 2024), as input × gradient.

Its rules are those of a gradient in which some factors are held constant, since relevance is value × gradient at every
layer: a softmax keeps its gradient (their Taylor rule), a product of two matrices gives each of them half, a norm
divides by a constant, an activation is y = (y/x)·x with a constant slope. Linear layers follow the ε-rule with ε → 0.
"""

from collections.abc import Callable
from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from scs_eval.analyses.attribution.attention import ReplacedAttention, logits_and_attention
from scs_eval.analyses.attribution.gradient import class_gradients
from scs_eval.analyses.attribution.methods import MapOptions

ACTIVATIONS: tuple[Callable[..., Tensor], ...] = (F.gelu, F.relu, F.silu, F.hardswish)
SMALLEST = 1e-6  # of what an activation is divided by; nearer to 0 its slope is the gradient's


def attnlrp(model: nn.Module, images: Tensor, targets: Tensor, options: MapOptions) -> Tensor:
    """x ⊙ gradient under the rules, (N, K, C, H, W)."""
    logits_and_attention(model, images[:1].detach())  # raises where there is no attention
    start = images.detach().requires_grad_()
    with ReplacedAttention(_attend), HeldFactors():
        logits = model(start)
    return class_gradients(logits, start, targets) * images[:, None]


def _attend(query: Tensor, key: Tensor, value: Tensor, scale: float) -> Tensor:
    attention = (_half(query) @ _half(key).transpose(-2, -1) * scale).softmax(-1)
    return _half(attention) @ _half(value)


def _half(x: Tensor) -> Tensor:
    """The same, with half its gradient."""
    return 0.5 * x + (0.5 * x).detach()


class HeldFactors(TorchFunctionMode):
    """Inside, norms divide by constants and activations are lines through the origin."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        options = kwargs or {}
        if func is F.layer_norm:
            return _layer_norm(*args, **options)
        if func in ACTIVATIONS:
            return _activation(func, *args, **options)
        return func(*args, **options)


def _layer_norm(
    x: Tensor, normalized_shape: tuple[int, ...], weight: Tensor | None = None, bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:  # fmt: skip
    over = tuple(range(-len(normalized_shape), 0))
    centred = x - x.mean(over, keepdim=True)
    normed = centred / (x.var(over, unbiased=False, keepdim=True) + eps).sqrt().detach()
    scaled = normed if weight is None else normed * weight
    return scaled if bias is None else scaled + bias


def _activation(function: Callable[..., Tensor], x: Tensor, *args: Any, **options: Any) -> Tensor:
    y = function(x, *args, **{**options, "inplace": False} if "inplace" in options else options)
    far = x.abs() > SMALLEST
    slope = (y / x.where(far, x.new_ones(()))).detach()
    return (slope * x).where(far, y)
