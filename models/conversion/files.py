"""Converted networks as files: weights, and in the metadata how to build the network that they fit."""

import json
import math
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scs_eval.errors import InputError
from scs_eval.models.conversion.convert import conversion
from scs_eval.models.conversion.target import ConversionSpec
from scs_eval.models.layers import Normalize
from scs_eval.models.loading.external import Statistics, is_factory, normalised
from scs_eval.models.loading.fill import refuse_size
from scs_eval.models.zoo.registry import create_model

if TYPE_CHECKING:
    from torch import Tensor, nn

    from scs_eval.models.loading.load import Loaded

KEY = "converted"


def save_converted(model: "nn.Module", path: Path, *, origin: "Loaded", spec: ConversionSpec) -> None:
    """Write the weights of `model`, which is `origin` with other layers, with a description of both."""
    from safetensors import SafetensorError
    from safetensors.torch import save_model

    description = {
        "source": origin.architecture,
        "num_classes": origin.num_classes,
        "statistics": _statistics(origin.model),
        "spec": asdict(spec),
    }
    try:
        save_model(model, str(path), metadata={KEY: json.dumps(description)})
    except SafetensorError as error:  # safetensors' own name for what the system says
        raise InputError(f"the network cannot be written: {error}; make room or choose another --out") from error


def build_converted(text: str, state: "dict[str, Tensor]", *, file: str, arch: str | None) -> tuple["nn.Module", str]:
    """The untrained network that a description means, and its name. A factory is called only if `arch` names it.

    state: what is to be put into it; a network far larger than that is not built.
    """
    try:
        description: dict[str, Any] = json.loads(text)
        form = description.get("spec") or description["form"]  # "form" until version 0.1
        spec = ConversionSpec(**form)
        source, statistics = str(description["source"]), _read_statistics(description["statistics"])
        num_classes = None if description.get("num_classes") is None else int(description["num_classes"])
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, OverflowError) as error:
        raise InputError(f"expected a description of a converted network in {file}, got {text[:80]!r}") from error
    if spec.same_function and "constants" not in form:
        raise InputError(f"{file} is of an older version, whose norms were centred; convert {source} again")
    if is_factory(source) and arch != source:
        raise InputError(f"the file was converted from {source}; give --arch {source} if that may be called")
    if not is_factory(source):
        from scs_eval.models.loading.load import count_numbers

        refuse_size(count_numbers(source, num_classes), state, file=file, name=source)
    start = _start(source, num_classes)
    start = start if statistics is None else normalised(start, statistics)
    return conversion(start, spec).model, f"{source} as {spec.layer}"


def _read_statistics(numbers: Any) -> Statistics | None:
    if numbers is None:
        return None
    mean, std = (tuple(map(float, part)) for part in numbers)
    if len(mean) != len(std) or len(mean) != 3 or not all(map(math.isfinite, (*mean, *std))) or min(std) <= 0:
        raise ValueError("no statistics of RGB images")
    return Statistics(mean, std)


def _start(source: str, num_classes: int | None) -> "nn.Module":
    from scs_eval.models.loading.load import UNTRAINED, open_source

    if num_classes is not None:
        return create_model(source, num_classes=num_classes)
    return open_source(source, weights=None if is_factory(source) else UNTRAINED).model


def _statistics(model: "nn.Module") -> Statistics | None:
    """Those of the normalisation in front of an external model."""
    first = next(model.children(), None)
    if not isinstance(first, Normalize) or len(list(model.children())) != 2:
        return None
    return Statistics(tuple(first.mean.flatten().tolist()), tuple(first.std.flatten().tolist()))
