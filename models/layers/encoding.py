"""What stands between pixels in [0, 1] and a network's first layer, and between its last layer and the logits."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn


class AddInverse(nn.Module):
    """[r, g, b] to [r, g, b, 1-r, 1-g, 1-b]: dark pixels count as much as bright ones (B-cos v2, D.2)."""

    def forward(self, x: Tensor) -> Tensor:
        """(N, 3, H, W) to (N, 6, H, W)."""
        return torch.cat([x, 1 - x], dim=1)


class Normalize(nn.Module):
    """(x - mean)/std per channel, inside the model, so that images stay in [0, 1] outside it."""

    mean: Tensor
    std: Tensor

    def __init__(self, mean: Sequence[float], std: Sequence[float]) -> None:
        super().__init__()
        if len(mean) != len(std) or min(std) <= 0:
            raise ValueError(f"expected as many positive deviations as means, got mean {mean} and std {std}")
        self.register_buffer("mean", torch.tensor(mean).view(1, -1, 1, 1), persistent=False)
        self.register_buffer("std", torch.tensor(std).view(1, -1, 1, 1), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """(N, C, H, W), same shape out."""
        return (x - self.mean) / self.std

    def additive_bias(self) -> Tensor:
        """What the layer adds per channel."""
        return (-self.mean / self.std).flatten()

    def extra_repr(self) -> str:
        """Both statistics."""
        return f"mean={self.mean.flatten().tolist()}, std={self.std.flatten().tolist()}"


class FadingNormalize(Normalize):
    """(x - share · mean)/std: what it adds goes while a network that needed it is fine-tuned to need it no more."""

    share = 1.0

    def forward(self, x: Tensor) -> Tensor:
        """(N, C, H, W), same shape out."""
        return (x - self.share * self.mean) / self.std

    def additive_bias(self) -> Tensor:
        """What the layer adds per channel."""
        return self.share * super().additive_bias()


class LogitLayer(nn.Module):
    """Logits y = x/T + b; by default b = log(1/(C-1)), with which a silent network gives every class 1/C (Eq. 17)."""

    def __init__(self, num_classes: int, *, temperature: float = 1.0, bias: float | None = None) -> None:
        super().__init__()
        if num_classes < 2 and bias is None:
            raise ValueError(f"expected at least 2 classes for the default bias, got {num_classes}")
        self.num_classes, self.temperature = num_classes, temperature
        self.bias = -math.log(num_classes - 1) if bias is None else bias

    def forward(self, x: Tensor) -> Tensor:
        """(N, C), same shape out."""
        return x / self.temperature + self.bias

    def additive_bias(self) -> Tensor:
        """What the layer adds per class."""
        return torch.full((self.num_classes,), self.bias, dtype=torch.float64)

    def extra_repr(self) -> str:
        """Temperature and bias."""
        return f"temperature={self.temperature:g}, bias={self.bias:.4g}"
