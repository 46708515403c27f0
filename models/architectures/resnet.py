"""torchvision's ResNets and ResNeXt-50 with their convolutions, activations, stem pooling and normalisation swapped.

Source: Wu et al. 2023, sections 3.1 and A.1 (ResNet-18 on CIFAR-10; Tables 2 and 8); the B-cos form follows B-cos v2,
section 3.3: no bias, uncentred BatchNorm, a 1×1 B-cos classifier before the global pooling.
"""

from typing import Any

from torch import Tensor, nn
from torchvision.models import resnet

from scs_eval.models.architectures._blocks import POOLS, convolution
from scs_eval.models.architectures._imagenet import encoding
from scs_eval.models.conversion.swap import SwapRule, swap_layers
from scs_eval.models.conversion.transfer import transfer_weights
from scs_eval.models.layers import BatchNorm, BcosConv2d, LogitLayer
from scs_eval.models.zoo.names import Variant

SHAPES: dict[str, dict[str, Any]] = {
    "resnet18": {"block": resnet.BasicBlock, "layers": [2, 2, 2, 2]},
    "resnet34": {"block": resnet.BasicBlock, "layers": [3, 4, 6, 3]},
    "resnet50": {"block": resnet.Bottleneck, "layers": [3, 4, 6, 3]},
    "resnet101": {"block": resnet.Bottleneck, "layers": [3, 4, 23, 3]},
    "resnet152": {"block": resnet.Bottleneck, "layers": [3, 8, 36, 3]},
    "resnext50_32x4d": {"block": resnet.Bottleneck, "layers": [3, 4, 6, 3], "groups": 32, "width_per_group": 4},
}


class ResNet(resnet.ResNet):
    """A ResNet of one variant; takes RGB in [0, 1], any size."""

    def __init__(self, variant: Variant, num_classes: int) -> None:
        shape = variant.architecture.removesuffix("_224")
        super().__init__(num_classes=num_classes, **SHAPES[shape])
        start = self.state_dict()  # torchvision's initial weights, which every variant starts from
        self.bcos = variant.layer == "bcos"
        features = 512 * SHAPES[shape]["block"].expansion
        swap_layers(self, _rules(variant))
        if self.bcos:
            self.fc: nn.Module = BcosConv2d(features, num_classes, 1, b=variant.b or 2.0)
        # The SCS paper's ResNet-18 sees pixels as they are, whatever its layers.
        self.encode = nn.Identity() if shape == "resnet18" and not self.bcos else encoding(variant)
        self.logits = LogitLayer(num_classes) if self.bcos else nn.Identity()
        transfer_weights(start, self)

    def forward(self, x: Tensor) -> Tensor:
        """(N, 3, H, W) to logits (N, classes)."""
        x = self.maxpool(self.relu(self.bn1(self.conv1(self.encode(x)))))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        if self.bcos:
            return self.logits(self.avgpool(self.fc(x)).flatten(1))
        return self.fc(self.avgpool(x).flatten(1))


def _rules(variant: Variant) -> list[SwapRule]:
    return [
        SwapRule((nn.Conv2d,), lambda conv: _convolution(conv, variant)),
        # Not in place: the layers before it keep their output for the backward pass.
        SwapRule((nn.ReLU,), lambda _: nn.ReLU() if variant.activation == "relu" else nn.Identity()),
        SwapRule((nn.BatchNorm2d,), lambda norm: _norm(norm, variant)),
        SwapRule((nn.MaxPool2d,), lambda _: _pool(variant)),
    ]


def _norm(norm: nn.BatchNorm2d, variant: Variant) -> nn.Module | None:
    if variant.norm == "nobn":
        return nn.Identity()
    return BatchNorm(norm.num_features) if variant.norm == "bnu" else None


def _pool(variant: Variant) -> nn.Module:
    return nn.AvgPool2d(3, 2, 1) if variant.pooling == "avgpool" else POOLS[variant.pooling or "maxpool"](3, 2, 1)


def _convolution(conv: nn.Conv2d, variant: Variant) -> nn.Module:
    inputs = 6 if variant.layer == "bcos" and conv.in_channels == 3 else conv.in_channels
    geometry = {"stride": conv.stride, "padding": conv.padding, "groups": conv.groups}
    block = convolution(variant, inputs, conv.out_channels, conv.kernel_size, **geometry)  # type: ignore[arg-type]
    return block.layer  # type: ignore[return-value]


def build(variant: Variant, num_classes: int) -> nn.Module:
    """The network, its kernels starting where torchvision's own do."""
    return ResNet(variant, num_classes)
