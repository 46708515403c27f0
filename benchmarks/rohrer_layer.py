"""Rohrer's layer and pooling as published, from their formula, and a fairer port: the peers of the SCS benchmarks.

As published, the patch norm is a convolution of x² with an all-ones kernel over all channels, repeated to every output
channel; the pooling takes the maximum twice, of x and of -x. The port adds the channels of x² up first and pools them,
as the gallery's fifth version and other ports do; all else is the same.
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
        c = F.conv2d(x, weight, padding=self.padding) / self.norms(x)
        return c.sign() * (c.abs() + 1e-6) ** self.p

    def norms(self, x: Tensor) -> Tensor:
        """sqrt(Σ x² + eps) + q of every patch, once per output channel."""
        energy = F.conv2d(x.square(), torch.ones_like(self.weight[:1]), padding=self.padding)
        return ((energy + 1e-6).sqrt() + self.log_q.exp()).repeat_interleave(len(self.weight), dim=1)


class ChannelSumSCS(PublishedSCS):
    """The same with the patch norm of the channels' sum, by average pooling, broadcast over the output channels."""

    def norms(self, x: Tensor) -> Tensor:
        """sqrt(Σ x² + eps) + q of every patch."""
        side = self.weight.shape[-1]
        means = F.avg_pool2d(x.square().sum(1, keepdim=True), side, 1, self.padding)
        return (means * side**2 + 1e-6).sqrt() + self.log_q.exp()


class PublishedMaxAbsPool(nn.Module):
    """The larger of max(x) and max(-x), with its sign."""

    def forward(self, x: Tensor) -> Tensor:
        """(N, C, H, W) to (N, C, H/2, W/2), rounded up."""
        top, bottom = F.max_pool2d(x, 2, ceil_mode=True), F.max_pool2d(-x, 2, ceil_mode=True)
        return torch.where(top >= bottom, top, -bottom)


def published_rohrer(
    channels: tuple[int, int, int], features: int, layer: type[PublishedSCS] = PublishedSCS
) -> nn.Sequential:
    """Rohrer68K, 100K or 583K of the published parts, or of the port's."""
    first, second, third = channels
    return nn.Sequential(
        layer(3, first, 3, 0),
        PublishedMaxAbsPool(),
        layer(first, second, 3, 1),
        PublishedMaxAbsPool(),
        layer(second, third, 3, 1),
        PublishedMaxAbsPool(),
        nn.Flatten(),
        nn.Linear(features, 10),
    )
