"""The maps of all images, block by block, and their metrics."""

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from scs_eval.analyses.attribution import metrics as map_metrics
from scs_eval.analyses.attribution.attribute import attribute
from scs_eval.analyses.attribution.completeness import totals
from scs_eval.analyses.attribution.methods import MapOptions, find_method
from scs_eval.analyses.attribution.own_methods import MethodLike, as_method_names, method_name
from scs_eval.analyses.core.batching import images_at_once, maps_kept, slices
from scs_eval.analyses.core.inference import BATCH, predict_logits
from scs_eval.analyses.core.inputs import ArrayLike, Examples, ImagesLike, ModelLike, as_examples, as_model
from scs_eval.analyses.core.model_state import device_of, evaluating
from scs_eval.analyses.core.result import side_by_side
from scs_eval.analyses.core.validation import (
    check_images,
    check_labels,
    check_request,
    check_several_classes,
    class_position,
)
from scs_eval.analyses.saliency.options import SaliencyOptions
from scs_eval.analyses.saliency.reductions import find_reduction
from scs_eval.analyses.saliency.result import SaliencyComparison, SaliencyResult
from scs_eval.errors import InputError

BLOCK = 500  # images held at once, fewer of large ones


def run_all(
    model: ModelLike,
    images: ImagesLike,
    labels: ArrayLike | None,
    methods: Sequence[MethodLike],
    options: SaliencyOptions,
    *,
    label: str,
    **more: Any,
) -> SaliencyComparison:
    """Each method's result beside the others, of the same images."""
    names, network = as_method_names(methods), as_model(model)
    results = [run(network, images, labels, name, options, label=label, **more) for name in names]
    together = side_by_side(results, label=label)
    return together if isinstance(together, SaliencyComparison) else SaliencyComparison.of(results, label=label)


def run(
    model: ModelLike,
    images: ImagesLike,
    labels: ArrayLike | None,
    method: MethodLike,
    options: SaliencyOptions,
    *,
    classes: Sequence[str] | None,
    label: str,
    seed: int,
) -> SaliencyResult:
    """What `saliency` gives for one method."""
    check_request(label=label, seed=seed)
    network, name = as_model(model), method_name(method)
    data = as_examples(images, labels, classes=classes)
    check_images(data.images)
    names = data.class_names(network)
    _check(data, names, options.target)
    maps = _explain_blocks(network, data, names, options, method=name, seed=seed)  # raises for an unknown target
    settings = {"radius": options.radius, "sensitivity_samples": options.samples, "seed": seed}
    return SaliencyResult(
        label=label,
        settings={**data.settings, "device": str(device_of(network)), **settings},
        model=label,
        method=name,
        reduce=options.reduce,
        target=options.target if isinstance(options.target, str) else names[options.target],
        classes=names,
        indices=data.indices.numpy(),
        labels=data.labels.long().cpu().numpy(),
        images=data.images[: options.rows].cpu().numpy().astype(np.float32),
        **maps,
    )


def _check(data: Examples, classes: Sequence[str], target: str | int) -> None:
    """Raise one line about the first thing that is wrong, before any work."""
    if data.labelled or target == "label":
        check_labels(data.labels, images=data.images, classes=classes)
    check_several_classes(classes)


def _explain_blocks(
    model: nn.Module, data: Examples, classes: Sequence[str], options: SaliencyOptions, *, method: str, seed: int
) -> dict[str, Any]:
    """`_explain` of some hundred images at a time: no more are held, and only the first ones' maps are kept."""
    kept = max(maps_kept(data.images), options.rows)
    parts = [
        _explain(
            model, data.images[part], data.labels[part], classes, options, method=method, seed=seed,
            keep=max(0, kept - part.start),
        )
        for part in slices(len(data.images), images_at_once(data.images, BLOCK))
    ]  # fmt: skip
    together: dict[str, Any] = {
        name: None if value is None else np.concatenate([part[name] for part in parts])
        for name, value in parts[0].items()
        if name != "seconds"
    }
    return {**together, "seconds": sum(part["seconds"] for part in parts) / len(data.images)}


def _explain(
    model: nn.Module, images: Tensor, labels: Tensor, classes: Sequence[str], options: SaliencyOptions, *, method: str,
    seed: int, keep: int,
) -> dict[str, Any]:  # fmt: skip
    """The maps, of the first images, what they are of, and the metrics of all: fields of the result."""
    reduction = find_reduction(options.reduce)
    logits = _logits(model, images, len(classes))
    predictions, targets = logits.argmax(1), _targets(options.target, logits, labels, classes)

    def signed(pictures: Tensor, wanted: Tensor) -> Tensor:
        return attribute(model, pictures, wanted, method=method, seed=seed).cpu()

    def maps_of(pictures: Tensor, wanted: Tensor) -> Tensor:
        return reduction.function(signed(pictures, wanted))

    attributions, seconds = _timed(lambda: signed(images, targets), warm_up=lambda: signed(images[:1], targets[:1]))
    maps = reduction.function(attributions)
    likely = maps if torch.equal(predictions, targets) else maps_of(images, predictions)
    unlikely = maps_of(images, logits.argmin(1))
    steadiness = np.full(len(images), np.nan)
    if options.samples:
        steadiness = map_metrics.max_sensitivity(
            lambda moved: maps_of(moved, targets), images, maps, radius=options.radius, samples=options.samples,
            seed=seed,
        )  # fmt: skip
    return {
        "predictions": predictions.numpy(),
        "targets": targets.numpy(),
        "maps": maps[:keep].numpy().astype(np.float32),  # a copy, or the others would stay
        "blank": (maps.flatten(1).amax(1) == 0).numpy(),
        "even": (maps.flatten(1).amax(1) == maps.flatten(1).amin(1)).numpy(),
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
        raise InputError(f"expected target as a class from 0 to {len(classes) - 1}, got {position}")
    return torch.full((len(logits),), position)
