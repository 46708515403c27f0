"""Attribution from one layer's activations and their gradients: Grad-CAM, HiResCAM and NormGrad."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from scs_eval.analyses.attribution.gradient import class_gradients
from scs_eval.analyses.attribution.methods import MapOptions
from scs_eval.errors import NotApplicableError

Rule = Callable[[Tensor, Tensor], Tensor]  # activation (N, C, h, w), gradients (N, K, C, h, w) -> maps (N, K, h, w)


def gradcam(model: nn.Module, images: Tensor, targets: Tensor, options: MapOptions) -> Tensor:
    """Grad-CAM at the last convolution, relu(Σ_c mean(g_c) a_c), bilinearly upsampled (Selvaraju et al. 2017).

    options.published: where a convolution gives the classes, of what goes into it, as in the B-cos authors' code.
    """
    if options.published and (last := classifier(model, images[:1])) is not None:
        return _published_gradcam(model, last, images, targets)
    layer = last_convolution(model, images[:1], method="gradcam")
    return as_pixel_maps(gradcam_rule(*activation_and_gradients(model, layer, images, targets)), images)


def hirescam(model: nn.Module, images: Tensor, targets: Tensor, options: MapOptions) -> Tensor:
    """HiResCAM at the last convolution, Σ_c g_c ⊙ a_c, bilinearly upsampled (Draelos and Carin 2020)."""
    layer = last_convolution(model, images[:1], method="hirescam")
    return as_pixel_maps(hirescam_rule(*activation_and_gradients(model, layer, images, targets)), images)


def normgrad(model: nn.Module, images: Tensor, targets: Tensor, options: MapOptions) -> Tensor:
    """NormGrad at the last convolution: ‖a_u‖·‖g_u‖ at each place u, bilinearly upsampled (Rebuffi et al. 2020).

    It is the norm of what the place adds to the gradient of a 1×1 convolution set to the identity behind the layer.
    """
    layer = last_convolution(model, images[:1], method="normgrad")
    return as_pixel_maps(normgrad_rule(*activation_and_gradients(model, layer, images, targets)), images)


def gradcam_rule(activation: Tensor, gradients: Tensor) -> Tensor:
    """relu(Σ_c mean(g_c) a_c)."""
    return (gradients.mean((3, 4), keepdim=True) * activation[:, None]).sum(2).relu()


def hirescam_rule(activation: Tensor, gradients: Tensor) -> Tensor:
    """Σ_c g_c ⊙ a_c, with its sign."""
    return (gradients * activation[:, None]).sum(2)


def normgrad_rule(activation: Tensor, gradients: Tensor) -> Tensor:
    """‖a‖·‖g‖ over the channels."""
    return activation.norm(dim=1)[:, None] * gradients.norm(dim=2)


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
    gradients = class_gradients(logits, taps[-1], targets)
    maps = (gradients.sum((-2, -1), keepdim=True) * taps[-1].detach()[:, None]).sum(2).relu()
    return as_pixel_maps(maps, images, mode="nearest")


def last_convolution(model: nn.Module, image: Tensor, *, method: str) -> nn.Module:
    """The last convolution of any kind to run whose output is a map; a convolution that is the classifier is not meant.

    A sharpened layer's output includes its pooling and ReLU, which are part of the layer.
    """
    return convolutions_with_a_map(model, image, method=method)[-1]


def convolutions_with_a_map(model: nn.Module, image: Tensor, *, method: str) -> list[nn.Module]:
    """All of those in the order they run, at least one."""
    ran, classes = _convolutions(model, image)
    if ran and ran[-1][1][1] == classes:
        ran.pop()
    candidates = [module for module, shape in ran if shape[2] * shape[3] > 1]
    if not candidates:
        raise NotApplicableError(f"{method} needs a convolution whose output is a map, and this network has none")
    return candidates


def classifier(model: nn.Module, image: Tensor) -> nn.Module | None:
    """The convolution that gives the classes, if the last to run does."""
    ran, classes = _convolutions(model, image)
    return ran[-1][0] if ran and ran[-1][1][1] == classes else None


def _convolutions(model: nn.Module, image: Tensor) -> tuple[list[tuple[nn.Module, torch.Size]], int]:
    """The convolutions in the order they run, with the shape of their output; the number of classes."""
    ran: list[tuple[nn.Module, torch.Size]] = []
    handles = [
        module.register_forward_hook(lambda module, _, output: ran.append((module, output.shape)))
        for module in model.modules()
        if isinstance(module, nn.Conv2d)
    ]
    try:
        with torch.no_grad():
            return ran, model(image).shape[1]
    finally:
        for handle in handles:
            handle.remove()


def activation_and_gradients(
    model: nn.Module, layer: nn.Module, images: Tensor, targets: Tensor, *, first_hook: bool = False
) -> tuple[Tensor, Tensor]:
    """The layer's output (N, C, h, w), and with respect to it the gradients (N, K, C, h, w) of logits `targets` (N, K).

    first_hook: of the output before any other hook changes it.
    """
    outputs: list[Tensor] = []

    def keep(_module: nn.Module, _inputs: tuple[Tensor, ...], output: Tensor) -> Tensor:
        outputs.append(output)
        return output.clone()  # what follows may work in place

    handle = layer.register_forward_hook(keep, prepend=first_hook)
    try:
        logits = model(images.detach().clone().requires_grad_())
    finally:
        handle.remove()
    return outputs[-1].detach(), class_gradients(logits, outputs[-1], targets)


def as_pixel_maps(maps: Tensor, images: Tensor, *, mode: str = "bilinear") -> Tensor:
    """Coarse maps (N, K, h, w) at the size of the images, every channel the same: (N, K, C, H, W)."""
    align = False if mode == "bilinear" else None
    fine = F.interpolate(maps.detach(), images.shape[2:], mode=mode, align_corners=align)
    return fine[:, :, None].expand(-1, -1, images.shape[1], -1, -1)
