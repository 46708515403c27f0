"""A trained model from its name or its file. A checkpoint is data: nothing in it is ever run."""

import hashlib
import json
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scs_eval.errors import InputError
from scs_eval.models.registry import canonical_name, create_model, list_models, resolve

if TYPE_CHECKING:
    import torch
    from torch import nn

WEIGHTS = Path(__file__).parent / "weights"


@cache
def weights_index() -> dict[str, dict[str, Any]]:
    """The shipped weights: canonical model name to file, sha256, accuracy, recipe and what else training recorded."""
    index: dict[str, dict[str, Any]] = json.loads((WEIGHTS / "index.json").read_text())
    return index


def load_model(source: str | Path, *, device: "torch.device | str" = "cpu") -> "nn.Module":
    """A trained network in evaluation mode: a zoo name with shipped weights, or a safetensors file of a zoo network."""
    path = Path(source)
    if path.suffix == ".safetensors" or path.is_file():
        return _from_file(path, device)
    name = canonical_name(str(source))
    entry = weights_index().get(name)
    if entry is None:
        trained = ", ".join(sorted(weights_index())) or "none yet"
        raise InputError(f"no trained weights for {name!r} (trained: {trained}); create_model builds it untrained")
    file = WEIGHTS / entry["file"]
    if hashlib.sha256(file.read_bytes()).hexdigest() != entry["sha256"]:
        raise InputError(f"the weights of {name!r} are damaged: {file.name} does not match its sha256; reinstall")
    return _from_file(file, device)


def _from_file(path: Path, device: "torch.device | str") -> "nn.Module":
    from safetensors import SafetensorError, safe_open

    if not path.is_file():
        raise InputError(f"no such file: {path}")
    try:
        with safe_open(path, framework="pt", device=str(device)) as file:
            metadata = file.metadata() or {}
            state = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118 - not a mapping
    except SafetensorError as error:
        raise InputError(f"{path.name} is not a safetensors file: {error}") from error
    return _fill(path.name, metadata, state).to(device).eval()


def _fill(file: str, metadata: dict[str, str], state: dict[str, Any]) -> "nn.Module":
    name, classes = metadata.get("name", ""), metadata.get("num_classes", "10")
    if not (name in list_models() or (name and resolve(name, missing_ok=True))) or not classes.isdigit():
        said = f"name {name or 'missing'!r}, num_classes {classes!r}"
        raise InputError(f"{file} does not say which zoo network it holds (metadata: {said})")
    model = create_model(name, num_classes=int(classes))
    try:
        model.load_state_dict(state)
    except RuntimeError as error:
        raise InputError(f"the weights in {file} do not fit {name}: {error}") from error
    return model
