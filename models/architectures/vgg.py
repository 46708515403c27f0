"""torchvision's VGG-11 with BatchNorm, and its B-cos form.

Source: Simonyan and Zisserman 2015; B-cos v2, sections 3.3 and 4. The B-cos form pools by averaging, and its head
of three layers is convolutional: the first sees 7×7 pixels of the features, padded, where VGG's sees all at once.
"""

from torch import nn
from torchvision.models import vgg

from scs_eval.models.architectures._bcos_rules import bcos_rules, become_bcos, without
from scs_eval.models.architectures._imagenet import ImageNetForm
from scs_eval.models.conversion.swap import Kinds, SwapRule
from scs_eval.models.layers import BcosConv2d
from scs_eval.models.zoo.names import Variant


class VGG(ImageNetForm, vgg.VGG):
    """VGG-11; takes RGB in [0, 1], any size from 32×32 on."""

    classifier: nn.Sequential

    def __init__(self, variant: Variant, num_classes: int) -> None:
        super().__init__(vgg.make_layers(vgg.cfgs["A"], batch_norm=True), num_classes=num_classes)
        if variant.layer == "bcos":
            self.features = without(self.features, nn.ReLU)
            self.classifier = without(self.classifier, nn.ReLU, nn.Dropout)
            become_bcos(self, _bcos_rules(variant.b or 2.0))
        self.surround(variant, num_classes)


def _bcos_rules(b: float) -> list[SwapRule]:
    first = SwapRule((nn.Linear,), lambda linear: BcosConv2d(512, linear.out_features, 7, padding=3, b=b), _sees_all)
    return [first, *bcos_rules(b=b)]


def _sees_all(module: nn.Module, kinds: Kinds) -> bool:
    return isinstance(module, kinds) and getattr(module, "in_features", 0) == 512 * 7 * 7


def build(variant: Variant, num_classes: int) -> nn.Module:
    """The network, its kernels starting where torchvision's own do."""
    return VGG(variant, num_classes)
