"""What a reader should know about a model: where it comes from, how it was trained, what its maps leave out."""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from scs_eval.cli.sources import asked_for, input_size_of, said, source_of

if TYPE_CHECKING:
    from torch import nn

    from scs_eval.analyses.compare_result import CompareResult

Facts = dict[str, str]


def card(name: str, model: "nn.Module", result: "CompareResult") -> Facts:
    """The facts about a model of a comparison, in the order they are read."""
    source = source_of(name)
    size = input_size_of(name)
    loaded = (said("loaded") or {}).get(source)
    facts = {
        "source": source,
        "architecture": loaded.architecture if loaded is not None and loaded.architecture != source else "",
        "parameters": f"{sum(each.numel() for each in model.parameters()):,}",
        "input": f"{size} × {size} pixels" if size else "",
        **_training(source),
        "completeness": _completeness(name, result),
        "loading": "; ".join(loaded.notes) if loaded is not None else "",
        "sha256": _sha256(source, model),
    }
    return {what: value for what, value in facts.items() if value}


def _training(source: str) -> Facts:
    """What the index of shipped weights records, or a file says of itself."""
    from scs_eval.models.checkpoints import is_file, weights_index

    if entry := weights_index().get(source) if asked_for()["weights"] is None else None:
        return _recorded(entry)
    if not is_file(source):
        return {}
    from scs_eval.models.state_files import metadata_of

    told = ", ".join(f"{key} {value}" for key, value in metadata_of(Path(source)).items() if len(value) < 80)
    return {"the file says": told}


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


def _completeness(name: str, result: "CompareResult") -> str:
    """Of how many images the map, the biases and nothing else make the logit."""
    part = result.parts.get("contributions")
    one = next((each for each in getattr(part, "results", ()) if each.label == name), None)
    if one is None:
        return ""
    table = one.table()
    most, bias = table["relative_residual"].max(), np.nanmean(np.abs(table["bias_share"]))
    whole = f"W(x)·x + b(x) is the logit for {int(one.complete.sum())} of {len(one.complete)} images"
    return f"{whole} (misses {most:.0e} of it at most); |b(x)| is {bias:.2g} × |logit| on average"


def _sha256(source: str, model: "nn.Module") -> str:
    """Of the file of weights; of a network without one, of its tensors in memory."""
    from scs_eval.models.checkpoints import is_file, weights_index

    file = source if is_file(source) else asked_for()["weights"]
    if file is not None and Path(file).is_file():
        return hashlib.sha256(Path(file).read_bytes()).hexdigest()
    if file is None and (entry := weights_index().get(source)):
        return str(entry["sha256"])
    digest = hashlib.sha256()
    for name, tensor in model.state_dict().items():
        digest.update(name.encode() + tensor.detach().cpu().double().numpy().tobytes())
    return f"{digest.hexdigest()} (of the tensors, as float64)"
