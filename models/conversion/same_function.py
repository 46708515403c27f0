"""B-cosification that starts where the network is (Arya et al. 2024): rules that change no output at B = 1.

A kernel keeps its length and bias, the stem sees [x, 1-x] through [w, -w]/2, norms and activations are written as
dynamic-linear layers, and attention holds its softmax constant while explaining. Queries, keys and values stay linear.
A BatchNorm becomes uncentred: its running mean goes into its bias, so that all that is added is a bias.

Convolutions become SCS by the same idea: with p = 1 and a large q, ŵ·x/(‖x‖ + q) is w·x but for a factor of ‖w‖ q.
"""

import torch
from torch import Tensor, nn

from scs_eval.models.conversion.equivalence import is_equivalent
from scs_eval.models.conversion.swap import SwapRule, is_exactly
from scs_eval.models.conversion.target import ConversionSpec
from scs_eval.models.layers import (
    BatchNorm,
    BcosConv2d,
    BcosLinear,
    ChannelGain,
    FadingNormalize,
    GroupNorm,
    Normalize,
    PositionNorm,
    SCS2d,
)
from scs_eval.models.layers.activation import DynamicActivation
from scs_eval.models.layers.attention import HeldAttention, HeldFactor
from scs_eval.models.layers.convolution import lengths
from scs_eval.models.layers.token_norm import TokenNorm

LINEAR_Q = 1e3  # far above the norm of a patch, and so small that responses stay far above the layer's eps
SMOOTH = (nn.ELU, nn.GELU, nn.SiLU, nn.Mish, nn.Hardswish, nn.Tanh)  # 0 at 0, and not piecewise linear


def same_function_rules(spec: ConversionSpec, *, sees_rgb: bool) -> list[SwapRule]:
    """For each kind of layer one that computes the same at B = 1, and can be explained; SCS takes convolutions only."""
    if spec.layer == "scs":
        return [SwapRule((nn.Conv2d,), _nearly_linear, is_exactly)]
    encoded = [SwapRule((Normalize,), _normalize, is_exactly)] if sees_rgb else []
    return [
        *encoded,
        SwapRule((nn.BatchNorm2d,), _batch_norm, is_exactly),
        SwapRule((nn.Conv2d,), lambda conv: _convolution(conv, spec), is_exactly),
        SwapRule((nn.MultiheadAttention,), _attention, is_exactly),
        SwapRule((nn.Linear,), lambda linear: _linear(linear, spec), is_equivalent),
        SwapRule((nn.LayerNorm,), _token_norm),
        SwapRule((nn.GroupNorm,), _group_norm, is_exactly),
        SwapRule(SMOOTH, DynamicActivation, is_exactly),
    ]


def hold_attention(root: nn.Module) -> None:
    """Make external attention layers linear while explaining, where they have a place behind queries and keys."""
    for module in list(root.modules()):
        for name in ("q_norm", "k_norm"):
            if isinstance(old := getattr(module, name, None), nn.Module) and hasattr(module, "qkv"):
                setattr(module, name, nn.Sequential(old, HeldFactor()))


def _convolution(conv: nn.Conv2d, spec: ConversionSpec) -> BcosConv2d:
    inputs = 6 if conv.in_channels == 3 else conv.in_channels
    shape = (inputs, conv.out_channels, conv.kernel_size, conv.stride, conv.padding, conv.dilation, conv.groups)
    kept = {"unit_norm": False, "bias": conv.bias is not None, "learn_b": spec.learn_b, "dtype": conv.weight.dtype}
    return BcosConv2d(*shape, padding_mode=conv.padding_mode, b=spec.b, **kept)  # type: ignore[arg-type]


def _linear(linear: nn.Linear, spec: ConversionSpec) -> BcosLinear:
    kept = {"unit_norm": False, "bias": linear.bias is not None, "learn_b": spec.learn_b, "dtype": linear.weight.dtype}
    return BcosLinear(linear.in_features, linear.out_features, b=spec.b, **kept)  # type: ignore[arg-type]


def _normalize(old: Normalize) -> Normalize:
    """Of [x, 1-x]: the second half becomes minus the first, also in the padding, and [w, -w]/2 sees it as w did x."""
    mean, std = old.mean.flatten().tolist(), old.std.flatten().tolist()
    return FadingNormalize([*mean, *(1 - value for value in mean)], [*std, *std])


def _batch_norm(norm: nn.BatchNorm2d) -> nn.Module | None:
    if not norm.affine or not norm.track_running_stats:
        return None
    momentum = 0.1 if norm.momentum is None else norm.momentum
    return BatchNorm(norm.num_features, bias=True, eps=norm.eps, momentum=momentum)


@torch.no_grad()
def fold_running_means(start: dict[str, Tensor], result: nn.Module) -> None:
    """Take γ·mean/σ of each BatchNorm of the old network from the bias of its uncentred successor."""
    for name, module in result.named_modules():
        mean = start.get(f"{name}.running_mean")
        if type(module) is BatchNorm and not module.centred and module.bias is not None and mean is not None:
            module.bias.sub_(module.weight * mean * (module.running_var + module.eps).rsqrt())
            module.running_mean.zero_()


@torch.no_grad()
def _nearly_linear(conv: nn.Conv2d) -> nn.Module:
    """SCS with p = 1 and q = LINEAR_Q, and a gain ‖w‖ q for each channel; kernels are scaled into their limits."""
    shape = (conv.in_channels, conv.out_channels, conv.kernel_size, conv.stride, conv.padding, conv.dilation)
    layer = SCS2d(*shape, conv.groups, conv.padding_mode, q=LINEAR_Q, dtype=conv.weight.dtype)  # type: ignore[arg-type]
    layer.p.fill_(1)
    largest = conv.weight.abs().amax().clamp(min=torch.finfo(conv.weight.dtype).tiny)
    layer.weight.copy_(conv.weight * (layer.w_max / largest).clamp(max=1))
    gain = ChannelGain(conv.out_channels, bias=conv.bias is not None).to(conv.weight.dtype)
    gain.weight.copy_(lengths(conv.weight) * LINEAR_Q)
    if gain.bias is not None and conv.bias is not None:
        gain.bias.copy_(conv.bias)
    return nn.Sequential(layer, gain)


def _token_norm(norm: nn.LayerNorm) -> nn.Module | None:
    per_pixel = type(norm).__name__ == "LayerNorm2d"
    if len(norm.normalized_shape) != 1 or not norm.elementwise_affine:
        return None
    if not per_pixel and not is_equivalent(norm, (nn.LayerNorm,)):
        return None
    kind = PositionNorm if per_pixel else TokenNorm
    return kind(norm.normalized_shape[0], centred=True, bias=norm.bias is not None, eps=norm.eps)


def _group_norm(norm: nn.GroupNorm) -> nn.Module | None:
    if not norm.affine:
        return None
    return GroupNorm(norm.num_groups, norm.num_channels, centred=True, bias=True, eps=norm.eps)


def _attention(old: nn.MultiheadAttention) -> nn.Module | None:
    if old.bias_k is not None or not old._qkv_same_embed_dim:
        return None
    biased = old.in_proj_bias is not None
    return HeldAttention(old.embed_dim, old.num_heads, old.dropout, bias=biased, batch_first=old.batch_first)
