"""Every method and control on the bench, one after the other, and what came of it as one result."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from scs_eval.analyses.attribution.own_methods import MethodLike, as_method_names
from scs_eval.analyses.attribution.own_metrics import MetricLike, as_metrics, remembered
from scs_eval.analyses.attribution.similarity import WINDOW
from scs_eval.analyses.core.inference import BATCH, predict_logits
from scs_eval.analyses.core.inputs import (
    ArrayLike,
    ImagesLike,
    ModelLike,
    as_examples,
    as_labels,
    as_model,
    check_several_classes,
)
from scs_eval.analyses.core.model_state import device_of, evaluating
from scs_eval.analyses.core.validation import check_images, check_labels, check_names
from scs_eval.analyses.faithfulness.bench import Bench, Outcome, stacked
from scs_eval.analyses.faithfulness.controls import CONTROLS
from scs_eval.analyses.faithfulness.options import FaithfulnessOptions
from scs_eval.analyses.faithfulness.result import FaithfulnessResult
from scs_eval.errors import InputError, NotApplicableError
from scs_eval.progress import Progress


def run(
    model: ModelLike,
    images: ImagesLike,
    targets: ArrayLike | None,
    options: FaithfulnessOptions,
    *,
    methods: MethodLike | Sequence[MethodLike],
    metrics: Sequence[MetricLike],
    classes: Sequence[str] | None,
    label: str,
    seed: int,
    progress: Progress,
) -> FaithfulnessResult:
    """What `faithfulness` gives."""
    names, own = as_method_names(methods), as_metrics(metrics)
    check_names(label=label)
    network, data = as_model(model), as_examples(images, classes=classes)
    known, pictures = data.class_names(network), data.images[:]  # the cascade asks every network about all of them
    _check(pictures)
    check_several_classes(known)
    with torch.inference_mode(False), evaluating(network):
        like = next(network.parameters(), pictures)
        moved = pictures.to(like.device, like.dtype)
        chosen = _targets(network, moved, targets, known)
        bench = Bench(
            model=network, images=moved, targets=chosen, options=options, shown=1, seed=seed, metrics=own
        )  # fmt: skip
        arrays = _arrays(bench, names, progress)
    return FaithfulnessResult(
        label=label,
        settings={**data.settings, "device": str(device_of(network)), **bench.settings},
        classes=known,
        indices=data.indices.numpy(),
        images=pictures[:1].cpu().numpy().astype(np.float32),
        **arrays,
    )


def _arrays(bench: Bench, methods: Sequence[str], progress: Progress) -> dict[str, Any]:
    """Everything that a result knows from the bench."""
    fractions = bench.counts.numpy() / bench.counts[-1].item()  # before the work: wrong steps raise here
    outcomes, refused = _test_all(bench, methods, progress)
    arrays: dict[str, Any] = stacked(list(outcomes.values()))
    if not bench.metrics:
        arrays["own_scores"] = None
    return {
        "methods": tuple(outcomes),
        "own_metrics": tuple(remembered(metric) for metric in bench.metrics),
        "layers": tuple(depth.name for depth in bench.depths),
        "targets": bench.targets.cpu().numpy(),
        "fractions": fractions,
        "change": bench.infidelity(torch.zeros_like(bench.images), gradient=False, scale=False),
        "left_out": refused,
        **arrays,
    }


def _check(images: Tensor) -> None:
    """Raise one line about images that cannot be compared."""
    check_images(images)
    if min(images.shape[2:]) < WINDOW:
        raise InputError(f"expected images of at least {WINDOW}×{WINDOW} pixels for SSIM, got {tuple(images.shape)}")


def _targets(model: nn.Module, images: Tensor, targets: ArrayLike | None, classes: Sequence[str]) -> Tensor:
    """The classes to explain, by default the predicted ones; the model must have logits for all images either way."""
    logits = predict_logits(model, images, classes=len(classes), batch_size=BATCH)
    if targets is None:
        return logits.argmax(1).to(images.device)
    given = as_labels(targets, what="targets")
    check_labels(given, images=images, classes=classes)
    return given.long().to(images.device)


def _test_all(bench: Bench, methods: Sequence[str], progress: Progress) -> tuple[dict[str, Outcome], dict[str, str]]:
    """Outcomes by method, then of the controls; and why a method cannot serve the model."""
    outcomes: dict[str, Outcome] = {}
    refused: dict[str, str] = {}
    for name in methods:
        try:
            outcomes[name] = bench.test(name)
        except NotApplicableError as error:
            refused[name] = str(error)
        progress(1)
    if not outcomes:
        raise NotApplicableError("; ".join(refused.values()))
    for name in CONTROLS:
        try:
            outcomes[name] = bench.test(name)
        except NotApplicableError as error:  # a network without a gradient, or whose copy without training gives NaN
            refused[name] = str(error)
        progress(1)
    return outcomes, refused
