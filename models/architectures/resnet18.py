"""torchvision's ResNet-18 with its convolutions, activations, stem pooling and normalisation swapped.

Source: Wu et al. 2023, sections 3.1 and A.1 (Tables 2 and 8); the B-cos form follows B-cos v2, section 3.3: no bias,
uncentred BatchNorm, a 1×1 B-cos classifier before the global pooling.
"""

from collections.abc import Callable

from torch import Tensor, nn
from torchvision.models.resnet import BasicBlock, ResNet

from scs_eval.models.architectures.blocks import POOLS, convolution
from scs_eval.models.layers import AddInverse, BatchNorm, BcosConv2d, LogitLayer
from scs_eval.models.names import Variant
from scs_eval.models.transplant import transplant


class ResNet18(ResNet):
    """ResNet-18 of one variant; takes RGB in [0, 1], any size."""

    def __init__(self, variant: Variant, num_classes: int) -> None:
        super().__init__(BasicBlock, [2, 2, 2, 2], num_classes)
        start = self.state_dict()  # torchvision's initial weights, which every variant starts from
        self.bcos = variant.layer == "bcos"
        replace_modules(self, lambda module: _replacement(module, variant))
        if self.bcos:
            self.fc: nn.Module = BcosConv2d(512, num_classes, 1, b=variant.b or 2.0)
        self.encode = AddInverse() if self.bcos else nn.Identity()
        self.logits = LogitLayer(num_classes) if self.bcos else nn.Identity()
        transplant(start, self)

    def forward(self, x: Tensor) -> Tensor:
        """(N, 3, H, W) to logits (N, classes)."""
        x = self.maxpool(self.relu(self.bn1(self.conv1(self.encode(x)))))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        if self.bcos:
            return self.logits(self.avgpool(self.fc(x)).flatten(1))
        return self.fc(self.avgpool(x).flatten(1))


def _replacement(module: nn.Module, variant: Variant) -> nn.Module | None:
    if isinstance(module, nn.Conv2d):
        return _convolution(module, variant)
    if isinstance(module, nn.ReLU):  # not in place: the layers before it keep their output for the backward pass
        return nn.ReLU() if variant.activation == "relu" else nn.Identity()
    if isinstance(module, nn.BatchNorm2d):
        norms = {"bn": module, "bnu": BatchNorm(module.num_features), "nobn": nn.Identity()}
        return norms[variant.norm or "bn"]
    if isinstance(module, nn.MaxPool2d):
        return nn.AvgPool2d(3, 2, 1) if variant.pooling == "avgpool" else POOLS[variant.pooling or "maxpool"](3, 2, 1)
    return None


def _convolution(conv: nn.Conv2d, variant: Variant) -> nn.Module:
    inputs = 6 if variant.layer == "bcos" and conv.in_channels == 3 else conv.in_channels
    place = {"stride": conv.stride, "padding": conv.padding}
    block = convolution(variant, inputs, conv.out_channels, conv.kernel_size, **place)  # type: ignore[arg-type]
    return block.layer  # type: ignore[return-value]


def replace_modules(root: nn.Module, rule: Callable[[nn.Module], nn.Module | None]) -> None:
    """Put `rule(module)` in the place of every descendant for which it is not None."""
    for name, child in root.named_children():
        new = rule(child)
        if new is None:
            replace_modules(child, rule)
        else:
            setattr(root, name, new)


def build(variant: Variant, num_classes: int) -> nn.Module:
    """The network, its kernels starting where torchvision's own do."""
    return ResNet18(variant, num_classes)
