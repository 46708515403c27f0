"""Any class of captum.attr that explains a logit by its image, or by the last convolution's output, as a method.

`captum:NAME` and the class itself mean the same: the class with its own defaults. What it asks for besides comes from
here: the last convolution as the layer, even images of random colours as a distribution of baselines, squares of a
sixth of the image as the features that are hidden. A class that explains something else says so.
"""

import inspect
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from scs_eval.analyses.attribution.cam import as_pixel_maps, last_convolution
from scs_eval.analyses.attribution.gradient import references_for
from scs_eval.analyses.attribution.methods import CAPTUM, MapOptions, Method, Total
from scs_eval.analyses.attribution.perturbation import window
from scs_eval.analyses.attribution.propagation import own_copy
from scs_eval.analyses.core.seeding import seeded
from scs_eval.errors import InputError, NotApplicableError, did_you_mean

REFUSED = {
    "FeaturePermutation": "shuffles a batch, so that a map would depend on the images beside it",
    "LayerFeaturePermutation": "shuffles a batch, so that a map would depend on the images beside it",
    "ShapleyValues": "costs 2^features passes; take ShapleyValueSampling",
    "LayerFeatureAblation": "hides every number of a layer by itself; pass a function that has a layer_mask",
    "NoiseTunnel": "wraps another method; pass a function of (model, images, targets) that makes both",
    "DataLoaderAttribution": "explains a whole data set",
}
GRADIENTS = ("Saliency", "GuidedBackprop", "Deconvolution")  # the change of the logit, not multiplied by the input
RANDOM = ("GradientShap", "LayerGradientShap", "Lime", "KernelShap", "ShapleyValueSampling")
FEW = {"DeepLift": 2, "LayerDeepLift": 2, "GradientShap": 5, "LayerGradientShap": 5}
MANY = ("IntegratedGradients", "Conductance", "Shap", "Influence", "Ablation", "Occlusion", "Lime", "Shapley")
# Whole pixels of these add up; those of squares and layers do so before they are enlarged to the image.
ADDS_UP_TO: dict[str, Total] = {
    "IntegratedGradients": "change from black",
    "DeepLift": "change from black",
    "DeepLiftShap": "change from references",
    "GradientShap": "change from references",
    "LRP": "logit",
}
TINY = 1e-12  # added to a denominator
COSTLY = 50  # forward passes, or more: what a class does besides is its own affair


def method_named(name: str) -> Method:
    """The method that is the class of captum.attr with that name."""
    import captum.attr

    kind = getattr(captum.attr, name, None)
    if not inspect.isclass(kind):
        hint = did_you_mean(name, captum.attr.__all__, otherwise="its names have capitals: captum:Saliency", most=2)
        raise InputError(f"captum.attr has no class {name!r}; {hint}")
    return method_of(kind)


def method_of(kind: type) -> Method:
    """The record of a class, or in one line why it is no method of ours."""
    name = kind.__name__
    if why := _unsuited(kind):
        raise InputError(f"captum's {name} cannot explain an image by its class: it {why}")
    layer, many = _is_layer(kind), any(part in name for part in MANY)
    return Method(
        name=f"{CAPTUM}{name}",
        label=f"captum's {name}",
        source="captum.attr",
        function=partial(explain_by_captum, kind),
        measures=(inspect.getdoc(kind) or name).partition("\n")[0].strip() or name,
        fails="see captum's documentation",
        passes=FEW.get(name, COSTLY if many else 1),
        quantity="sensitivity" if name in GRADIENTS else "contribution",
        resolution="coarse" if layer and name != "GuidedGradCam" else "pixel",
        class_specific="target" in inspect.signature(kind.attribute).parameters,  # type: ignore[attr-defined]
        adds_up_to=ADDS_UP_TO.get(name),
        needs=("convolution",) if layer else (),
        reads=("seed",) if name in RANDOM else (),
        shares_passes=False,
        image_by_image=name in RANDOM,
        own=True,
    )


def _unsuited(kind: type) -> str:
    """Why a class cannot be used; empty if it can."""
    from captum.attr import Attribution, NeuronAttribution

    if kind.__name__ in REFUSED:
        return REFUSED[kind.__name__]
    if not (issubclass(kind, Attribution) and callable(getattr(kind, "attribute", None))):
        return "has no attributions of its own"
    if issubclass(kind, NeuronAttribution):
        return "explains a neuron; see scs_eval.neurons"
    required = [
        parameter.name
        for parameter in list(inspect.signature(kind).parameters.values())[1:]
        if parameter.default is parameter.empty and parameter.name not in ("layer", "kwargs", "args")
    ]
    return f"needs {', '.join(required)}; pass a function of (model, images, targets)" if required else ""


def explain_by_captum(kind: Any, model: nn.Module, images: Tensor, targets: Tensor, options: MapOptions) -> Tensor:
    """(N, K, C, H, W) what the class gives for each of K classes `targets` (N, K)."""
    single = kind.__name__ in RANDOM
    parts = [(images, targets)] if not single else zip(images.split(1), targets.split(1), strict=True)
    return torch.cat([_some(kind, model, x, classes, options) for x, classes in parts])


def _some(kind: Any, model: nn.Module, images: Tensor, targets: Tensor, options: MapOptions) -> Tensor:
    copied = own_copy(model)  # for captum to hook into
    if "LRP" in kind.__name__:
        _give_rules(copied)
    layer = last_convolution(copied, images[:1], method=f"{CAPTUM}{kind.__name__}") if _is_layer(kind) else None
    maps = []
    for classes in targets.unbind(1):
        with seeded([options.seed]):
            maps.append(_attributions(kind, copied, layer, images, classes, options))
    return torch.stack(maps, 1)


def _give_rules(model: nn.Module) -> None:
    """Let relevance pass through what only reshapes its input, for which captum's LRP has no rule of its own."""
    from captum.attr._utils.lrp_rules import EpsilonRule

    for module in model.modules():
        if isinstance(module, nn.Flatten | nn.Unflatten | nn.Identity):
            module.rule = EpsilonRule(epsilon=TINY)  # what captum reads


def _attributions(
    kind: Any, model: nn.Module, layer: nn.Module | None, images: Tensor, classes: Tensor, options: MapOptions
) -> Tensor:
    """(N, C, H, W) of one class each."""
    made = {} if layer is None else {"layer": layer}
    try:
        method = kind(model, **made)
        maps = method.attribute(images.clone().requires_grad_(), **_arguments(kind, images, classes, options))
    except torch.OutOfMemoryError:
        raise
    except (RuntimeError, AssertionError, ValueError, TypeError, NotImplementedError, AttributeError) as error:
        reason = (str(error) or type(error).__name__).splitlines()[0]
        raise NotApplicableError(f"{CAPTUM}{kind.__name__} cannot explain this network: {reason}") from error
    maps = maps.detach() if isinstance(maps, Tensor) else maps[0].detach()
    if maps.shape == images.shape:
        return maps
    if maps.ndim != 4:
        raise NotApplicableError(f"{CAPTUM}{kind.__name__} gave no map, but shape {tuple(maps.shape)}")
    return as_pixel_maps(maps.sum(1, keepdim=True), images)[:, 0]


def _arguments(kind: Any, images: Tensor, classes: Tensor, options: MapOptions) -> dict[str, Any]:
    """What `attribute` asks for, by its names."""
    known = inspect.signature(kind.attribute).parameters
    arguments: dict[str, Any] = {"target": classes} if "target" in known else {}
    if "baselines" in known and known["baselines"].default is inspect.Parameter.empty:
        arguments["baselines"] = references_for(images, options)
    side = window(min(images.shape[2:]))
    if "sliding_window_shapes" in known:
        arguments |= {"sliding_window_shapes": (images.shape[1], side, side), "strides": (images.shape[1], side, side)}
    elif "feature_mask" in known and not _is_layer(kind):
        arguments["feature_mask"] = squares(images, side)
    return arguments


def squares(images: Tensor, side: int) -> Tensor:
    """(1, 1, H, W) the number of the square of so many pixels that each pixel lies in."""
    rows, columns = (torch.arange(length, device=images.device) // side for length in images.shape[2:])
    return (rows[:, None] * (int(columns.max()) + 1) + columns)[None, None]


def _is_layer(kind: type) -> bool:
    """Whether a layer is to be named, which is the last convolution then."""
    return "layer" in inspect.signature(kind).parameters
