"""From a torchvision network to its B-cos form, layer by layer (B-cos v2, section 3.3).

No bias anywhere, no activation, uncentred BatchNorm, average for maximum pooling, six input channels for three, and a
linear head that becomes a convolution, so that it can come before the global pooling.
"""

from collections.abc import Callable

from torch import nn

from scs_eval.models.conversion.rules import bcos_convolution
from scs_eval.models.conversion.swap import SwapRule, swap_layers
from scs_eval.models.conversion.transfer import transfer_weights
from scs_eval.models.layers import BatchNorm, BcosConv2d


def bcos_rules(*, b: float, norm: Callable[[int], nn.Module] = BatchNorm) -> list[SwapRule]:
    """What a B-cos network has where a conventional one has such a layer."""
    return [
        SwapRule((nn.Conv2d,), lambda conv: bcos_convolution(conv, b=b)),
        SwapRule((nn.Linear,), lambda linear: BcosConv2d(linear.in_features, linear.out_features, 1, b=b)),
        SwapRule((nn.BatchNorm2d, nn.LayerNorm), lambda old: norm(len(old.weight))),
        SwapRule((nn.MaxPool2d,), lambda pool: nn.AvgPool2d(pool.kernel_size, pool.stride, pool.padding)),
        SwapRule((nn.ReLU,), lambda _: nn.Identity()),
    ]


def become_bcos(root: nn.Module, rules: list[SwapRule]) -> None:
    """Swap the layers of `root`; the new ones start from the kernels of the old."""
    start = root.state_dict()
    swap_layers(root, rules)
    transfer_weights(start, root)


def without(layers: nn.Sequential, *kinds: type[nn.Module]) -> nn.Sequential:
    """The layers that are of no such kind, numbered anew: the published networks skip what they leave out."""
    return nn.Sequential(*(layer for layer in layers if not isinstance(layer, kinds)))
