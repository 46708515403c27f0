"""What stands around an ImageNet network, conventional or B-cos, so that it takes RGB in [0, 1]."""

from torch import Tensor, nn

from scs_eval.models.layers import AddInverse, LogitLayer, Normalize
from scs_eval.models.zoo.names import Variant

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # of ImageNet's training images, as torchvision has them


def encoding(variant: Variant) -> nn.Module:
    """[x, 1-x] for B-cos networks, (x - mean)/std for their twins, which torchvision's weights then fit."""
    return AddInverse() if variant.layer == "bcos" else Normalize(MEAN, STD)


class ImageNetForm(nn.Module):
    """Mixed into a torchvision network made of `features` and `classifier`.

    Its B-cos form classifies at every pixel of the features and averages the logits (C.1.1): the order matters, since
    the classifier is not linear, and it lets the network take images of any size.
    """

    features: nn.Sequential
    classifier: nn.Module

    def surround(self, variant: Variant, num_classes: int) -> None:
        """Add what comes before the features and after the classifier."""
        self.bcos = variant.layer == "bcos"
        self.encode = encoding(variant)
        self.logits = LogitLayer(num_classes) if self.bcos else nn.Identity()
        for module in self.modules():
            if isinstance(module, nn.ReLU):
                module.inplace = False  # so that a captured output of the layer before it stays as it was

    def forward(self, x: Tensor) -> Tensor:
        """(N, 3, H, W) to logits (N, classes)."""
        x = self.encode(x)
        if not self.bcos:
            return super().forward(x)
        return self.logits(self.classifier(self.features(x)).mean((2, 3)))
