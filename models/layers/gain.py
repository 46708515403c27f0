"""A factor for each channel, and a constant: the length that normalised kernels lack."""

import torch
from torch import Tensor, nn


class ChannelGain(nn.Module):
    """y = g x + b per channel, with b only if `bias`; linear, so W(x) holds it whole."""

    def __init__(self, channels: int, *, bias: bool = False) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(channels))
        self.bias = nn.Parameter(torch.zeros(channels)) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        """(N, C, H, W), same shape out."""
        y = x * self.weight.view(-1, 1, 1)
        return y if self.bias is None else y + self.bias.view(-1, 1, 1)

    def additive_bias(self) -> Tensor | None:
        """What the layer adds per channel."""
        return None if self.bias is None else self.bias.detach()

    def extra_repr(self) -> str:
        """Channels and bias."""
        return f"{len(self.weight)}, bias={self.bias is not None}"
