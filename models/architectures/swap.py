"""From a torchvision network to its B-cos form, layer by layer (B-cos v2, section 3.3).

No bias anywhere, no activation, uncentred BatchNorm, average for maximum pooling, six input channels for three, and a
linear head that becomes a convolution, so that it can come before the global pooling.
"""

from collections.abc import Callable

from torch import nn

from scs_eval.models.layers import BatchNorm, BcosConv2d
from scs_eval.models.transplant import transplant

Rule = Callable[[nn.Module], nn.Module | None]


def replace_modules(root: nn.Module, rule: Rule) -> None:
    """Put `rule(module)` in the place of every descendant for which it is not None."""
    for name, child in root.named_children():
        new = rule(child)
        if new is None:
            replace_modules(child, rule)
        else:
            setattr(root, name, new)


def become_bcos(root: nn.Module, rule: Rule) -> None:
    """Replace the layers of `root` by `rule`, mostly `bcos_form`; the new ones start from the kernels of the old."""
    start = root.state_dict()
    replace_modules(root, rule)
    transplant(start, root)


def bcos_form(module: nn.Module, *, b: float, norm: Callable[[int], nn.Module] = BatchNorm) -> nn.Module | None:
    """What a B-cos network has where a conventional one has `module`; None where it has the same."""
    if isinstance(module, nn.Conv2d):
        inputs = 6 if module.in_channels == 3 else module.in_channels
        place = (module.kernel_size, module.stride, module.padding, module.dilation, module.groups)
        return BcosConv2d(inputs, module.out_channels, *place, b=b)  # type: ignore[arg-type]
    if isinstance(module, nn.Linear):
        return BcosConv2d(module.in_features, module.out_features, 1, b=b)
    if isinstance(module, nn.BatchNorm2d | nn.LayerNorm):
        return norm(len(module.weight))
    if isinstance(module, nn.MaxPool2d):
        return nn.AvgPool2d(module.kernel_size, module.stride, module.padding)
    return nn.Identity() if isinstance(module, nn.ReLU) else None


def without(layers: nn.Sequential, *kinds: type[nn.Module]) -> nn.Sequential:
    """The layers that are of no such kind, numbered anew: the published networks skip what they leave out."""
    return nn.Sequential(*(layer for layer in layers if not isinstance(layer, kinds)))
