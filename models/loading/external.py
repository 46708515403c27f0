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


class Statistics(NamedTuple):
    """What an external model's training subtracted from each channel and divided it by."""

    mean: tuple[float, ...]
    std: tuple[float, ...]


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


def torchvision_network(
    name: str, *, trained: bool, num_classes: int | None = None
) -> tuple[nn.Module, Statistics | None]:
    """A classifier of torchvision, with its default weights and their normalisation or without either."""
    from torchvision import models

    if name not in (names := models.list_models(module=models)):
        hint = did_you_mean(name, names, otherwise="see torchvision.models.list_models()", most=2)
        raise InputError(f"torchvision has no classifier {name!r}; {hint}")
    if not trained:
        head = {} if num_classes is None else {"num_classes": num_classes}
        return models.get_model(name, weights=None, **head), None
    weights = models.get_model_weights(name).DEFAULT
    transforms = weights.transforms()
    try:
        return models.get_model(name, weights=weights), Statistics(tuple(transforms.mean), tuple(transforms.std))
    except (OSError, RuntimeError) as error:  # urllib's errors are OSErrors
        raise InputError(f"torchvision could not fetch the weights of {name} ({error}); give a file of them") from error


def timm_network(name: str, *, trained: bool, num_classes: int | None = None) -> tuple[nn.Module, Statistics | None]:
    """A classifier of timm, with its default weights and their normalisation or without either."""
    try:
        import timm
    except ImportError as error:
        raise InputError("timm:NAME needs the package timm; pip install 'scs-eval[timm]'") from error
    if not timm.is_model(name):
        hint = did_you_mean(name, timm.list_models(), otherwise="see timm.list_models()", most=2)
        raise InputError(f"timm has no classifier {name!r}; {hint}")
    head: dict[str, Any] = {} if num_classes is None else {"num_classes": num_classes}
    try:
        model: nn.Module = timm.create_model(name, pretrained=trained, **head)
    except (OSError, RuntimeError) as error:
        raise InputError(f"timm could not fetch the weights of {name} ({error}); give a file of them") from error
    settings = getattr(model, "pretrained_cfg", {})
    return model, Statistics(tuple(settings["mean"]), tuple(settings["std"])) if trained else None


PACKAGES = {"torchvision": torchvision_network, "timm": timm_network}


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
