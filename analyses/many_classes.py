"""The maps of several classes of one image, from one forward pass where the method allows it.

Gradients, input × gradient, integrated gradients, SmoothGrad and W(x)⊙x share the forward passes among the classes,
and each class costs a backward pass; occlusion, RISE and LIME ask about all classes at once. Other methods get the
image once for every class, all in one batch.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from scs_eval.analyses.attribution import (
    INTGRAD_STEPS,
    SMOOTHGRAD_SAMPLES,
    SMOOTHGRAD_SIGMA,
    attribute,
    pixel_contributions,
)
from scs_eval.analyses.batching import at_once
from scs_eval.analyses.layer_maps import UnsuitableError, classifier
from scs_eval.analyses.perturbation import MAPS, several_classes
from scs_eval.analyses.state import device_of, evaluating
from scs_eval.models.decomposition import decompose
from scs_eval.models.layers import AddInverse

PUBLISHED = ("wx", "grad", "ixg", "intgrad", "gradcam")  # methods whose maps in the B-cos authors' code are reproduced
SHARED = ("grad", "ixg", "intgrad", "smoothgrad", "wx", "rollout", *MAPS)  # classes share their forward passes


def pixel_maps(
    model: nn.Module,
    images: Tensor,
    targets: Tensor,
    *,
    method: str,
    seed: int = 0,
    encoded: bool = False,
    square: int | None = None,
) -> Tensor:
    """Signed attributions, summed over channels (N, K, H, W), of K logits `targets` (N, K) of each image.

    encoded: as in the B-cos authors' code: where a network sees [x, 1−x], gradients are with respect to its six
    channels and not to the three of the image (W(x) always is), and where a convolution gives the classes, Grad-CAM
    weighs what goes into it. square: side of occlusion's square; by default that of `occlusion`.
    """
    with evaluating(model), torch.enable_grad():
        like = next(model.parameters(), images)
        x, classes = images.detach().to(like.device, like.dtype), targets.long().to(device_of(model))
        if method in MAPS:  # they give every channel the same
            maps = x.shape[1] * several_classes(method, model, x, classes, seed, square=square)
        else:
            maps = _maps(model, x, classes, method=method, seed=seed, encoded=encoded)
    if not maps.isfinite().all():
        raise UnsuitableError(f"{method} gives NaN or infinity on this network")
    return maps.detach()


def _maps(model: nn.Module, images: Tensor, targets: Tensor, *, method: str, seed: int, encoded: bool) -> Tensor:
    if method == "wx":
        return pixel_contributions(decompose(model, images, targets)).sum(2)
    if method in ("grad", "ixg"):
        gradients, start = class_gradients(model, images, targets, encoded=encoded)
        return (gradients if method == "grad" else gradients * start[:, None]).sum(2)
    if method == "intgrad":
        return _integrated(model, images, targets, encoded=encoded)
    if method == "smoothgrad":
        return _smoothgrad(model, images, targets, seed=seed)
    if method == "gradcam" and encoded and (last := classifier(model, images[:1])) is not None:
        return _published_gradcam(model, last, images, targets)
    if method == "rollout":  # says the same of every class
        one = attribute(model, images, targets[:, 0], method=method, seed=seed).sum(1, keepdim=True)
        return one.expand(-1, targets.shape[1], -1, -1)
    return _repeated(model, images, targets, method=method, seed=seed)


def _repeated(model: nn.Module, images: Tensor, targets: Tensor, *, method: str, seed: int) -> Tensor:
    """Every image once for each of its classes, in one batch; fewer at once if not even one image's classes fit."""
    count = targets.shape[1]
    repeated, classes = images.repeat_interleave(count, 0), targets.flatten()

    def some(part: slice) -> Tensor:
        return attribute(model, repeated[part], classes[part], method=method, seed=seed).sum(1)

    return at_once(some, len(repeated), units=len(images)).unflatten(0, (-1, count))


def class_gradients(
    model: nn.Module, images: Tensor, targets: Tensor, *, scale: float = 1.0, encoded: bool = False
) -> tuple[Tensor, Tensor]:
    """∂ logit / ∂ x at scale · x of every target, (N, K, C, H, W), and x itself (N, C, H, W)."""
    with _starting_at_the_encoding(model if encoded else None, scale) as taps:
        x = (images if encoded and _encodings(model) else images * scale).detach().requires_grad_()
        logits = model(x)
        start = taps[0] if taps else x
        gradients = class_gradients_at(logits, start, targets)
    return torch.stack(gradients, 1), start.detach() / scale


def _integrated(model: nn.Module, images: Tensor, targets: Tensor, *, encoded: bool) -> Tensor:
    """Integrated gradients from black by Gauss and Legendre's rule with as many steps as `intgrad` has."""
    nodes, weights = np.polynomial.legendre.leggauss(INTGRAD_STEPS)
    total, start = None, images
    for node, weight in zip((nodes + 1) / 2, weights / 2, strict=True):
        gradients, start = class_gradients(model, images, targets, scale=float(node), encoded=encoded)
        total = float(weight) * gradients if total is None else total + float(weight) * gradients
    assert total is not None
    return (total * start[:, None]).sum(2)


def _smoothgrad(model: nn.Module, images: Tensor, targets: Tensor, *, seed: int) -> Tensor:
    """The mean gradient of noisy copies, with the noise of `smoothgrad`: the same for every image and every class."""
    torch.manual_seed(seed)  # put back by `evaluating`
    noise = torch.normal(0, images.new_full((SMOOTHGRAD_SAMPLES, *images.shape[1:]), SMOOTHGRAD_SIGMA))
    each = (class_gradients(model, images + one, targets)[0].sum(2) for one in noise)
    return sum(each, images.new_zeros(())) / SMOOTHGRAD_SAMPLES


def _published_gradcam(model: nn.Module, last: nn.Module, images: Tensor, targets: Tensor) -> Tensor:
    """relu(Σ_c a_c Σ g_c) of the input of the last convolution, each place of it as a square of pixels."""
    taps: list[Tensor] = []

    def cut(_module: nn.Module, inputs: tuple[Tensor, ...]) -> tuple[Tensor]:
        taps.append(inputs[0].detach().requires_grad_())
        return (taps[-1],)

    handle = last.register_forward_pre_hook(cut)
    try:
        logits = model(images)
    finally:
        handle.remove()
    gradients = torch.stack(class_gradients_at(logits, taps[-1], targets), 1)
    maps = (gradients.sum((-2, -1), keepdim=True) * taps[-1].detach()[:, None]).sum(2).relu()
    return F.interpolate(maps, images.shape[2:], mode="nearest")


def class_gradients_at(logits: Tensor, start: Tensor, targets: Tensor) -> list[Tensor]:
    """∂ logit / ∂ start for each of the K classes, targets (N, K)."""
    return [
        torch.autograd.grad(logits.gather(1, each[:, None]).sum(), start, retain_graph=True)[0]
        for each in targets.unbind(1)
    ]


def _encodings(model: nn.Module) -> list[nn.Module]:
    return [module for module in model.modules() if isinstance(module, AddInverse)]


@contextmanager
def _starting_at_the_encoding(model: nn.Module | None, scale: float) -> Iterator[list[Tensor]]:
    """Cut the graph behind [x, 1−x], scale it there, and hand over what then goes in."""
    taps: list[Tensor] = []

    def cut(_module: nn.Module, _inputs: Any, output: Tensor) -> Tensor:
        taps.append((output.detach() * scale).requires_grad_())
        return taps[-1]

    handles = [module.register_forward_hook(cut) for module in (_encodings(model) if model is not None else [])]
    try:
        yield taps
    finally:
        for handle in handles:
            handle.remove()
