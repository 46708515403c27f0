"""The B-cos paper's nine-layer CIFAR-10 network (section 4 and C.1.1): B-cos convolutions and nothing else.

The network is positively homogeneous, so its γ and T act only through the one product γ⁹/T. The values printed in the
paper put the untrained logits at about 10⁷ for B = 1; those of the published configuration start near 1 and are used.
"""

import math
from dataclasses import replace
from typing import Any

from torch import Tensor, nn

from scs_eval.models.architectures._blocks import quick_layout
from scs_eval.models.conversion.transfer import transfer_weights
from scs_eval.models.layers import AddInverse, BcosConv2d, LogitLayer
from scs_eval.models.zoo.names import Variant

CHANNELS = (64, 64, 128, 128, 128, 256, 256, 256)
STRIDES = (1, 1, 2, 1, 1, 2, 1, 1)
TEMPERATURES = {1.0: 1e-3, 1.25: 1e-3, 1.5: 1e-2, 1.75: 1e1, 2.0: 1e2, 2.25: 1e2, 2.5: 1e3}


def gamma(b: float) -> float:
    """Fixed factor on every layer's output: 10^(1.5 B - 1.75)."""
    return 10 ** (1.5 * b - 1.75)


def temperature(b: float) -> float:
    """T of the published configuration; between its values of B, interpolated on a logarithmic scale."""
    known = sorted(TEMPERATURES)
    low = max((k for k in known if k <= b), default=known[0])
    high = min((k for k in known if k >= b), default=known[-1])
    if low == high:
        return TEMPERATURES[low]
    share = (b - low) / (high - low)
    return 10 ** ((1 - share) * math.log10(TEMPERATURES[low]) + share * math.log10(TEMPERATURES[high]))


class BcosCNN9(nn.Module):
    """Eight 3×3 B-cos convolutions, a 1×1 B-cos classifier, global average pooling; takes RGB in [0, 1], any size."""

    def __init__(self, variant: Variant, num_classes: int) -> None:
        super().__init__()
        b = variant.b or 2.0
        options: dict[str, Any] = {"b": b, "max_out": 2 if variant.units == "maxout" else 1, "scale": gamma(b)}
        self.encode = AddInverse()
        widths = [max(1, round(channels * (variant.width or 1.0))) for channels in CHANNELS]
        self.layers = nn.Sequential(
            *(
                BcosConv2d(inputs, outputs, 3, stride, 1, **options)
                for inputs, outputs, stride in zip([6, *widths], widths, STRIDES, strict=False)
            )
        )
        self.head = BcosConv2d(widths[-1], num_classes, 1, **options)
        # A narrower layer's cosines are larger, by width^(-(B-1)/2) in each of the eight: T takes that back.
        narrow = (variant.width or 1.0) ** (-4 * (b - 1))
        self.logits = LogitLayer(num_classes, temperature=temperature(b) * narrow)

    def forward(self, x: Tensor) -> Tensor:
        """(N, 3, H, W) to logits (N, classes)."""
        return self.logits(self.head(self.layers(self.encode(quick_layout(x)))).mean((2, 3)))


def build(variant: Variant, num_classes: int) -> nn.Module:
    """The network; its kernels start where those of its plain twin do, which are torch's for a convolution."""
    twin = BcosCNN9(replace(variant, units="plain"), num_classes)
    model = BcosCNN9(variant, num_classes)
    transfer_weights(twin.state_dict(), model)
    return model
