"""The attention of a network, whoever wrote its layers: every softmax(QK'/√d) of a forward pass, as part of its graph.

Our attention, timm's and most others call `scaled_dot_product_attention`, torchvision's `multi_head_attention_forward`;
both are replaced for the pass by the plain formula, in this thread alone.
"""

import inspect
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from scs_eval.errors import NotApplicableError

Attend = Callable[[Tensor, Tensor, Tensor, float], Tensor]  # query, key, value (…, L, d), the factor of the scores


class ReplacedAttention(TorchFunctionMode):
    """Inside, `attend` does the work of every attention."""

    def __init__(self, attend: Attend) -> None:
        super().__init__()
        self.attend = attend

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is F.scaled_dot_product_attention:
            return self._scaled_dot_product(*args, **(kwargs or {}))
        if func is F.multi_head_attention_forward:
            return self._multi_head(**_SIGNATURE.bind(*args, **(kwargs or {})).arguments)
        return func(*args, **(kwargs or {}))

    def _scaled_dot_product(
        self, query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None, dropout_p: float = 0.0,
        is_causal: bool = False, scale: float | None = None, **options: Any,
    ) -> Tensor:  # fmt: skip
        if attn_mask is not None or is_causal or dropout_p or any(options.values()):
            raise NotApplicableError("attention with a mask or dropout is not between the patches of one image")
        return self.attend(query, key, value, query.shape[-1] ** -0.5 if scale is None else scale)

    def _multi_head(
        self, query: Tensor, key: Tensor, value: Tensor, num_heads: int, in_proj_weight: Tensor | None,
        in_proj_bias: Tensor | None, out_proj_weight: Tensor, out_proj_bias: Tensor | None, **options: Any,
    ) -> tuple[Tensor, None]:  # fmt: skip
        """Tokens (L, N, C) with themselves, as torch's encoders have it."""
        masked = any(options.get(name) is not None for name in ("key_padding_mask", "attn_mask", "bias_k"))
        if in_proj_weight is None or key is not query or value is not query or query.ndim != 3 or masked:
            raise NotApplicableError("attention with a mask or to other tokens is not between the patches of one image")
        projected = F.linear(query, in_proj_weight, in_proj_bias).transpose(0, 1)
        q, k, v = (part.unflatten(-1, (num_heads, -1)).transpose(1, 2) for part in projected.chunk(3, -1))
        mixed = self.attend(q, k, v, q.shape[-1] ** -0.5)
        return F.linear(mixed.transpose(1, 2).flatten(2).transpose(0, 1), out_proj_weight, out_proj_bias), None


_SIGNATURE = inspect.signature(F.multi_head_attention_forward)


def logits_and_attention(model: nn.Module, images: Tensor) -> tuple[Tensor, list[Tensor]]:
    """The logits, and the attention (N, heads, L, L) of every layer in the order they run; rows add up to 1."""
    layers: list[Tensor] = []

    def attend(query: Tensor, key: Tensor, value: Tensor, scale: float) -> Tensor:
        layers.append((query @ key.transpose(-2, -1) * scale).softmax(-1))
        return layers[-1] @ value

    with ReplacedAttention(attend):
        logits = model(images)
    if not layers or len({layer.shape[-2:] for layer in layers}) > 1 or layers[0].ndim != 4:
        raise NotApplicableError("this method needs attention between the same tokens in every layer, as in a ViT")
    return logits, layers


def patch_map(shares: Tensor, images: Tensor) -> Tensor:
    """What each token gets, (N, K, L), as maps (N, K, C, H, W); a token more than patches is the class's, left out."""
    grid, first = patch_grid(shares.shape[-1], images)
    coarse = shares[..., first:].unflatten(-1, grid)
    fine = F.interpolate(coarse, images.shape[2:], mode="bilinear", align_corners=False)
    return fine[:, :, None].expand(-1, -1, images.shape[1], -1, -1)


def patch_grid(tokens: int, images: Tensor) -> tuple[tuple[int, int], int]:
    """Rows and columns of the patches, and how many tokens come before them: none, or the class's."""
    height, width = images.shape[2:]
    for first in (0, 1):
        rows = round(((tokens - first) * height / width) ** 0.5)
        if rows and rows * rows * width == (tokens - first) * height:
            return (rows, (tokens - first) // rows), first
    raise NotApplicableError(f"{tokens} tokens cannot be laid out as an image of {height}×{width}")


def read_out(paths: Tensor, images: Tensor) -> Tensor:
    """From who draws how much from whom, (N, K, L, L), what the head sees: the class token's row, else the mean row."""
    _, first = patch_grid(paths.shape[-1], images)
    return paths[..., 0, :] if first else paths.mean(-2)


def attention_gradients(logits: Tensor, layers: list[Tensor], targets: Tensor) -> list[list[Tensor]]:
    """For each of K classes (N, K), the gradients of its logit with respect to every layer's attention."""
    return [
        list(torch.autograd.grad(logits.gather(1, classes[:, None]).sum(), layers, retain_graph=True))
        for classes in targets.unbind(1)
    ]
