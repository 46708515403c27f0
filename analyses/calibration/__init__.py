"""Does a confidence of 80 % mean right in 80 of 100? And would one temperature make it so?"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from scs_eval.analyses.calibration.result import CalibrationComparison as CalibrationComparison
from scs_eval.analyses.calibration.result import CalibrationResult as CalibrationResult
from scs_eval.analyses.calibration.temperature import fit_temperature
from scs_eval.analyses.core.batching import images_at_once, map_images_with_backoff
from scs_eval.analyses.core.checkpoint import Checkpoint
from scs_eval.analyses.core.fingerprint import fingerprint
from scs_eval.analyses.core.inference import BATCH
from scs_eval.analyses.core.inputs import ArrayLike, ImagesLike, ModelLike, as_examples, as_model
from scs_eval.analyses.core.model_state import device_of, evaluating
from scs_eval.analyses.core.outcomes import Batches, Outcomes
from scs_eval.analyses.core.validation import (
    check_images,
    check_labels,
    check_request,
    check_several_classes,
    logits_of,
)
from scs_eval.errors import InputError, check_whole
from scs_eval.images import take_images
from scs_eval.progress import Progress


def calibration(
    model: ModelLike,
    images: ImagesLike,
    labels: ArrayLike | None = None,
    *,
    bins: int = 15,
    classes: Sequence[str] | None = None,
    label: str = "model",
    seed: int = 0,
    indices: ArrayLike | None = None,
    batch_size: int = BATCH,
    progress: Progress | None = None,
    checkpoint: Path | None = None,
) -> CalibrationResult:
    """Compare confidence with correctness on images (n, 3, H, W) in [0, 1] with labels (n,).

    images: arrays, or data that bring labels, classes and indices. bins: of equal mass, for the reliability curve and
    the expected calibration error. seed: of the halves: each is scaled by the temperature that was fitted on the other,
    so no image is scaled by one that it helped to choose. checkpoint: a file to resume from.

    >>> import scs_eval
    >>> result = scs_eval.calibration("rohrer25k_scs", scs_eval.load_data("sample", n=100), bins=5)
    >>> result.brier.shape
    (2, 100)
    """
    check_request(label=label, seed=seed, checkpoint=checkpoint)
    check_whole(1, bins=bins, batch_size=batch_size)
    model, data = as_model(model), as_examples(images, labels, classes=classes, indices=indices)
    check_images(data.images)
    names, n = data.class_names(model), len(data.labels)
    check_labels(data.labels, images=data.images, classes=names)
    check_several_classes(names)
    if n < 2:
        raise InputError("expected at least 2 images, one for each half, got 1")
    if bins > n:
        raise InputError(f"expected 1 to {n} bins, at most one an image, got {bins}")
    key = fingerprint(model, (data.images,), len(names)) if checkpoint else ""
    kept = Outcomes(Checkpoint(checkpoint, key) if checkpoint else None, progress)

    def answers(done: int) -> Batches:
        rest, size = take_images(data.images, slice(done, None)), images_at_once(data.images, batch_size)
        return map_images_with_backoff(
            lambda batch: logits_of(model, batch, classes=len(names)).T.cpu().numpy(), rest, size=size
        )

    with evaluating(model), torch.inference_mode():
        kept.resume("logits")
        logits = torch.from_numpy(kept.run("logits", answers).T).double()
    truth, half = data.labels.long().cpu(), halves(n, seed)
    first, second = (fit_temperature(logits[half != part], truth[half != part]) for part in (0, 1))
    scaled = logits / torch.tensor([first, second], dtype=torch.float64)[half][:, None]
    raw, tempered = outcomes(logits, truth), outcomes(scaled, truth)
    return CalibrationResult(
        label=label,
        settings={**data.settings, "device": str(device_of(model)), "batch_size": batch_size, "seed": seed},
        classes=names,
        bins=bins,
        temperatures=(first, second),
        indices=data.indices.numpy(),
        labels=truth.numpy(),
        predictions=logits.argmax(1).numpy(),
        half=half.numpy(),
        **{name: torch.stack([raw[name], tempered[name]]).numpy() for name in raw},
    )


def halves(n: int, seed: int) -> Tensor:
    """(n,) 0 or 1 at random, as many of either (one more 0 if n is odd)."""
    return torch.from_numpy(np.random.default_rng(seed).permutation(n) % 2)


def outcomes(logits: Tensor, labels: Tensor) -> dict[str, Tensor]:
    """Of each image, for logits (n, K) in double precision: how sure the model is, and what that costs it.

    confidence: the largest probability. brier: Σ (p − y)² over the classes, 0 to 2 (Brier 1950). log_loss: −log p of
    the right class.
    """
    logs = logits.log_softmax(1)
    probabilities = logs.exp()
    truth = nn.functional.one_hot(labels, logits.shape[1])
    return {
        "confidence": probabilities.amax(1),
        "brier": (probabilities - truth).square().sum(1),
        "log_loss": -logs.gather(1, labels[:, None])[:, 0],
    }
