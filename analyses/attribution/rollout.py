"""Attention rollout: which patches the last layer's tokens draw from (Abnar and Zuidema 2020)."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from scs_eval.analyses.attribution.methods import MapOptions
from scs_eval.errors import NotApplicableError
from scs_eval.models.layers import SelfAttention


def attention_rollout(model: nn.Module, images: Tensor, targets: Tensor, options: MapOptions) -> Tensor:
    """Π_l ½(A_l + I), A_l the mean attention over heads; the row of the class token, bilinearly upsampled.

    Without a class token the rows of all tokens are averaged. The map says nothing about classes: it is the same for
    every target.
    """
    with torch.no_grad():
        layers = _attention(model, images)
        paths = torch.eye(layers[0].shape[-1], device=images.device, dtype=layers[0].dtype)
        for attention in layers:
            paths = 0.5 * (attention @ paths + paths)
    maps = _as_image(paths, images)[:, None, None]
    return maps.expand(-1, targets.shape[1], images.shape[1], -1, -1)


def _attention(model: nn.Module, images: Tensor) -> list[Tensor]:
    """The attention (N, L, L) of every layer in the order they run, averaged over heads; rows add up to 1."""
    layers: list[Tensor] = []
    handles: list[Any] = []
    for module in model.modules():
        if isinstance(module, SelfAttention):
            handles.append(module.register_forward_pre_hook(lambda m, x: layers.append(m.attention(x[0]).mean(1))))
        elif isinstance(module, nn.MultiheadAttention):
            handles.append(module.register_forward_pre_hook(_with_weights, with_kwargs=True))
            handles.append(module.register_forward_hook(lambda _m, _x, output: layers.append(output[1])))
    try:
        model(images)
    finally:
        for handle in handles:
            handle.remove()
    if not layers or len({layer.shape for layer in layers}) > 1:
        raise NotApplicableError(
            "attention rollout needs attention between the same tokens in every layer, as in a ViT"
        )
    return layers


def _with_weights(_module: nn.Module, inputs: Any, options: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    return inputs, {**options, "need_weights": True, "average_attn_weights": True}


def _as_image(paths: Tensor, images: Tensor) -> Tensor:
    """The share of each patch, (N, L, L) to a map (N, H, W); a token more than patches is the class's."""
    height, width = images.shape[2:]
    tokens = paths.shape[-1]
    for first in (0, 1):
        rows = round(((tokens - first) * height / width) ** 0.5)
        if rows and rows * rows * width == (tokens - first) * height:
            drawn = paths[:, 0, 1:] if first else paths.mean(1)
            coarse = drawn.unflatten(1, (rows, -1))[:, None]
            fine = F.interpolate(coarse, (height, width), mode="bilinear", align_corners=False)
            return fine[:, 0]
    raise NotApplicableError(f"attention rollout cannot lay {tokens} tokens out as an image of {height}×{width}")
