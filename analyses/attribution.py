"""Attribution methods behind one signature: which pixels speak for a class?

What captum has is captum's; RISE, NormGrad, LIME (without scikit-learn) and W(x)⊙x are ours. `attribute` leaves the
model as it found it, and a method that cannot serve a model raises `UnsuitableError`, which says why.
"""

import copy
import warnings
from collections.abc import Callable
from difflib import get_close_matches
from typing import NamedTuple

import torch
from torch import Tensor, nn

from scs_eval.analyses.inputs import check_images
from scs_eval.analyses.layer_maps import UnsuitableError, gradcam, normgrad
from scs_eval.analyses.perturbation import lime, occlusion, rise
from scs_eval.analyses.rollout import rollout
from scs_eval.analyses.shards import shared_map
from scs_eval.analyses.state import device_of, evaluating
from scs_eval.errors import InputError
from scs_eval.models.decomposition import Decomposition, decompose
from scs_eval.models.layers import MaxAbsPool2d

IMAGES_AT_ONCE, FEW_AT_ONCE = 50, 10  # by what an image costs
PASSES_AT_ONCE = 500  # of methods that look at many versions of an image
INTGRAD_STEPS = 50  # B-cos v2, supplement D
SMOOTHGRAD_SAMPLES, SMOOTHGRAD_SIGMA = 25, 0.15  # Smilkov et al. 2017: noise of 10-20 % of the range of the image
INCOMPLETE = 1e-2  # share of what should add up that may be missing before we say that a method does not apply

Function = Callable[[nn.Module, Tensor, Tensor, int], Tensor]


class Method(NamedTuple):
    """How to compute it, what it needs, and whether an image costs a few passes or hundreds."""

    function: Function
    gradient: bool = True
    cheap: bool = True


def attribute(model: nn.Module, images: Tensor, targets: Tensor, *, method: str = "grad", seed: int = 0) -> Tensor:
    """Signed attributions (N, 3, H, W) of the logits `targets` (N,) to images (N, 3, H, W) in [0, 1].

    A method that speaks of whole pixels (gradcam, lime, occlusion, rise, normgrad) gives every channel the same value.
    Random choices depend on `seed` alone, so that a map does not depend on the images beside it.
    """
    chosen = find_method(method)
    check_images(images)
    with evaluating(model), torch.enable_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # captum's, about hooks and gradients that it puts back itself
        check_answer(model, images, targets, gradient=chosen.gradient, method=method)
        like = next(model.parameters(), images)
        moved = images.detach().to(like.device, like.dtype), targets.detach().long().to(device_of(model))
        parts = zip(*(tensor.split(IMAGES_AT_ONCE if chosen.cheap else FEW_AT_ONCE) for tensor in moved), strict=True)
        maps = torch.cat(shared_map(lambda part: chosen.function(model, part[0], part[1], seed).detach(), parts))
    if not maps.isfinite().all():
        raise UnsuitableError(f"{method} gives NaN or infinity on this network")
    return maps.to(images.device)


def find_method(name: str) -> Method:
    """The method of that name; an unknown one raises and suggests the nearest."""
    if name not in METHODS:
        near = get_close_matches(name, METHODS, n=2, cutoff=0.5)
        hint = f"did you mean {' or '.join(near)}?" if near else f"choose from {', '.join(METHODS)}"
        raise InputError(f"unknown method {name!r}; {hint}")
    return METHODS[name]


def check_answer(model: nn.Module, images: Tensor, targets: Tensor, *, gradient: bool, method: str) -> None:
    """Raise unless the model gives finite logits for such images, `targets` are among them and gradients exist."""
    if targets.shape != images.shape[:1] or targets.is_floating_point() or targets.dtype == torch.bool:
        raise InputError(f"expected {len(images)} targets as whole numbers, got {targets.dtype} {tuple(targets.shape)}")
    like = next(model.parameters(), images)
    one = images[:1].detach().to(like.device, like.dtype, copy=True).requires_grad_()
    try:
        logits = model(one)
    except torch.OutOfMemoryError:
        raise
    except RuntimeError as error:
        size = "×".join(map(str, images.shape[1:]))
        raise InputError(f"the model cannot take images of {size}: {error}") from error
    if not isinstance(logits, Tensor) or logits.ndim != 2 or not logits.isfinite().all():
        raise InputError("expected finite logits (n, classes) from the model")
    first, last = int(targets.min()), int(targets.max())
    if first < 0 or last >= logits.shape[1]:
        raise InputError(f"expected targets from 0 to {logits.shape[1] - 1}, got {first} to {last}")
    if gradient and not logits.requires_grad:
        raise UnsuitableError(
            f"{method} needs a gradient, and the model is not differentiable; try occlusion, rise or lime"
        )


def _grad(model: nn.Module, images: Tensor, targets: Tensor, seed: int) -> Tensor:
    """∂ logit / ∂ x (Simonyan et al. 2014), with its sign."""
    from captum.attr import Saliency

    return Saliency(model).attribute(images, target=targets, abs=False)


def _ixg(model: nn.Module, images: Tensor, targets: Tensor, seed: int) -> Tensor:
    """x ⊙ ∂ logit / ∂ x. Degenerate on SCS networks, which hardly see the scale of x: see `wx`."""
    from captum.attr import InputXGradient

    return InputXGradient(model).attribute(images, target=targets)


def _intgrad(model: nn.Module, images: Tensor, targets: Tensor, seed: int) -> Tensor:
    """Integrated gradients from black (Sundararajan et al. 2017)."""
    from captum.attr import IntegratedGradients

    method = IntegratedGradients(model)
    return method.attribute(images, target=targets, n_steps=INTGRAD_STEPS, internal_batch_size=PASSES_AT_ONCE)


def _smoothgrad(model: nn.Module, images: Tensor, targets: Tensor, seed: int) -> Tensor:
    """The mean gradient of noisy copies (Smilkov et al. 2017); every image has the same noise."""
    from captum.attr import NoiseTunnel, Saliency

    method, maps = NoiseTunnel(Saliency(model)), []
    for image, target in zip(images.split(1), targets.split(1), strict=True):
        torch.manual_seed(seed)  # put back by `evaluating`
        options = {"nt_type": "smoothgrad", "nt_samples": SMOOTHGRAD_SAMPLES, "stdevs": SMOOTHGRAD_SIGMA}
        maps.append(method.attribute(image, target=target, abs=False, **options))
    return torch.cat(maps)


def _guided_backprop(model: nn.Module, images: Tensor, targets: Tensor, seed: int) -> Tensor:
    """The gradient with negative parts cut at every ReLU on the way back (Springenberg et al. 2015)."""
    from captum.attr import GuidedBackprop

    if inside := [type(module).__name__ for module in model.modules() if getattr(module, "relu", False) is True]:
        raise UnsuitableError(f"guided-backprop needs ReLU modules of their own; here the ReLU is part of {inside[0]}")
    if not any(isinstance(module, nn.ReLU) for module in model.modules()):
        raise UnsuitableError("guided-backprop needs ReLU modules, and this network has none")
    return GuidedBackprop(_own_copy(model)).attribute(images, target=targets)


def _deeplift(model: nn.Module, images: Tensor, targets: Tensor, seed: int) -> Tensor:
    """DeepLIFT's rescale rule from black (Shrikumar et al. 2017); refused where the attributions do not add up."""
    from captum.attr import DeepLift

    if strange := [type(module).__name__ for module in model.modules() if _has_no_rule(module)]:
        raise UnsuitableError(f"deeplift has no rule for {strange[0]}")
    try:
        maps = DeepLift(_own_copy(model)).attribute(images, torch.zeros_like(images), target=targets)
    except (RuntimeError, AssertionError) as error:
        raise UnsuitableError(f"deeplift cannot follow this network: {str(error).splitlines()[0]}") from error
    with torch.no_grad():
        change = (model(images) - model(torch.zeros_like(images))).gather(1, targets[:, None]).squeeze(1)
    scale = torch.maximum(change.abs(), INCOMPLETE * maps.abs().sum((1, 2, 3))).clamp(min=1e-12)
    gap = ((maps.sum((1, 2, 3)) - change).abs() / scale).max().item()
    if not gap <= INCOMPLETE:
        raise UnsuitableError(f"deeplift has no rule for a part of this network: Σ misses f(x) − f(0) by {gap:.0%}")
    return maps


def _has_no_rule(module: nn.Module) -> bool:
    """Whether captum would take one of our layers for a linear one."""
    changed = isinstance(module, nn.Conv2d | nn.Linear) and type(module) not in (nn.Conv2d, nn.Linear)
    return changed or isinstance(module, MaxAbsPool2d)


def _wx(model: nn.Module, images: Tensor, targets: Tensor, seed: int) -> Tensor:
    """W(x)⊙x (B-cos v2, Eq. 16)."""
    return pixel_contributions(decompose(model, images, targets))


def pixel_contributions(parts: Decomposition) -> Tensor:
    """W(x)⊙x, (N, [K,] 3, H, W); refused where it and the biases do not add up to the logit.

    Of networks that see [x, 1−x] a colour's two channels are added: pixel sums stay.
    """
    scale = parts.contributions.abs().sum((-3, -2, -1)) + parts.bias.abs()
    gap = (parts.residual.abs() / scale.clamp(min=1e-12)).max().item()
    if not gap <= INCOMPLETE:
        raise UnsuitableError(f"wx needs a dynamic-linear network; here W(x)·x + b(x) misses the logit by {gap:.0%}")
    return parts.contributions.unflatten(-3, (-1, 3)).sum(-4)


def _own_copy(model: nn.Module) -> nn.Module:
    """A copy for captum to hook into; its ReLUs do not work in place, which hooks do not bear."""
    copied = copy.deepcopy(model)
    for module in copied.modules():
        if getattr(module, "inplace", False) is True:
            module.inplace = False  # type: ignore[assignment]
    return copied


METHODS: dict[str, Method] = {
    "grad": Method(_grad),
    "ixg": Method(_ixg),
    "intgrad": Method(_intgrad, cheap=False),
    "smoothgrad": Method(_smoothgrad, cheap=False),
    "guided-backprop": Method(_guided_backprop),
    "deeplift": Method(_deeplift),
    "gradcam": Method(gradcam),
    "lime": Method(lime, gradient=False, cheap=False),
    "occlusion": Method(occlusion, gradient=False, cheap=False),
    "rise": Method(rise, gradient=False, cheap=False),
    "normgrad": Method(normgrad),
    "wx": Method(_wx),
    "rollout": Method(rollout, gradient=False),
}
