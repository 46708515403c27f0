"""Networks of torchvision and timm by name, and of any factory that the user names. Nothing a file says runs."""

import importlib
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from torch import nn

from scs_eval.errors import InputError, did_you_mean
from scs_eval.models.layers import Normalize
from scs_eval.plugins import module_of_file

STATISTICS = {
    "imagenet": ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
    "cifar10": ((0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)),
}

OTHERWISE = "give a file of them with --weights, or --weights none to take it untrained"


class Statistics(NamedTuple):
    """What an external model's training subtracted from each channel and divided it by."""

    mean: tuple[float, ...]
    std: tuple[float, ...]

    @property
    def text(self) -> str:
        """As `parse_statistics` reads it."""
        same = len(set(self.mean)) == len(set(self.std)) == 1
        numbers = (self.mean[0], self.std[0]) if same else (*self.mean, *self.std)
        return ",".join(f"{number:.4g}" for number in numbers)


def parse_statistics(text: str) -> Statistics:
    """`imagenet`, `cifar10`, `mean,std` for all channels, or three means and three deviations, all between commas."""
    if text in STATISTICS:
        return Statistics(*STATISTICS[text])
    try:
        numbers = tuple(float(part) for part in text.split(","))
    except ValueError:
        numbers = ()
    if len(numbers) not in (2, 6) or not all(map(math.isfinite, numbers)) or min(numbers[len(numbers) // 2 :]) <= 0:
        known = ", ".join(STATISTICS)
        raise InputError(f"expected {known}, mean,std or three means and three positive deviations, got {text!r}")
    half = len(numbers) // 2
    return Statistics(numbers[:half] * (3 // half), numbers[half:] * (3 // half))


def normalised(model: nn.Module, statistics: Statistics) -> nn.Module:
    """The model with its normalisation inside, so that it takes RGB in [0, 1]."""
    return nn.Sequential(Normalize(statistics.mean, statistics.std), model)


class PackageNetwork(NamedTuple):
    """A network of a package, what the package says its images are normalised by, and their side."""

    model: nn.Module
    statistics: Statistics
    input_size: int


def torchvision_network(name: str, *, trained: bool, num_classes: int | None = None) -> PackageNetwork:
    """A classifier of torchvision, with its default weights or untrained."""
    from torchvision import models

    if name not in (names := models.list_models(module=models)):
        hint = did_you_mean(name, names, otherwise="see torchvision.models.list_models()", most=2)
        raise InputError(f"torchvision has no classifier {name!r}; {hint}")
    weights = models.get_model_weights(name).DEFAULT
    transforms = weights.transforms()
    head = {} if trained or num_classes is None else {"num_classes": num_classes}
    try:
        model = models.get_model(name, weights=weights if trained else None, **head)
    except (OSError, RuntimeError) as error:  # urllib's errors are OSErrors
        raise InputError(f"torchvision could not fetch the weights of {name} ({error}); {OTHERWISE}") from error
    size = getattr(model, "image_size", None) or transforms.crop_size[0]  # a ViT takes no other
    return PackageNetwork(model, Statistics(tuple(transforms.mean), tuple(transforms.std)), int(size))


def timm_network(name: str, *, trained: bool, num_classes: int | None = None) -> PackageNetwork:
    """A classifier of timm, with its default weights or untrained."""
    try:
        import timm
    except ImportError as error:
        raise InputError("timm:NAME needs the package timm; pip install 'scs-eval[timm]'") from error
    if not timm.is_model(name):
        hint = did_you_mean(name, timm.list_models(), otherwise="see timm.list_models()", most=2)
        raise InputError(f"timm has no classifier {name!r}; {hint}")
    head: dict[str, Any] = {} if num_classes is None else {"num_classes": num_classes}
    if trained and (file := _cached_by_timm(name)):  # no question to the network where the answer is here
        head["pretrained_cfg_overlay"] = {"file": file}
    try:
        model: nn.Module = timm.create_model(name, pretrained=trained, **head)
    except (OSError, RuntimeError) as error:
        raise InputError(f"timm could not fetch the weights of {name} ({error}); {OTHERWISE}") from error
    settings = timm_settings(model)
    assert settings is not None
    return PackageNetwork(model, *settings)


def _cached_by_timm(name: str) -> str | None:
    """The file of a network's weights in the Hub's cache, if it was fetched before."""
    import timm
    from huggingface_hub import try_to_load_from_cache

    repository = getattr(timm.models.get_pretrained_cfg(name), "hf_hub_id", None)
    names = ("model.safetensors", "pytorch_model.bin") if repository else ()
    cached = (try_to_load_from_cache(str(repository), file) for file in names)
    return next((file for file in cached if isinstance(file, str)), None)


def timm_settings(model: nn.Module) -> tuple[Statistics, int] | None:
    """What a network that timm made says of its images: their normalisation and their side."""
    settings = getattr(model, "pretrained_cfg", None)
    if not isinstance(settings, dict) or not {"mean", "std", "input_size"} <= settings.keys():
        return None
    return Statistics(tuple(settings["mean"]), tuple(settings["std"])), int(settings["input_size"][-1])


PACKAGES = {"torchvision": torchvision_network, "timm": timm_network}


def package_input_size(source: str) -> int:
    """The side of the images that the untrained network of `torchvision:NAME` or `timm:NAME` takes."""
    import torch

    package, _, name = source.partition(":")
    with torch.device("meta"):  # built without memory for its numbers
        return PACKAGES[package](name, trained=False).input_size


def package_of(source: str) -> str | None:
    """The package of `torchvision:NAME` or `timm:NAME`."""
    package, colon, _ = source.partition(":")
    return package if colon and package in PACKAGES else None


def is_factory(source: str) -> bool:
    """Whether the text is `package.module:function` or `file.py:function`."""
    module, colon, function = source.rpartition(":")
    named = module.endswith(".py") or all(part.isidentifier() for part in module.split("."))
    return bool(colon) and function.isidentifier() and named and module not in PACKAGES


def factory_network(source: str) -> nn.Module:
    """What the function returns; calling it is what the user asked for."""
    location, _, name = source.rpartition(":")
    module = module_of_file(Path(location)) if location.endswith(".py") else _module(location)
    factory = getattr(module, name, None)
    if not callable(factory):
        raise InputError(f"{location} has no function {name!r}")
    return _called(factory, source)


def _called(factory: Callable[[], Any], source: str) -> nn.Module:
    try:
        model = factory()
    except Exception as error:  # the user's code may raise anything
        raise InputError(f"{source} failed: {type(error).__name__}: {error}") from error
    if not isinstance(model, nn.Module):
        raise InputError(f"expected a torch.nn.Module from {source}, got {type(model).__name__}")
    return model


def _module(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise InputError(f"cannot import {name}: {error}") from error
