"""Rules that replace the gradient of some layers, by captum: guided backpropagation and DeepLIFT."""

import copy
from collections.abc import Callable

import torch
from torch import Tensor, nn

from scs_eval.analyses.attribution.methods import MapOptions
from scs_eval.analyses.core.batching import map_batched
from scs_eval.errors import NotApplicableError
from scs_eval.models.layers import MaxAbsPool2d

INCOMPLETE = 1e-2  # share of what should add up that may be missing before we say that a method does not apply


def guided_backprop(model: nn.Module, images: Tensor, targets: Tensor, options: MapOptions) -> Tensor:
    """The gradient with negative parts cut at every ReLU of the backward pass (Springenberg et al. 2015)."""
    from captum.attr import GuidedBackprop

    if inside := [type(module).__name__ for module in model.modules() if getattr(module, "relu", False) is True]:
        raise NotApplicableError(
            f"guided-backprop needs ReLU modules of their own; here the ReLU is part of {inside[0]}"
        )
    if not any(isinstance(module, nn.ReLU) for module in model.modules()):
        raise NotApplicableError("guided-backprop needs ReLU modules, and this network has none")
    rule = GuidedBackprop(own_copy(model))
    return _repeated(lambda x, classes: rule.attribute(x, target=classes), images, targets)


def deeplift(model: nn.Module, images: Tensor, targets: Tensor, options: MapOptions) -> Tensor:
    """DeepLIFT's rescale rule from black (Shrikumar et al. 2017); refused where the attributions do not add up."""
    if strange := [type(module).__name__ for module in model.modules() if _has_no_rule(module)]:
        raise NotApplicableError(f"deeplift has no rule for {strange[0]}")
    copied = own_copy(model)
    return _repeated(lambda x, classes: _deeplift(model, copied, x, classes), images, targets)


def _deeplift(model: nn.Module, copied: nn.Module, images: Tensor, targets: Tensor) -> Tensor:
    """One class (N,) of each image, by the copy of the model that captum hooks into."""
    from captum.attr import DeepLift

    black = torch.zeros_like(images)
    try:
        maps = DeepLift(copied).attribute(images, black, target=targets)
    except (RuntimeError, AssertionError) as error:
        raise NotApplicableError(f"deeplift cannot follow this network: {str(error).splitlines()[0]}") from error
    with torch.no_grad():
        change = (model(images) - model(black)).gather(1, targets[:, None]).squeeze(1)
    scale = torch.maximum(change.abs(), INCOMPLETE * maps.abs().sum((1, 2, 3))).clamp(min=1e-12)
    gap = ((maps.sum((1, 2, 3)) - change).abs() / scale).max().item()
    if not gap <= INCOMPLETE:
        raise NotApplicableError(f"deeplift has no rule for a part of this network: Σ misses f(x) − f(0) by {gap:.0%}")
    return maps


def _repeated(function: Callable[[Tensor, Tensor], Tensor], images: Tensor, targets: Tensor) -> Tensor:
    """Every image once for each of its classes, in one batch; fewer at once if not even one image's classes fit."""
    count = targets.shape[1]
    repeated, classes = images.repeat_interleave(count, 0), targets.flatten()

    def some(part: slice) -> Tensor:
        return function(repeated[part], classes[part]).detach()

    return map_batched(some, len(repeated), units=len(images)).unflatten(0, (-1, count))


def _has_no_rule(module: nn.Module) -> bool:
    """Whether captum would take one of our layers for a linear one."""
    changed = isinstance(module, nn.Conv2d | nn.Linear) and type(module) not in (nn.Conv2d, nn.Linear)
    return changed or isinstance(module, MaxAbsPool2d)


def own_copy(model: nn.Module) -> nn.Module:
    """A copy for captum to hook into; its ReLUs do not work in place, which hooks do not bear."""
    copied = copy.deepcopy(model)
    for module in copied.modules():
        if getattr(module, "inplace", False) is True:
            module.inplace = False  # type: ignore[assignment]
    return copied
