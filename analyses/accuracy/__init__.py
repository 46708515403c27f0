"""How often is the model right? Overall and class by class, with Wilson's 95 % intervals."""

import time
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from scs_eval.analyses.accuracy.result import AccuracyComparison as AccuracyComparison
from scs_eval.analyses.accuracy.result import AccuracyResult as AccuracyResult
from scs_eval.analyses.accuracy.result import Known as Known
from scs_eval.analyses.core.inputs import ArrayLike, as_images, as_labels, as_model
from scs_eval.analyses.core.model_state import device_of, evaluating
from scs_eval.analyses.core.parallel import shared_map
from scs_eval.analyses.core.validation import check_images, check_labels, logits_of
from scs_eval.errors import InputError


def accuracy(
    model: nn.Module,
    images: ArrayLike,
    labels: ArrayLike,
    *,
    classes: Sequence[str],
    label: str = "model",
    batch_size: int = 250,
    known: Known | None = None,
) -> AccuracyResult:
    """Run the model over labelled images, on the device that the model is on.

    images: (n, 3, H, W) in [0, 1]; labels: (n,) positions in `classes`; label: the model's name in tables and figures.
    """
    model, images, labels = as_model(model), as_images(images), as_labels(labels)
    check_images(images)
    check_labels(labels, images=images, classes=classes)
    if batch_size < 1:
        raise InputError(f"expected a batch size of at least 1, got {batch_size}")
    with evaluating(model), torch.inference_mode():
        start = time.perf_counter()
        batches = zip(images.split(batch_size), labels.split(batch_size), strict=True)
        outcomes = shared_map(lambda batch: _outcome(model, *batch, len(classes)), batches)
        seconds = time.perf_counter() - start
    predictions, margins = (torch.cat(part).numpy() for part in zip(*outcomes, strict=True))
    return AccuracyResult(
        label=label,
        settings={"device": str(device_of(model)), "batch_size": batch_size},
        classes=tuple(classes),
        labels=labels.long().cpu().numpy(),
        predictions=predictions,
        margins=margins,
        parameters=sum(parameter.numel() for parameter in model.parameters()),
        seconds=seconds,
        known=known or Known(),
    )


def _outcome(model: nn.Module, images: Tensor, labels: Tensor, classes: int) -> tuple[Tensor, Tensor]:
    """Predictions and margins (b,) of one batch, on the CPU."""
    logits = logits_of(model, images, classes=classes)
    right = labels.long().to(logits.device)[:, None]
    best_other = logits.scatter(1, right, float("-inf")).amax(1)
    return logits.argmax(1).cpu(), (logits.gather(1, right)[:, 0] - best_other).cpu()
