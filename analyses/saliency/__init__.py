"""Where does the model look, and how sparse, specific and steady are its maps?

The SCS paper (sections 4.4 and 5.2) reads from pictures that sharpening makes saliency maps sparser. Here the pictures
come with numbers over many images, and with a paired test against a reference that a rule names.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from scs_eval.analyses.attribution import metrics as map_metrics
from scs_eval.analyses.attribution.attribute import attribute
from scs_eval.analyses.attribution.completeness import totals
from scs_eval.analyses.attribution.methods import MapOptions, find_method
from scs_eval.analyses.attribution.own_methods import MethodLike, method_name
from scs_eval.analyses.core.batching import images_at_once, slices
from scs_eval.analyses.core.inference import BATCH, predict_logits
from scs_eval.analyses.core.inputs import (
    ArrayLike,
    Examples,
    ImagesLike,
    ModelLike,
    as_examples,
    as_model,
    check_several_classes,
)
from scs_eval.analyses.core.model_state import device_of, evaluating
from scs_eval.analyses.core.validation import check_images, check_labels, check_names
from scs_eval.analyses.saliency.reductions import find_reduction
from scs_eval.analyses.saliency.result import SaliencyComparison as SaliencyComparison
from scs_eval.analyses.saliency.result import SaliencyResult as SaliencyResult
from scs_eval.errors import InputError, did_you_mean

BLOCK = 500  # images held at once, fewer of large ones


def saliency(
    model: ModelLike,
    images: ImagesLike,
    labels: ArrayLike | None = None,
    *,
    classes: Sequence[str] | None = None,
    method: MethodLike = "grad",
    reduce: str = "max",
    target: str | int = "predicted",
    label: str = "model",
    indices: ArrayLike | None = None,
    shown: int = 6,
    radius: float = map_metrics.RADIUS,
    samples: int = map_metrics.SAMPLES,
    seed: int = 0,
    network: str = "",
    accuracy: float | None = None,
    class_accuracy: Mapping[str, float] | None = None,
) -> SaliencyResult:
    """Maps of a class's logit for images (n, 3, H, W) in [0, 1], and their metrics.

    images: arrays with labels (n,), or data that bring labels, classes and indices; without labels nothing is right.
    method: as `attribute` takes it: a name, a class of captum.attr, a function of (model, images, targets).
    target: "predicted", "label", or one class for all images (its name or position).
    reduce: max, mean or norm over the channels' absolute values; sum: |Σ|; positive: the positive part of Σ.
    radius, samples: of max-sensitivity; no samples, no max-sensitivity. indices: where the images came from.
    network: the model's name in the zoo if `label` is another, by which its reference is found.

    >>> import scs_eval
    >>> data = scs_eval.load_data("sample", n=4)
    >>> model = scs_eval.load_model("rohrer25k_scs")
    >>> scs_eval.saliency(model, data.images, data.labels, classes=data.classes, samples=0).maps.shape
    (4, 32, 32)
    """
    check_names(label=label)
    model, method = as_model(model), method_name(method)
    data = as_examples(images, labels, classes=classes, indices=indices)
    names = data.class_names(model)
    _check(data, names, target, method=method, shown=shown, radius=radius, samples=samples)
    maps = _explain_blocks(
        model, data, target, names, method=method, reduce=reduce, seed=seed, radius=radius, samples=samples
    )  # fmt: skip
    known = {"device": str(device_of(model)), "radius": radius, "sensitivity_samples": samples, "seed": seed}
    return SaliencyResult(
        label=label,
        settings={**data.settings, **known},
        model=label,
        method=method,
        reduce=reduce,
        target=target if isinstance(target, str) else names[target],
        classes=names,
        indices=data.indices.numpy(),
        labels=data.labels.long().cpu().numpy(),
        images=data.images[:shown].cpu().numpy().astype(np.float32),
        network=network,
        accuracy=accuracy,
        class_accuracy=dict(class_accuracy or {}),
        **maps,
    )


def _check(
    data: Examples, classes: Sequence[str], target: str | int, *, method: str, shown: int, radius: float, samples: int
) -> None:
    """Raise one line about the first thing that is wrong, before any work."""
    find_method(method)
    check_images(data.images)
    if data.labelled or target == "label":
        check_labels(data.labels, images=data.images, classes=classes)
    check_several_classes(classes)
    if shown < 1 or samples < 0 or not 0 < radius <= 1:
        raise InputError(f"expected shown ≥ 1, samples ≥ 0, 0 < radius ≤ 1, got {shown}, {samples}, {radius}")


def _explain_blocks(
    model: nn.Module, data: Examples, target: str | int, classes: Sequence[str], **options: Any
) -> dict[str, Any]:
    """`_explain` of some hundred images at a time: no more are held, only their maps without channels."""
    parts = [
        _explain(model, data.images[part], data.labels[part], target, classes, **options)
        for part in slices(len(data.images), images_at_once(data.images, BLOCK))
    ]
    together: dict[str, Any] = {
        name: None if value is None else np.concatenate([part[name] for part in parts])
        for name, value in parts[0].items()
        if name != "seconds"
    }
    return {**together, "seconds": sum(part["seconds"] for part in parts) / len(data.images)}


def _explain(
    model: nn.Module, images: Tensor, labels: Tensor, target: str | int, classes: Sequence[str], *, method: str,
    reduce: str, seed: int, radius: float, samples: int,
) -> dict[str, Any]:  # fmt: skip
    """The maps, what they are of, and their metrics: fields of the result."""
    reduction = find_reduction(reduce)
    logits = _logits(model, images, len(classes))
    predictions, targets = logits.argmax(1), _targets(target, logits, labels, classes)

    def signed(pictures: Tensor, wanted: Tensor) -> Tensor:
        return attribute(model, pictures, wanted, method=method, seed=seed).cpu()

    def maps_of(pictures: Tensor, wanted: Tensor) -> Tensor:
        return reduction.function(signed(pictures, wanted))

    attributions, seconds = _timed(lambda: signed(images, targets), warm_up=lambda: signed(images[:1], targets[:1]))
    maps = reduction.function(attributions)
    likely = maps if torch.equal(predictions, targets) else maps_of(images, predictions)
    unlikely = maps_of(images, logits.argmin(1))
    steadiness = np.full(len(images), np.nan)
    if samples:
        steadiness = map_metrics.max_sensitivity(
            lambda moved: maps_of(moved, targets), images, maps, radius=radius, samples=samples, seed=seed
        )
    return {
        "predictions": predictions.numpy(),
        "targets": targets.numpy(),
        "maps": maps.numpy().astype(np.float32),
        "gini": map_metrics.gini(maps.numpy()),
        "entropy": map_metrics.entropy(maps.numpy()),
        "top_mass": map_metrics.top_mass(maps.numpy()),
        "class_correlation": map_metrics.map_correlation(likely.numpy(), unlikely.numpy()),
        "max_sensitivity": steadiness,
        "seconds": seconds,
        **_sums(model, images, targets, attributions, method, seed),
    }


def _sums(
    model: nn.Module, images: Tensor, targets: Tensor, attributions: Tensor, method: str, seed: int
) -> dict[str, np.ndarray | None]:
    """What the maps should add up to, and what of that they leave out."""
    with torch.inference_mode(False), evaluating(model):
        whole = totals(model, images, targets, find_method(method), MapOptions(seed=seed))
    left_out = None if whole is None else (whole - attributions.double().sum((1, 2, 3))).numpy()
    return {"totals": None if whole is None else whole.numpy(), "left_out": left_out}


def _timed(work: Callable[[], Tensor], *, warm_up: Callable[[], Tensor]) -> tuple[Tensor, float]:
    """What the work gives, and its seconds, after something small: so that the time is not that of imports."""
    warm_up()
    start = time.perf_counter()
    return work(), time.perf_counter() - start


def class_position(name: str, classes: Sequence[str]) -> int:
    """Where a class stands; an unknown one raises and suggests the nearest."""
    if name in classes:
        return list(classes).index(name)
    hint = did_you_mean(name, classes, otherwise=f"classes: {', '.join(classes[:20])}", most=1)
    raise InputError(f"unknown class {name!r}; {hint}")


def _logits(model: nn.Module, images: Tensor, classes: int) -> Tensor:
    with evaluating(model):
        return predict_logits(model, images, classes=classes, batch_size=BATCH).float()


def _targets(target: str | int, logits: Tensor, labels: Tensor, classes: Sequence[str]) -> Tensor:
    if target == "predicted":
        return logits.argmax(1)
    if target == "label":
        return labels.long().cpu()
    position = class_position(target, classes) if isinstance(target, str) else target
    if not 0 <= position < len(classes):
        raise InputError(f"expected a class from 0 to {len(classes) - 1}, got {position}")
    return torch.full((len(logits),), position)
