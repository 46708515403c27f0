"""torchvision's DenseNets and their B-cos form (Huang et al. 2017; B-cos v2, sections 3.3 and 4)."""

from torch import nn
from torchvision.models import densenet

from scs_eval.models.architectures._bcos_rules import bcos_rules, become_bcos
from scs_eval.models.architectures._imagenet import ImageNetForm
from scs_eval.models.zoo.names import Variant

SHAPES = {  # growth rate, layers of each block, channels of the stem
    "densenet121": (32, (6, 12, 24, 16), 64),
    "densenet161": (48, (6, 12, 36, 24), 96),
    "densenet169": (32, (6, 12, 32, 32), 64),
    "densenet201": (32, (6, 12, 48, 32), 64),
}


class DenseNet(ImageNetForm, densenet.DenseNet):
    """A DenseNet; takes RGB in [0, 1], any size from 32×32 on."""

    def __init__(self, variant: Variant, num_classes: int) -> None:
        super().__init__(*SHAPES[variant.architecture], num_classes=num_classes)
        if variant.layer == "bcos":
            become_bcos(self, bcos_rules(b=variant.b or 2.0))
        self.surround(variant, num_classes)


def build(variant: Variant, num_classes: int) -> nn.Module:
    """The network, its kernels starting where torchvision's own do."""
    return DenseNet(variant, num_classes)
