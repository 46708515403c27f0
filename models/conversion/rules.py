"""The rules of a conversion: what each kind of layer becomes.

What the B-cos form of a network is: B-cos v2, section 3.3; that of an SCS network: Wu et al. 2023, section 3.1.
"""

from functools import partial
from typing import Any

from torch import nn

from scs_eval.errors import InputError
from scs_eval.models.conversion.equivalence import is_equivalent
from scs_eval.models.conversion.same_function import same_function_rules
from scs_eval.models.conversion.swap import SwapRule, is_exactly
from scs_eval.models.conversion.target import ConversionSpec
from scs_eval.models.layers import (
    AllNorm,
    BatchNorm,
    BcosConv2d,
    BcosLinear,
    CosineSim2d,
    GroupNorm,
    InstanceNorm,
    LayerNorm,
    Normalize,
    PositionNorm,
    SCS2d,
    SharpenedSDP2d,
)
from scs_eval.models.layers.token_norm import TokenNorm

CONVOLUTIONS: dict[str, type[nn.Conv2d]] = {
    "scs": SCS2d,
    "ssdp": SharpenedSDP2d,
    "cos": CosineSim2d,
    "bcos": BcosConv2d,
}
NORMS = {"bn": BatchNorm, "ln": LayerNorm, "in": InstanceNorm, "pn": PositionNorm, "an": AllNorm}
NORM_LAYERS = (nn.BatchNorm2d, nn.GroupNorm, nn.InstanceNorm2d, *NORMS.values(), GroupNorm)
ACTIVATIONS = (nn.ReLU, nn.ReLU6, nn.LeakyReLU, nn.ELU, nn.GELU, nn.SiLU, nn.Mish, nn.Hardswish, nn.Softplus, nn.Tanh)


def conversion_rules(spec: ConversionSpec, *, sees_rgb: bool = True) -> list[SwapRule]:
    """Convolutions, linear layers, normalisation of the input, activations, norms: one rule each.

    sees_rgb: whether a convolution of the network sees RGB, which B-cos networks encode as [x, 1-x].
    """
    if spec.same_function:
        return same_function_rules(spec, sees_rgb=sees_rgb)
    rules = [
        SwapRule((nn.Conv2d, *CONVOLUTIONS.values()), partial(_convolution, spec), is_exactly),
        SwapRule((BcosLinear,), partial(_linear, spec), is_exactly),
        SwapRule((nn.Linear,), partial(_linear, spec), is_equivalent),
    ]
    if spec.layer == "bcos":
        rules.append(SwapRule((Normalize,), lambda _: nn.Identity(), is_exactly))  # [x, 1-x] comes instead
    if spec.chosen_activation != "keep":
        activation = nn.ReLU if spec.chosen_activation == "relu" else nn.Identity
        rules.append(SwapRule(ACTIVATIONS, lambda _: activation(), is_exactly))
    if spec.chosen_norm != "keep":
        rules += [
            SwapRule((nn.LayerNorm,), partial(_token_norm, spec)),
            SwapRule(NORM_LAYERS, partial(_norm, spec), is_exactly),
        ]
    return rules


def bcos_convolution(conv: nn.Conv2d, *, b: float, **options: Any) -> BcosConv2d:
    """A B-cos convolution of the same geometry; one that sees RGB sees [x, 1-x] then."""
    inputs = 6 if conv.in_channels == 3 else conv.in_channels
    return BcosConv2d(inputs, conv.out_channels, *_geometry(conv), b=b, **options)


def _convolution(spec: ConversionSpec, conv: nn.Conv2d) -> nn.Module | None:
    kind = CONVOLUTIONS.get(spec.layer, nn.Conv2d)
    if type(conv) is kind:
        return None
    if getattr(conv, "pool", None) is not None or getattr(conv, "relu", False):
        raise InputError("a sharpened layer with pooling inside is the zoo's own: build its twin by name instead")
    options: dict[str, Any] = {"padding_mode": conv.padding_mode, "dtype": conv.weight.dtype}
    if spec.layer == "bcos":
        return bcos_convolution(conv, b=spec.b, **options)
    outputs = conv.out_channels // getattr(conv, "max_out", 1)
    if spec.layer == "conv":
        options["bias"] = False
    return kind(conv.in_channels, outputs, *_geometry(conv), **options)


def _geometry(conv: nn.Conv2d) -> tuple[Any, ...]:
    return conv.kernel_size, conv.stride, conv.padding, conv.dilation, conv.groups


def _linear(spec: ConversionSpec, linear: nn.Linear) -> nn.Module | None:
    if spec.layer == "bcos" and not isinstance(linear, BcosLinear):
        return BcosLinear(linear.in_features, linear.out_features, b=spec.b, dtype=linear.weight.dtype)
    if spec.layer == "conv" and isinstance(linear, BcosLinear):
        return nn.Linear(linear.in_features, linear.out_features // linear.max_out, dtype=linear.weight.dtype)
    return None


def _norm(spec: ConversionSpec, norm: nn.Module) -> nn.Module:
    channels = int(getattr(norm, "num_features", 0) or getattr(norm, "num_channels", 0))
    if spec.chosen_norm == "none":
        return nn.Identity()
    return NORMS[spec.chosen_norm[:2]](channels, centred=not spec.chosen_norm.endswith("u"))


def _token_norm(spec: ConversionSpec, norm: nn.LayerNorm) -> nn.Module | None:
    """Norms per token or pixel lose their bias and stay what they are, as in B-cos transformers and ConvNeXts.

    Asked for by name, another norm takes the place of those per pixel, which torchvision and timm call LayerNorm2d.
    """
    if spec.chosen_norm == "none":
        return nn.Identity()
    per_pixel = type(norm).__name__ == "LayerNorm2d"
    if len(norm.normalized_shape) != 1 or not (per_pixel or is_equivalent(norm, (nn.LayerNorm,))):
        return None
    if not per_pixel:
        return TokenNorm(norm.normalized_shape[0], centred=True, eps=norm.eps)
    kind = PositionNorm if spec.norm is None else NORMS[spec.norm[:2]]
    return kind(norm.normalized_shape[0], centred=not (spec.norm or "").endswith("u"), eps=norm.eps)
