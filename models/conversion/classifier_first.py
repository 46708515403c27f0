"""Classify at every pixel of the last feature map and average the logits, as B-cos networks do (B-cos v2, C.1.1)."""

from torch import nn

from scs_eval.errors import InputError
from scs_eval.models.layers import BcosConv2d, BcosLinear


def put_classifier_first(root: nn.Module) -> tuple[str, str]:
    """Put the last linear layer, as a 1×1 convolution, before the global pooling; its old name and its new one.

    Both take the pooling's name and nothing the classifier's, so the network's own forward pass stays as it is.
    """
    linears = [(name, module) for name, module in root.named_modules() if isinstance(module, nn.Linear)]
    pools = [(name, module) for name, module in root.named_modules() if isinstance(module, nn.AdaptiveAvgPool2d)]
    if not linears or not pools or pools[-1][1].output_size not in (1, (1, 1)):
        raise InputError("the classifier cannot come first: the network has no global average pooling module before it")
    if between := _with_weights_between(root, pools[-1][0], linears[-1][0]):
        raise InputError(f"the classifier cannot come first: {between} stands between the global pooling and it")
    (head, linear), (pooled, pool) = linears[-1], pools[-1]
    shape = (linear.in_features, linear.out_features, 1)
    first = BcosConv2d(*shape, b=linear.b) if isinstance(linear, BcosLinear) else nn.Conv2d(*shape)
    root.set_submodule(pooled, nn.Sequential(first.to(linear.weight), pool))
    root.set_submodule(head, nn.Identity())
    return head, f"{pooled}.0"


def _with_weights_between(root: nn.Module, first: str, last: str) -> str | None:
    """The name of a layer with weights among those that the network has between these two."""
    names = [name for name, module in root.named_modules() if not any(module.children())]
    inner = names[names.index(first) + 1 : names.index(last)]
    return next((name for name in inner if any(True for _ in root.get_submodule(name).parameters())), None)
