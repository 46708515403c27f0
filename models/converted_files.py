"""Converted networks as files: weights, and in the metadata how to build the network that they fit."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scs_eval.errors import InputError
from scs_eval.models.convert import conversion
from scs_eval.models.foreign import Statistics, is_factory, normalised
from scs_eval.models.form import Form
from scs_eval.models.layers import Normalize
from scs_eval.models.registry import create_model

if TYPE_CHECKING:
    from torch import nn

    from scs_eval.models.checkpoints import Loaded

KEY = "converted"


def save_converted(model: "nn.Module", path: Path, *, origin: "Loaded", form: Form) -> None:
    """Write the weights of `model`, which is `origin` in another form, with a description of both."""
    from safetensors.torch import save_model

    description = {
        "source": origin.architecture,
        "num_classes": origin.num_classes,
        "statistics": _statistics(origin.model),
        "form": asdict(form),
    }
    save_model(model, str(path), metadata={KEY: json.dumps(description)})


def build_converted(text: str, *, arch: str | None) -> tuple["nn.Module", str]:
    """The untrained network that a description means, and its name. A factory is called only if `arch` names it."""
    try:
        said: dict[str, Any] = json.loads(text)
        source, form, statistics = str(said["source"]), Form(**said["form"]), said["statistics"]
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(f"expected a description of a converted network, got {text[:80]!r}") from error
    if is_factory(source) and arch != source:
        raise InputError(f"the file was converted from {source}; give --arch {source} if that may be called")
    start = _start(source, said.get("num_classes"))
    start = start if statistics is None else normalised(start, Statistics(*map(tuple, statistics)))
    return conversion(start, form).model, f"{source} as {form.layer}"


def _start(source: str, num_classes: int | None) -> "nn.Module":
    from scs_eval.models.checkpoints import UNTRAINED, open_source

    if num_classes is not None:
        return create_model(source, num_classes=num_classes)
    return open_source(source, weights=None if is_factory(source) else UNTRAINED).model


def _statistics(model: "nn.Module") -> Statistics | None:
    """Those of the normalisation in front of a foreign model."""
    first = next(model.children(), None)
    if not isinstance(first, Normalize) or len(list(model.children())) != 2:
        return None
    return Statistics(tuple(first.mean.flatten().tolist()), tuple(first.std.flatten().tolist()))
