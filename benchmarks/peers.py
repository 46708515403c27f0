"""What our networks are compared with: the package `bcos`, and twins of plain convolutions."""

import copy
from functools import partial

import torch
from torch import Tensor, nn

from scs_eval.models.architectures.bcos_cnn import CHANNELS, STRIDES
from scs_eval.models.layers import BatchNorm, BcosConv2d


class EncodedPeer(nn.Module):
    """A published network behind the encoding that ours has inside."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, x: Tensor) -> Tensor:
        """(N, 3, H, W) to logits (N, classes)."""
        return self.network(torch.cat([x, 1 - x], dim=1)).flatten(1)


def published_resnet20() -> nn.Module:
    """ResNet-20 of the package bcos with the settings of our `resnet20_bcos`."""
    from bcos.models.resnet import cifar10_resnet20
    from bcos.modules import BcosConv2d as Published
    from bcos.modules import norms

    norm = norms.NoBias(norms.BatchNormUncentered2d)
    return EncodedPeer(cifar10_resnet20(norm_layer=norm, conv_layer=partial(Published, b=2, max_out=2)))


def published_cnn9(gamma: float) -> nn.Module:
    """The nine-layer network of the package's layers, which divide by a scale where ours multiply by γ."""
    from bcos.modules import BcosConv2dWithScale

    layer = partial(BcosConv2dWithScale, b=2, max_out=2, scale=1 / gamma)
    places = zip([6, *CHANNELS], CHANNELS, STRIDES, strict=False)
    layers = [layer(inputs, outputs, 3, stride, 1) for inputs, outputs, stride in places]
    return EncodedPeer(nn.Sequential(*layers, layer(CHANNELS[-1], 10, 1), nn.AdaptiveAvgPool2d(1)))


class MaxOutConv2d(nn.Conv2d):
    """A convolution that keeps the largest of each pair of kernels: what a B-cos layer does, less the alignment."""

    def forward(self, x: Tensor) -> Tensor:
        """(N, C, H, W) to (N, O/2, h, w)."""
        return super().forward(x).unflatten(1, (-1, 2)).amax(2)


def plain_twin(model: nn.Module) -> nn.Module:
    """The same network with plain convolutions of the same kernels, MaxOut included, and torch's BatchNorm."""
    twin = copy.deepcopy(model)
    for name, module in list(twin.named_modules()):
        if isinstance(module, BcosConv2d):
            kind = MaxOutConv2d if module.max_out == 2 else nn.Conv2d
            shape = (module.in_channels, module.out_channels, module.kernel_size, module.stride, module.padding)
            _put(twin, name, kind(*shape, bias=False))  # type: ignore[arg-type]
        elif isinstance(module, BatchNorm):
            _put(twin, name, nn.BatchNorm2d(module.num_features))
    return twin


def _put(root: nn.Module, name: str, module: nn.Module) -> None:
    parent, _, last = name.rpartition(".")
    setattr(root.get_submodule(parent), last, module)
