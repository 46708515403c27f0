"""torchvision's VGG-11 with BatchNorm, and its B-cos form.

Source: Simonyan and Zisserman 2015; B-cos v2, sections 3.3 and 4. The B-cos form pools by averaging, and its head
of three layers is convolutional: the first sees 7×7 pixels of the features, padded, where VGG's sees all at once.
"""

from functools import partial

from torch import nn
from torchvision.models import vgg

from scs_eval.models.architectures.imagenet import ImageNetForm
from scs_eval.models.architectures.swap import bcos_form, become_bcos, without
from scs_eval.models.layers import BcosConv2d
from scs_eval.models.names import Variant


class VGG(ImageNetForm, vgg.VGG):
    """VGG-11; takes RGB in [0, 1], any size from 32×32 on."""

    classifier: nn.Sequential

    def __init__(self, variant: Variant, num_classes: int) -> None:
        super().__init__(vgg.make_layers(vgg.cfgs["A"], batch_norm=True), num_classes=num_classes)
        if variant.layer == "bcos":
            self.features = without(self.features, nn.ReLU)
            self.classifier = without(self.classifier, nn.ReLU, nn.Dropout)
            become_bcos(self, partial(_bcos_form, b=variant.b or 2.0))
        self.surround(variant, num_classes)


def _bcos_form(module: nn.Module, *, b: float) -> nn.Module | None:
    if isinstance(module, nn.Linear) and module.in_features == 512 * 7 * 7:
        return BcosConv2d(512, module.out_features, 7, padding=3, b=b)
    return bcos_form(module, b=b)


def build(variant: Variant, num_classes: int) -> nn.Module:
    """The network, its kernels starting where torchvision's own do."""
    return VGG(variant, num_classes)
