"""torchvision's ConvNeXt and its B-cos form (Liu et al. 2022; B-cos v2, sections 3.3 and 4).

The B-cos form keeps the channels in front, so that each block's two linear layers are 1×1 convolutions, and normalises
per pixel (`pn`) or per channel over the batch (`bnu`).
"""

from collections.abc import Callable
from functools import partial

from torch import nn
from torchvision.models import convnext
from torchvision.ops import Permute

from scs_eval.models.architectures._bcos_rules import bcos_rules, become_bcos, without
from scs_eval.models.architectures._imagenet import ImageNetForm
from scs_eval.models.layers import BatchNorm, PositionNorm
from scs_eval.models.zoo.names import Variant

SHAPES = {  # channels and blocks of each stage, and how often at most a block is skipped in training
    "convnext_tiny": ((96, 192, 384, 768), (3, 3, 9, 3), 0.1),
    "convnext_base": ((128, 256, 512, 1024), (3, 3, 27, 3), 0.5),
}
NORMS: dict[str, Callable[[int], nn.Module]] = {"pn": partial(PositionNorm, centred=True, eps=1e-6), "bnu": BatchNorm}


class ConvNeXt(ImageNetForm, convnext.ConvNeXt):
    """A ConvNeXt; takes RGB in [0, 1], any size from 32×32 on."""

    classifier: nn.Sequential

    def __init__(self, variant: Variant, num_classes: int) -> None:
        widths, depths, skipped = SHAPES[variant.architecture]
        stages = zip(widths, (*widths[1:], None), depths, strict=True)
        settings = [convnext.CNBlockConfig(*stage) for stage in stages]
        super().__init__(settings, stochastic_depth_prob=skipped, num_classes=num_classes)
        if variant.layer == "bcos":
            self._drop_what_bcos_has_not()
            become_bcos(self, bcos_rules(b=variant.b or 2.0, norm=NORMS[variant.norm or "pn"]))
        self.surround(variant, num_classes)

    def _drop_what_bcos_has_not(self) -> None:
        stem = self.features.pop(0)
        self.features = nn.Sequential(*stem.children(), *self.features)
        for block in self.modules():
            if isinstance(block, convnext.CNBlock):
                block.block = without(block.block, Permute, nn.GELU)
        self.classifier = without(self.classifier, nn.Flatten)


def build(variant: Variant, num_classes: int) -> nn.Module:
    """The network, its kernels starting where torchvision's own do."""
    return ConvNeXt(variant, num_classes)
