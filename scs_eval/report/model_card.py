"""What a reader should know about a model: where it comes from, how it was trained, what its maps leave out."""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scs_eval.models.loading.load import is_file
from scs_eval.models.loading.sources import ModelSource, NamedModel
from scs_eval.report.model_facts import metadata_of_file

if TYPE_CHECKING:
    from torch import nn

    from scs_eval.analyses.compare.result import CompareResult

Facts = dict[str, str]
LONGEST = 80  # characters of a value in a file's metadata that is shown


def model_card(label: str, model: "nn.Module | NamedModel", result: "CompareResult") -> Facts:
    """The facts about a model of a comparison, in the order they are read; fewer of one that was just handed over."""
    named = model if isinstance(model, NamedModel) else None
    network = model.model if isinstance(model, NamedModel) else model
    facts = {
        **(_origin(named) if named else {}),
        "parameters": f"{sum(parameter.numel() for parameter in network.parameters()):,}",
        **(_training(named.origin) if named else {}),
        "completeness": _completeness(label, result),
        "loading": "; ".join(named.loaded.notes) if named else "",
        "sha256": (_sha256_of_file(named.origin) if named else None) or _sha256_of_tensors(network),
    }
    return {what: value for what, value in facts.items() if value}


def _origin(named: NamedModel) -> Facts:
    source, size = named.origin.source, named.input_size
    return {
        "source": source,
        "architecture": named.architecture if named.architecture != source else "",
        "input": f"{size} × {size} pixels" if size else "",
    }


def _training(origin: ModelSource) -> Facts:
    """What the index of shipped weights records, or a file says of itself."""
    if entry := origin.shipped():
        return _recorded(entry)
    if not is_file(origin.source):
        return {}
    metadata = metadata_of_file(origin.source)
    return {"the file says": ", ".join(f"{key} {value}" for key, value in metadata.items() if len(value) < LONGEST)}


def _recorded(entry: Mapping[str, Any]) -> Facts:
    recipe, seconds = entry.get("recipe", {}), entry.get("train_seconds_per_epoch")
    words = [f"{entry['epochs']} epochs of {entry['data']}", f"seed {entry['seed']}"]
    words += [f"{recipe[key]} {text}".strip() for key, text in (("optimizer", ""), ("schedule", "")) if key in recipe]
    words += [
        f"{text} {recipe[key]}"
        for key, text in (("lr", "learning rate"), ("batch_size", "batches of"))
        if key in recipe
    ]
    words += [f"{seconds:.3g} s per epoch"] if seconds else []
    low, high = entry["interval"]
    accuracy = f"{entry['accuracy']:.1%} [{low:.1%}, {high:.1%}] of {entry['n']:,} test images, when trained"
    return {"training": ", ".join(words), "recorded accuracy": accuracy}


def _completeness(label: str, result: "CompareResult") -> str:
    """Of how many images the map, the biases and nothing else make the logit."""
    part = result.parts.get("contributions")
    explained = next((member for member in getattr(part, "results", ()) if member.label == label), None)
    if explained is None:
        return ""
    table = explained.table()
    most, bias = table["relative_residual"].max(), table["bias_share"].mean()
    whole = f"W(x)·x + b(x) is the logit for {int(explained.complete.sum())} of {len(explained.complete)} images"
    return f"{whole} (misses {most:.0e} of it at most); |b(x)| is {bias:.2%} of what is added up, on average"


def _sha256_of_file(origin: ModelSource) -> str | None:
    """Of the file of weights, if there is one."""
    file = origin.source if is_file(origin.source) else origin.weights
    if file is not None and Path(file).is_file():
        return hashlib.sha256(Path(file).read_bytes()).hexdigest()
    return origin.shipped().get("sha256")


def _sha256_of_tensors(network: "nn.Module") -> str:
    """Of a network in memory."""
    digest = hashlib.sha256()
    for name, tensor in network.state_dict().items():
        digest.update(name.encode() + tensor.detach().cpu().double().numpy().tobytes())
    return f"{digest.hexdigest()} (of the tensors, as float64)"
