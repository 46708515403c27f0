"""He et al.'s ResNet-20/32/44/56 for CIFAR-10, with convolutions, SCS or B-cos layers.

Source: He et al. 2016, section 4.2, as Idelbayev builds it (identity shortcuts, padded with zeros where the width
grows): the network of the SCS paper's weight-norm study. The B-cos form follows the published package: MaxOut of two,
1×1 B-cos shortcuts, a 1×1 B-cos classifier before the global pooling, and any normalisation of the B-cos paper.
"""

from dataclasses import replace

import torch.nn.functional as F
from torch import Tensor, nn

from scs_eval.models.architectures._blocks import convolution, quick_layout
from scs_eval.models.conversion.transfer import transfer_weights
from scs_eval.models.layers import (
    AddInverse,
    AllNorm,
    BatchNorm,
    BcosConv2d,
    GroupNorm,
    InstanceNorm,
    LayerNorm,
    LogitLayer,
    PositionNorm,
)
from scs_eval.models.zoo.names import Variant

WIDTHS = (16, 32, 64)
GROUPS = 2  # of the paper's group norm
BCOS_NORMS = {"b": BatchNorm, "l": LayerNorm, "i": InstanceNorm, "p": PositionNorm, "a": AllNorm}


def normalisation(variant: Variant, channels: int) -> nn.Module:
    """The variant's norm: two letters for centred, a third, u, for uncentred.

    In B-cos networks it has a bias only if the name says so (`bnbias`).
    """
    name = variant.norm or "nobn"
    if name == "nobn":
        return nn.Identity()
    if variant.layer != "bcos":
        return nn.BatchNorm2d(channels)
    options = {"centred": not name.removesuffix("bias").endswith("u"), "bias": name.endswith("bias")}
    if name.startswith("g"):
        return GroupNorm(GROUPS, channels, **options)
    return BCOS_NORMS[name[0]](channels, **options)


def layer(variant: Variant, inputs: int, outputs: int, kernel: int, stride: int = 1) -> nn.Module:
    """A convolution of the variant's kind, padded to keep the size."""
    if variant.layer == "bcos":
        units = 2 if variant.units == "maxout" else 1
        return BcosConv2d(inputs, outputs, kernel, stride, kernel // 2, b=variant.b or 2.0, max_out=units)
    block = convolution(variant, inputs, outputs, kernel, stride=stride, padding=kernel // 2)
    return block.layer  # type: ignore[return-value]


class PaddedShortcut(nn.Module):
    """Every second pixel, and zeros for the channels that are new."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.extra = (outputs - inputs) // 2

    def forward(self, x: Tensor) -> Tensor:
        """(N, C, H, W) to (N, C + 2·extra, H/2, W/2)."""
        return F.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, self.extra, self.extra))


class Block(nn.Module):
    """Two convolutions and a shortcut."""

    def __init__(self, variant: Variant, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = layer(variant, inputs, outputs, 3, stride)
        self.bn1 = normalisation(variant, outputs)
        self.conv2 = layer(variant, outputs, outputs, 3)
        self.bn2 = normalisation(variant, outputs)
        self.activation = nn.ReLU() if variant.activation == "relu" else nn.Identity()
        self.downsample = _shortcut(variant, inputs, outputs, stride)

    def forward(self, x: Tensor) -> Tensor:
        """(N, C, H, W) to (N, O, h, w)."""
        y = self.activation(self.bn1(self.conv1(x)))
        return self.activation(self.bn2(self.conv2(y)) + self.downsample(x))


def _shortcut(variant: Variant, inputs: int, outputs: int, stride: int) -> nn.Module:
    if stride == 1 and inputs == outputs:
        return nn.Identity()
    if variant.layer == "bcos":
        return nn.Sequential(layer(variant, inputs, outputs, 1, stride), normalisation(variant, outputs))
    return PaddedShortcut(inputs, outputs)


class CifarResNet(nn.Module):
    """Stem, three stages, head; takes RGB in [0, 1], any size."""

    def __init__(self, variant: Variant, num_classes: int) -> None:
        super().__init__()
        self.bcos = variant.layer == "bcos"
        depth = (int(variant.architecture.removeprefix("resnet")) - 2) // 6
        self.encode = AddInverse() if self.bcos else nn.Identity()
        self.conv1 = layer(variant, 6 if self.bcos else 3, WIDTHS[0], 3)
        self.bn1 = normalisation(variant, WIDTHS[0])
        self.activation = nn.ReLU() if variant.activation == "relu" else nn.Identity()
        self.layer1 = _stage(variant, WIDTHS[0], WIDTHS[0], depth, 1)
        self.layer2 = _stage(variant, WIDTHS[0], WIDTHS[1], depth, 2)
        self.layer3 = _stage(variant, WIDTHS[1], WIDTHS[2], depth, 2)
        self.fc = layer(variant, WIDTHS[2], num_classes, 1) if self.bcos else nn.Linear(WIDTHS[2], num_classes)
        self.logits = LogitLayer(num_classes) if self.bcos else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        """(N, 3, H, W) to logits (N, classes)."""
        x = self.activation(self.bn1(self.conv1(self.encode(quick_layout(x)))))
        x = self.layer3(self.layer2(self.layer1(x)))
        return self.logits(self.fc(x).mean((2, 3))) if self.bcos else self.fc(x.mean((2, 3)))


def _stage(variant: Variant, inputs: int, outputs: int, depth: int, stride: int) -> nn.Sequential:
    first = Block(variant, inputs, outputs, stride)
    return nn.Sequential(first, *(Block(variant, outputs, outputs, 1) for _ in range(depth - 1)))


def build(variant: Variant, num_classes: int) -> nn.Module:
    """The network, its kernels starting where those of its convolution twin do (He initialisation)."""
    twin = CifarResNet(replace(variant, layer="conv", norm="bn", activation="relu"), num_classes)
    for module in twin.modules():
        if isinstance(module, nn.Conv2d | nn.Linear):
            nn.init.kaiming_normal_(module.weight)
    model = CifarResNet(variant, num_classes)
    transfer_weights(twin.state_dict(), model)
    return model
