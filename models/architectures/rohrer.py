"""The five gallery networks of the SCS paper: three or four sharpened layers with pooling, and a linear head.

Source: Rohrer's scs-gallery; Wu et al. 2023, section 3.1. The names follow the counts the gallery prints, two of which
forget a factor in the head.
"""

from dataclasses import replace
from typing import NamedTuple

from torch import Tensor, nn

from scs_eval.models.architectures._blocks import POOLS, convolution, quick_layout
from scs_eval.models.conversion.transfer import transfer_weights
from scs_eval.models.layers import AddInverse, BcosLinear, LogitLayer
from scs_eval.models.zoo.names import Variant


class Stage(NamedTuple):
    """A layer: output channels, kernel, padding, pooling window (0 for none), depthwise or not."""

    channels: int
    kernel: int
    padding: int
    pool: int
    depthwise: bool = False


def _three(first: int) -> tuple[Stage, ...]:
    return Stage(first, 3, 0, 2), Stage(2 * first, 3, 1, 2), Stage(4 * first, 3, 1, 2)


STAGES: dict[str, tuple[Stage, ...]] = {
    "rohrer25k": (Stage(80, 5, 0, 2), Stage(80, 3, 0, 0, depthwise=True), Stage(40, 1, 0, 2), Stage(40, 3, 0, 4)),
    "rohrer47k": (Stage(30, 5, 0, 2), Stage(30, 5, 1, 2), Stage(30, 5, 1, 4)),
    "rohrer68k": _three(24),
    "rohrer100k": _three(32),
    "rohrer583k": _three(80),
}
FEATURES = {"rohrer25k": 40, "rohrer47k": 30, "rohrer68k": 1536, "rohrer100k": 2048, "rohrer583k": 5120}


class Rohrer(nn.Module):
    """Stages, flatten, head; takes RGB in [0, 1], 32×32."""

    def __init__(self, variant: Variant, num_classes: int) -> None:
        super().__init__()
        bcos = variant.layer == "bcos"
        self.encode = AddInverse() if bcos else nn.Identity()
        self.stages = nn.Sequential(*_stages(variant, 6 if bcos else 3))
        features = FEATURES[variant.architecture]
        self.head = BcosLinear(features, num_classes, b=variant.b or 2.0) if bcos else nn.Linear(features, num_classes)
        self.logits = LogitLayer(num_classes, temperature=_temperature(variant)) if bcos else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        """(N, 3, 32, 32) to logits (N, classes)."""
        return self.logits(self.head(self.stages(self.encode(quick_layout(x))).flatten(1)))


def _temperature(variant: Variant) -> float:
    """Undoes that each of (mostly) four B-cos layers shrinks its input by about 10^(B-1) before it is trained.

    The logits then start near ±0.1. With T = 1 they start at 1e-5, and at B = 2 three epochs on a fifth of CIFAR-10
    gave 45 % instead of 58 %.
    """
    return 10 ** (-4 * ((variant.b or 2.0) - 1))


def _stages(variant: Variant, inputs: int) -> list[nn.Module]:
    layers = []
    for stage in STAGES[variant.architecture]:
        pool = POOLS[variant.pooling or "maxpool"](stage.pool, ceil_mode=True) if stage.pool else None
        groups = inputs if stage.depthwise else 1
        layers.append(
            convolution(
                variant,
                inputs,
                stage.channels,
                stage.kernel,
                padding=stage.padding,
                groups=groups,
                relu=variant.activation == "relu",
                pool=pool,
            )
        )
        inputs = stage.channels
    return layers


def build(variant: Variant, num_classes: int) -> nn.Module:
    """The network, its kernels and head starting where those of its convolution twin do."""
    twin = Rohrer(replace(variant, layer="conv"), num_classes)
    model = Rohrer(variant, num_classes)
    transfer_weights(twin.state_dict(), model)
    return model
