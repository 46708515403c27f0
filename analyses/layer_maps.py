"""Attribution from one layer's activations and their gradients: Grad-CAM and NormGrad."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from scs_eval.errors import InputError


class UnsuitableError(InputError):
    """The method cannot serve this model; the message says why."""


def gradcam(model: nn.Module, images: Tensor, targets: Tensor, seed: int = 0) -> Tensor:
    """Grad-CAM at the last convolution, relu(Σ_c mean(g_c) a_c), bilinearly upsampled (Selvaraju et al. 2017)."""
    from captum.attr import LayerGradCam

    layer = last_convolution(model, images[:1], method="gradcam")
    coarse = LayerGradCam(model, layer).attribute(images, target=targets, relu_attributions=True)
    return _upsampled(coarse, images)


def normgrad(model: nn.Module, images: Tensor, targets: Tensor, seed: int = 0) -> Tensor:
    """NormGrad at the last convolution: ‖a_u‖·‖g_u‖ at each place u, bilinearly upsampled (Rebuffi et al. 2020).

    It is the norm of what the place adds to the gradient of a 1×1 convolution set to the identity behind the layer.
    """
    layer = last_convolution(model, images[:1], method="normgrad")
    activation, gradient = activation_and_gradient(model, layer, images, targets)
    return _upsampled(activation.norm(dim=1, keepdim=True) * gradient.norm(dim=1, keepdim=True), images)


def last_convolution(model: nn.Module, image: Tensor, *, method: str) -> nn.Module:
    """The last convolution of any kind to run whose output is a map; a convolution that is the classifier is not meant.

    A sharpened layer's output includes its pooling and ReLU, which are part of the layer.
    """
    ran, classes = _convolutions(model, image)
    if ran and ran[-1][1][1] == classes:
        ran.pop()
    found = [module for module, shape in ran if shape[2] * shape[3] > 1]
    if not found:
        raise UnsuitableError(f"{method} needs a convolution whose output is a map, and this network has none")
    return found[-1]


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


def activation_and_gradient(
    model: nn.Module, layer: nn.Module, images: Tensor, targets: Tensor
) -> tuple[Tensor, Tensor]:
    """The layer's output (N, K, h, w) and the gradient of the target logits with respect to it."""
    kept: list[Tensor] = []

    def keep(_module: nn.Module, _inputs: tuple[Tensor, ...], output: Tensor) -> Tensor:
        kept.append(output)
        return output.clone()  # what follows may work in place

    handle = layer.register_forward_hook(keep)
    try:
        logits = model(images.detach().clone().requires_grad_()).gather(1, targets[:, None])
    finally:
        handle.remove()
    return kept[-1].detach(), torch.autograd.grad(logits.sum(), kept[-1])[0]


def _upsampled(coarse: Tensor, images: Tensor) -> Tensor:
    fine = F.interpolate(coarse.detach(), images.shape[2:], mode="bilinear", align_corners=False)
    return fine.expand(-1, images.shape[1], -1, -1)
