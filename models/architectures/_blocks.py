"""One convolution of any kind with its pooling and activation: where the variants of an architecture differ."""

from collections import OrderedDict

import torch
from torch import Tensor, nn

from scs_eval.models.layers import BcosConv2d, CosineSim2d, MaxAbsPool2d, SCS2d, SharpenedSDP2d
from scs_eval.models.layers.kernels.autograd import replaceable
from scs_eval.models.layers.pooling import Pool
from scs_eval.models.layers.scs import Q
from scs_eval.models.zoo.names import Variant

POOLS: dict[str, type[nn.MaxPool2d] | type[MaxAbsPool2d]] = {"maxpool": nn.MaxPool2d, "maxabspool": MaxAbsPool2d}


def convolution(
    variant: Variant,
    inputs: int,
    outputs: int,
    kernel: int | tuple[int, int],
    *,
    stride: int | tuple[int, int] = 1,
    padding: int | tuple[int, int] = 0,
    groups: int = 1,
    relu: bool = False,
    pool: Pool | None = None,
) -> nn.Module:
    """The variant's kind of convolution, then `pool`, then ReLU.

    ReLU comes after pooling. For MaxPool the order makes no difference; a MaxAbsPool before the ReLU picks strong
    negative responses that the ReLU then silences, which is what the SCS paper's tables show for that pair.
    """
    shape = (inputs, outputs, kernel, stride, padding, 1, groups)
    if variant.layer == "scs":
        return _named(SCS2d(*shape, p=variant.p, q=variant.q or Q, relu=relu, pool=pool))
    if variant.layer == "ssdp":
        return _named(SharpenedSDP2d(*shape, p=variant.p, relu=relu, pool=pool))
    if variant.layer == "cos":
        return _named(CosineSim2d(*shape, q=variant.q or Q, relu=relu, pool=pool))
    layer = BcosConv2d(*shape, b=variant.b or 2.0) if variant.layer == "bcos" else nn.Conv2d(*shape, bias=False)
    return _named(layer, pool, nn.ReLU() if relu else None)


def quick_layout(x: Tensor) -> Tensor:
    """Channels last on the CPU, where small images are then convolved a third faster; elsewhere the caller's choice.

    The gradient comes back in the usual layout: attacks and explanations written by others take a `view` of it.
    """
    if x.device.type != "cpu" or not replaceable(x) or x.is_contiguous(memory_format=torch.channels_last):
        return x
    start = x.view_as(x)
    if start.requires_grad:
        start.register_hook(Tensor.contiguous)
    return start.contiguous(memory_format=torch.channels_last)


def _named(layer: nn.Module, pool: nn.Module | None = None, activation: nn.Module | None = None) -> nn.Sequential:
    """The parts that exist, under names that all variants share."""
    parts = OrderedDict(layer=layer, pool=pool, activation=activation)
    return nn.Sequential(OrderedDict((name, part) for name, part in parts.items() if part is not None))
