"""NormGrad beyond the last convolution (Rebuffi et al. 2020): at any layer, of all of them combined, after a step.

Where a place's activation a_u and gradient g_u lie in a layer's output, ‖a_u‖·‖g_u‖ is the norm of what the place adds
to the gradient of a 1×1 convolution set to the identity behind the layer; so it exists at every layer.
"""

import copy
from collections.abc import Sequence
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from scs_eval.analyses.attribution.cam import (
    activation_and_gradients,
    as_pixel_maps,
    convolutions_with_a_map,
    last_convolution,
    normgrad_rule,
)
from scs_eval.analyses.attribution.methods import MapOptions, Method
from scs_eval.errors import InputError, NotApplicableError, did_you_mean

META_STEP = 1e-4  # learning rate of the inner step, that of the authors' code


def at_layer(record: Method, layer: str) -> Method:
    """NormGrad at the module of that name."""
    return Method(
        name=f"{record.name}:{layer}",
        label=f"NormGrad at {layer}",
        source=record.source,
        function=partial(_at_named_layer, layer),
        measures=f"‖activation‖·‖gradient‖ at each place of what {layer} gives",
        fails="never negative, so it cannot say what speaks against a class; early layers hardly know the class",
        empty=f"the gradient at {layer} is 0",
        resolution="coarse",
        needs=("gradient",),
    )


def _at_named_layer(name: str, model: nn.Module, images: Tensor, targets: Tensor, options: MapOptions) -> Tensor:
    names = [key for key, _ in model.named_modules() if key]
    here = next((key for key in names if key == name or key.endswith(f".{name}")), None)
    if here is None:
        raise InputError(f"the model has no layer {name!r}; {did_you_mean(name, names, otherwise=f'layers: {names}')}")
    return as_pixel_maps(layer_map(model, model.get_submodule(here), images, targets), images)


def layer_map(model: nn.Module, layer: nn.Module, images: Tensor, targets: Tensor) -> Tensor:
    """NormGrad (N, K, h, w) at a layer's output."""
    activation, gradients = activation_and_gradients(model, layer, images, targets)
    if activation.ndim != 4 or len(activation) != len(images):
        shape = tuple(activation.shape)
        raise NotApplicableError(f"normgrad needs a layer that gives a map for each image, and this one gives {shape}")
    return normgrad_rule(activation, gradients)


def combined(model: nn.Module, images: Tensor, targets: Tensor, options: MapOptions) -> Tensor:
    """Π_l M_l^(1/L): the geometric mean of NormGrad at all L convolutions, each bilinearly upsampled.

    The paper's weighted product with equal weights. Layers differ in scale by orders, which a product does not mind.
    """
    layers = convolutions_with_a_map(model, images[:1], method="normgrad-combined")
    logs: Sequence[Tensor] = [
        as_pixel_maps(layer_map(model, layer, images, targets), images).log() for layer in dict.fromkeys(layers)
    ]
    return torch.stack(list(logs)).mean(0).exp()


def meta(model: nn.Module, images: Tensor, targets: Tensor, options: MapOptions) -> Tensor:
    """NormGrad after one step of gradient descent on the cross-entropy of this image and class: θ − ε ∂L/∂θ.

    Every image and class starts from the same weights, on a copy of the network.
    """
    network = copy.deepcopy(model)
    layer = last_convolution(network, images[:1], method="normgrad-meta")
    start = {parameter: parameter.detach().clone() for parameter in network.parameters()}
    maps = [
        _after_step(network, layer, start, image[None], label.view(1, 1))
        for image, classes in zip(images, targets, strict=True)
        for label in classes
    ]
    return as_pixel_maps(torch.cat(maps).unflatten(0, targets.shape)[:, :, 0], images)


def _after_step(
    network: nn.Module, layer: nn.Module, start: dict[nn.Parameter, Tensor], image: Tensor, label: Tensor
) -> Tensor:
    """(1, 1, h, w), the network put back to its start first."""
    with torch.no_grad():
        for parameter, value in start.items():
            parameter.copy_(value)
            parameter.requires_grad_()
    loss = F.cross_entropy(network(image), label[0])
    slopes = torch.autograd.grad(loss, list(start), allow_unused=True, materialize_grads=True)
    with torch.no_grad():
        for parameter, slope in zip(start, slopes, strict=True):
            parameter.sub_(META_STEP * slope)
    return layer_map(network, layer, image, label)
