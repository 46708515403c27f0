"""Rohrer's layer and pooling as published, from their formula: the peer of the SCS benchmarks.

The patch norm is a convolution of x² with an all-ones kernel over all channels, repeated to every output channel; the
pooling takes the maximum twice, of x and of -x.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class PublishedSCS(nn.Module):
    """sign(c) (|c| + eps)^p, c = conv(x, w/‖w‖) / (sqrt(ones * x² + eps) + q); parameters clamped in place."""

    def __init__(self, inputs: int, outputs: int, kernel: int, padding: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.rand(outputs, inputs, kernel, kernel) * 2 - 1)
        self.p = nn.Parameter(torch.rand(1, outputs, 1, 1) * 2 + 1)
        self.log_q = nn.Parameter(torch.full((1, 1, 1, 1), 1e-3).log())
        self.padding = padding

    def forward(self, x: Tensor) -> Tensor:
        """(N, C, H, W) to (N, O, h, w)."""
        self.weight.data.clamp_(-1, 1)
        self.p.data.clamp_(min=0.1)
        weight = self.weight / self.weight.square().sum((1, 2, 3), keepdim=True).sqrt()
        energy = F.conv2d(x.square(), torch.ones_like(weight[:1]), padding=self.padding)
        norm = (energy + 1e-6).sqrt() + self.log_q.exp()
        c = F.conv2d(x, weight, padding=self.padding) / norm.repeat_interleave(len(weight), dim=1)
        return c.sign() * (c.abs() + 1e-6) ** self.p


class PublishedMaxAbsPool(nn.Module):
    """The larger of max(x) and max(-x), with its sign."""

    def forward(self, x: Tensor) -> Tensor:
        """(N, C, H, W) to (N, C, H/2, W/2), rounded up."""
        top, bottom = F.max_pool2d(x, 2, ceil_mode=True), F.max_pool2d(-x, 2, ceil_mode=True)
        return torch.where(top >= bottom, top, -bottom)


def published_rohrer(channels: tuple[int, int, int], features: int) -> nn.Sequential:
    """Rohrer68K, 100K or 583K of the published parts."""
    first, second, third = channels
    return nn.Sequential(
        PublishedSCS(3, first, 3, 0),
        PublishedMaxAbsPool(),
        PublishedSCS(first, second, 3, 1),
        PublishedMaxAbsPool(),
        PublishedSCS(second, third, 3, 1),
        PublishedMaxAbsPool(),
        nn.Flatten(),
        nn.Linear(features, 10),
    )
