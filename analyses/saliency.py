"""Where does the model look, and how sparse, specific and steady are its maps?

The SCS paper (sections 4.4 and 5.2) reads from pictures that sharpening makes saliency maps sparser. Here the pictures
come with numbers over many images, and with a paired test against the convolution twin.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches

import numpy as np
import torch
from torch import Tensor, nn

from scs_eval.analyses import map_metrics
from scs_eval.analyses.attribution import attribute, find_method
from scs_eval.analyses.inputs import check_images, check_labels, logits_of
from scs_eval.analyses.reductions import find_reduction
from scs_eval.analyses.result import Result
from scs_eval.analyses.saliency_result import SaliencyComparison as SaliencyComparison
from scs_eval.analyses.saliency_result import SaliencyResult as SaliencyResult
from scs_eval.analyses.shards import shared_map
from scs_eval.analyses.state import device_of, evaluating
from scs_eval.errors import InputError


def saliency(
    model: nn.Module,
    images: Tensor,
    labels: Tensor,
    *,
    classes: Sequence[str],
    method: str = "grad",
    reduce: str = "max",
    target: str | int = "predicted",
    label: str = "model",
    indices: Tensor | None = None,
    shown: int = 6,
    radius: float = map_metrics.RADIUS,
    samples: int = map_metrics.SAMPLES,
    seed: int = 0,
    network: str = "",
    accuracy: float | None = None,
    class_accuracy: Mapping[str, float] | None = None,
) -> SaliencyResult:
    """Maps of a class's logit for images (n, 3, H, W) in [0, 1] with labels (n,), and their metrics.

    target: "predicted", "label", or one class for all images (its name or position).
    reduce: max, mean or norm over the channels' absolute values; sum: |Σ|; positive: the positive part of Σ.
    radius, samples: of max-sensitivity; no samples, no max-sensitivity. indices: where the images came from.
    network: the model's name in the zoo if `label` is another, by which its convolution twin is found.
    """
    find_method(method)
    check_images(images)
    check_labels(labels, images=images, classes=classes)
    reduction = find_reduction(reduce)
    if shown < 1 or samples < 0 or not 0 < radius <= 1:
        raise InputError(f"expected shown ≥ 1, samples ≥ 0, 0 < radius ≤ 1, got {shown}, {samples}, {radius}")
    indices = torch.arange(len(images)) if indices is None else indices
    logits = _logits(model, images, len(classes))
    predictions, targets = logits.argmax(1), _targets(target, logits, labels, classes)

    def maps_of(pictures: Tensor, asked: Tensor) -> Tensor:
        return reduction.function(attribute(model, pictures, asked, method=method, seed=seed)).cpu()

    maps_of(images[:1], targets[:1])  # so that the time is not that of importing captum
    start = time.perf_counter()
    maps = maps_of(images, targets)
    seconds = (time.perf_counter() - start) / len(images)
    likely = maps if torch.equal(predictions, targets) else maps_of(images, predictions)
    unlikely = maps_of(images, logits.argmin(1))
    steadiness = np.full(len(images), np.nan)
    if samples:
        steadiness = map_metrics.max_sensitivity(
            lambda moved: maps_of(moved, targets), images, maps, radius=radius, samples=samples, seed=seed
        )
    array = maps.numpy()
    return SaliencyResult(
        label=label,
        settings={"device": str(device_of(model)), "radius": radius, "sensitivity_samples": samples, "seed": seed},
        model=label,
        method=method,
        reduce=reduce,
        target=target if isinstance(target, str) else classes[target],
        classes=tuple(classes),
        indices=indices.cpu().numpy(),
        labels=labels.long().cpu().numpy(),
        predictions=predictions.numpy(),
        targets=targets.numpy(),
        maps=array.astype(np.float32),
        images=images[:shown].cpu().numpy().astype(np.float32),
        gini=map_metrics.gini(array),
        entropy=map_metrics.entropy(array),
        top_mass=map_metrics.top_mass(array),
        class_correlation=map_metrics.map_correlation(likely.numpy(), unlikely.numpy()),
        max_sensitivity=steadiness,
        seconds=seconds,
        network=network,
        accuracy=accuracy,
        class_accuracy=dict(class_accuracy or {}),
    )


def compare(results: Sequence[SaliencyResult], *, label: str) -> Result:
    """One result as it is; several as a comparison, the method in their labels if they differ in it."""
    if len(results) == 1:
        return results[0]
    several = len({result.method for result in results}) > 1
    named = [replace(one, label=f"{one.model} {one.method}") if several else one for one in results]
    return SaliencyComparison.of(named, label=label)


def class_position(name: str, classes: Sequence[str]) -> int:
    """Where a class stands; an unknown one raises and suggests the nearest."""
    if name in classes:
        return list(classes).index(name)
    near = get_close_matches(name, classes, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]}?" if near else f"classes: {', '.join(classes[:20])}"
    raise InputError(f"unknown class {name!r}; {hint}")


def _logits(model: nn.Module, images: Tensor, classes: int) -> Tensor:
    with evaluating(model), torch.inference_mode():
        parts = shared_map(lambda part: logits_of(model, part, classes=classes).float().cpu(), images.split(250))
    return torch.cat(parts).clone()


def _targets(target: str | int, logits: Tensor, labels: Tensor, classes: Sequence[str]) -> Tensor:
    if target == "predicted":
        return logits.argmax(1)
    if target == "label":
        return labels.long().cpu()
    position = class_position(target, classes) if isinstance(target, str) else target
    if not 0 <= position < len(classes):
        raise InputError(f"expected a class from 0 to {len(classes) - 1}, got {position}")
    return torch.full((len(logits),), position)
