"""Vision transformers without class token, conventional or B-cos, with patches or a convolutional stem.

Source: Beyer et al. 2022 (simple ViT: averaged tokens, fixed positions); Xiao et al. 2021 (ViT_C: a stem of 3×3
convolutions, four of them halving the image, for one transformer layer); B-cos v2, section 3.3.3: queries, keys and
values stay linear, everything else becomes B-cos without activation. Parts are named as in the published weights.
"""

from collections import OrderedDict
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from scs_eval.errors import InputError
from scs_eval.models.architectures._imagenet import encoding
from scs_eval.models.conversion.transfer import transfer_weights
from scs_eval.models.layers import BcosConv2d, BcosLinear, LayerNorm, LogitLayer, SelfAttention
from scs_eval.models.layers.token_norm import TokenNorm
from scs_eval.models.zoo.names import Variant


class Shape(NamedTuple):
    """Features of a token, layers, heads, and the channels of the convolutional stem, if there is one."""

    width: int
    depth: int
    heads: int
    stem: tuple[int, ...] = ()


SHAPES = {
    "vit_ti": Shape(192, 12, 3),
    "vit_s": Shape(384, 12, 6),
    "vit_b": Shape(768, 12, 12),
    "vit_l": Shape(1024, 14, 16),
    "vitc_ti": Shape(192, 11, 3, (24, 48, 96, 192)),
    "vitc_s": Shape(384, 11, 6, (48, 96, 192, 384)),
    "vitc_b": Shape(768, 11, 12, (64, 128, 128, 256, 256, 512)),
    "vitc_l": Shape(1024, 13, 16, (64, 128, 128, 256, 256, 512)),
}
PATCH = 16  # pixels; the stem halves the image four times instead


class Kind:
    """The layers that a variant is made of: where a B-cos transformer and its twin differ."""

    def __init__(self, variant: Variant) -> None:
        self.bcos, self.b = variant.layer == "bcos", variant.b or 2.0

    def linear(self, inputs: int, outputs: int, *, bias: bool = True) -> nn.Module:
        """A linear layer; B-cos layers have no bias."""
        return BcosLinear(inputs, outputs, b=self.b) if self.bcos else nn.Linear(inputs, outputs, bias)

    def norm(self, width: int) -> nn.Module:
        """Per token."""
        return TokenNorm(width, centred=True) if self.bcos else nn.LayerNorm(width)

    def activation(self) -> nn.Module:
        """GELU, or nothing."""
        return nn.Identity() if self.bcos else nn.GELU()

    def stem(self, channels: tuple[int, ...]) -> nn.Sequential:
        """3×3 convolutions, each with its norm (per image) and activation; the image is halved where they widen."""
        parts: list[nn.Module] = []
        inputs = 6 if self.bcos else 3
        for outputs in channels:
            shape = (inputs, outputs, 3, 2 if outputs > inputs else 1, 1)
            parts += [
                BcosConv2d(*shape, b=self.b) if self.bcos else nn.Conv2d(*shape),
                LayerNorm(outputs, centred=True) if self.bcos else nn.GroupNorm(1, outputs),
                self.activation(),
            ]
            inputs = outputs
        return nn.Sequential(*parts)


class Patches(nn.Module):
    """Cut an image into squares, the features of each in the order row, column, channel."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size = size

    def forward(self, x: Tensor) -> Tensor:
        """(N, C, H, W) to (N, h, w, size²·C)."""
        if x.shape[2] % self.size or x.shape[3] % self.size:
            raise InputError(f"expected height and width divisible by {self.size}, got {tuple(x.shape[2:])}; resize")
        tiles = x.unflatten(3, (-1, self.size)).unflatten(2, (-1, self.size))
        return tiles.permute(0, 2, 4, 3, 5, 1).flatten(3)


class Constant(nn.Module):
    """A one per image, which positions are the weights of: so that what they add to a logit is counted as a bias."""

    def forward(self, x: Tensor) -> Tensor:
        """(N, …) to (N, 1)."""
        return x.new_ones(len(x), 1)

    def additive_bias(self) -> Tensor:
        """Its output, none of which comes from the image."""
        return torch.ones(1)


def positions(grid: tuple[int, int], width: int, device: torch.device) -> Tensor:
    """(h·w, width): sine and cosine of the column, then of the row, at width/4 frequencies from 1 to 1/10000."""
    count = width // 4
    frequencies = 1 / 10_000 ** (torch.arange(count, device=device, dtype=torch.float32) / (count - 1))
    rows, columns = (torch.arange(side, device=device)[:, None] * frequencies for side in grid)
    columns, rows = columns.repeat(grid[0], 1), rows.repeat_interleave(grid[1], 0)
    return torch.cat([columns.sin(), columns.cos(), rows.sin(), rows.cos()], 1)


class Attention(SelfAttention):
    """Self-attention between normalised tokens."""

    def __init__(self, kind: Kind, width: int, heads: int) -> None:
        projection = kind.linear(width, width, bias=False)
        super().__init__(width, heads, head_width=width // heads, projection=projection)
        self.norm = kind.norm(width)

    def _by_head(self, x: Tensor) -> list[Tensor]:
        return super()._by_head(self.norm(x))


class Encoder(nn.Module):
    """One layer of the transformer: attention, then a two-layer network per token, each added to what it was given."""

    def __init__(self, kind: Kind, width: int, heads: int) -> None:
        super().__init__()
        self.attn = Attention(kind, width, heads)
        mlp = {"norm": kind.norm(width), "linear1": kind.linear(width, 4 * width), "act": kind.activation()}
        mlp["linear2"] = kind.linear(4 * width, width)
        self.ff = nn.Sequential(OrderedDict(net=nn.Sequential(OrderedDict(mlp))))

    def forward(self, x: Tensor) -> Tensor:
        """Tokens (N, L, C), same shape out."""
        x = x + self.attn(x)
        return x + self.ff(x)


class ViT(nn.Module):
    """Embedded patches with positions, transformer, average over tokens, head; takes RGB in [0, 1], sides 16·n."""

    def __init__(self, variant: Variant, num_classes: int) -> None:
        super().__init__()
        kind, shape = Kind(variant), SHAPES[variant.architecture]
        self.encode = encoding(variant)
        self.to_patch_embedding = nn.Sequential(_embedding(kind, shape))
        self.positions = Constant()
        layers = {f"encoder_{i}": Encoder(kind, shape.width, shape.heads) for i in range(shape.depth)}
        self.transformer = nn.Sequential(OrderedDict(layers))
        head = {"norm": kind.norm(shape.width), "linear": kind.linear(shape.width, num_classes)}
        self.linear_head = nn.Sequential(OrderedDict(head))
        self.logits = LogitLayer(num_classes) if kind.bcos else nn.Identity()
        self.register_load_state_dict_pre_hook(accept_published_keys)

    def forward(self, x: Tensor) -> Tensor:
        """(N, 3, H, W) to logits (N, classes)."""
        x = self.to_patch_embedding(self.encode(x))
        where = positions((x.shape[1], x.shape[2]), x.shape[3], x.device).to(x.dtype)
        tokens = x.flatten(1, 2) + self.positions(x)[..., None] * where
        return self.logits(self.linear_head(self.transformer(tokens).mean(1)))


def _embedding(kind: Kind, shape: Shape) -> "OrderedDict[str, nn.Module]":
    if shape.stem:
        return OrderedDict(
            conv_stem=kind.stem(shape.stem), patches=Patches(1), linear=kind.linear(shape.stem[-1], shape.width)
        )
    features = PATCH**2 * (6 if kind.bcos else 3)
    return OrderedDict(patches=Patches(PATCH), linear=kind.linear(features, shape.width))


def accept_published_keys(module: nn.Module, state: dict[str, Tensor], prefix: str, *_: Any) -> None:
    """The published B-cos transformers are the first of two modules: take the `0.` off before loading."""
    for key in [key for key in state if key.startswith(f"{prefix}0.")]:
        state[prefix + key[len(prefix) + 2 :]] = state.pop(key)


def build(variant: Variant, num_classes: int) -> nn.Module:
    """The network; a B-cos one starts from the weights of its twin, with [w, -w]/2 for a w that embeds RGB patches."""
    model = twin = ViT(Variant(variant.architecture, "conv"), num_classes)
    if variant.layer == "bcos":
        model = ViT(variant, num_classes)
        start = twin.state_dict()
        if not SHAPES[variant.architecture].stem:
            rgb = start["to_patch_embedding.linear.weight"].unflatten(1, (-1, 3))
            start["to_patch_embedding.linear.weight"] = torch.cat([rgb, -rgb], 2).flatten(1) / 2
        transfer_weights(start, model)
    return model
