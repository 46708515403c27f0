"""What one layer does while a converted network becomes one of its new kind: its size is kept, p and q move."""

from typing import Protocol

import torch
from torch import Tensor

from scs_eval.models.layers import BcosConv2d, BcosLinear, ChannelGain, SCS2d
from scs_eval.models.layers.convolution import convolve, patch_energy, prepare, unit_kernels
from scs_eval.models.layers.scs import Q


class Path(Protocol):
    """A layer's way from share 0 to share 1."""

    def move(self, before: float, now: float) -> None:
        """Go from one share of the way to another; what is learned besides stays."""


class BcosPath:
    """The length of the kernels makes up for |cos|^(B-1), so that outputs keep their size."""

    def __init__(self, layer: BcosConv2d | BcosLinear, x: Tensor, *, b: float) -> None:
        self.weight = layer.weight
        first, last = (_output_size(layer, x, at) for at in (1.0, b))
        self.shrinking = float(last / first) if first > 0 else 1.0

    def move(self, before: float, now: float) -> None:
        """From one share of the way to another."""
        self.weight.mul_(self.shrinking ** (before - now))


class ScsPath:
    """p rises, q falls, and the gain makes up for what both do to the size of the output.

    q is such that ‖patch‖ / (‖patch‖ + q) of the usual patch grows in proportion to the way.
    """

    def __init__(self, layer: SCS2d, gain: ChannelGain, x: Tensor, *, p: float) -> None:
        self.layer, self.gain, self.p = layer, gain, p
        self.norm, self.cosine = _usual(layer, x)
        self.first, self.last = (self.norm / (self.norm + q) for q in (layer.log_q.exp().item(), Q))

    def move(self, before: float, now: float) -> None:
        """From one share of the way to another."""
        self.layer.p.add_((self.p - 1) * (now - before))
        self.layer.log_q.add_(torch.tensor(self._q(now) / self._q(before)).log())
        self.gain.weight.mul_(self._size(before) / self._size(now))

    def _normalised(self, share: float) -> float:
        return self.first + share * (self.last - self.first)

    def _q(self, share: float) -> float:
        return self.norm * (1 / self._normalised(share) - 1)

    def _size(self, share: float) -> float:
        return float((self.cosine * self._normalised(share)) ** (1 + share * (self.p - 1)))


@torch.no_grad()
def _output_size(layer: BcosConv2d | BcosLinear, x: Tensor, b: float) -> Tensor:
    """The root mean square of what the layer would give with this B."""
    own, layer.b = layer.b, b
    try:
        y = layer(x)
        y = y if layer.bias is None else y - (layer.bias.view(-1, 1, 1) if y.ndim == 4 else layer.bias)
        return y.square().mean().sqrt()
    finally:
        layer.b = own


@torch.no_grad()
def _usual(layer: SCS2d, x: Tensor) -> tuple[float, float]:
    """The root mean squares of the norms of patches, and of the cosines between patches and kernels."""
    x, at = prepare(x, layer)
    energy = patch_energy(x, at).mean()
    products = convolve(x, unit_kernels(layer.weight), at).square().mean()
    return energy.sqrt().item(), (products / energy).sqrt().item()
