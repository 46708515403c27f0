"""How often is the model right? Overall and class by class, with Wilson's 95 % intervals."""

import time
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from scs_eval.analyses.accuracy.result import AccuracyComparison as AccuracyComparison
from scs_eval.analyses.accuracy.result import AccuracyResult as AccuracyResult
from scs_eval.analyses.accuracy.result import Known as Known
from scs_eval.analyses.core.batching import images_at_once, map_images
from scs_eval.analyses.core.inference import BATCH
from scs_eval.analyses.core.inputs import ArrayLike, ImagesLike, ModelLike, as_examples, as_model
from scs_eval.analyses.core.model_state import device_of, evaluating
from scs_eval.analyses.core.validation import check_images, check_labels, check_request, logits_of
from scs_eval.progress import Progress

LIKELIEST = 3  # classes of an image whose probabilities are kept


def accuracy(
    model: ModelLike,
    images: ImagesLike,
    labels: ArrayLike | None = None,
    *,
    classes: Sequence[str] | None = None,
    label: str = "model",
    batch_size: int | None = None,
    known: Known | None = None,
    progress: Progress | None = None,
) -> AccuracyResult:
    """Run the model over labelled images, on the device that the model is on.

    images: (n, 3, H, W) in [0, 1] with labels (n,), positions in `classes`; or data that bring all three.
    label: the model's name in tables and figures. batch_size: images at once; by default 250, fewer of large ones.
    progress: called with how many more images are done.

    >>> import scs_eval
    >>> data = scs_eval.load_data("sample", n=20)
    >>> result = scs_eval.accuracy(
    ...     scs_eval.load_model("rohrer25k_scs"), data.images, data.labels, classes=data.classes
    ... )
    >>> len(result.correct)
    20
    """
    check_request(label=label, batch_size=batch_size)
    model, data = as_model(model), as_examples(images, labels, classes=classes)
    check_images(data.images)
    names = data.class_names(model)
    check_labels(data.labels, images=data.images, classes=names)
    size = images_at_once(data.images, BATCH) if batch_size is None else batch_size

    def outcome(batch: Tensor, part: slice) -> tuple[Tensor, ...]:
        return _outcome(model, batch, data.labels[part], len(names))

    with evaluating(model), torch.inference_mode():
        start = time.perf_counter()
        outcomes = map_images(outcome, data.images, size=size, progress=progress)
        seconds = time.perf_counter() - start
    predictions, margins, likeliest, probabilities = (torch.cat(part).numpy() for part in zip(*outcomes, strict=True))
    return AccuracyResult(
        label=label,
        settings={**data.settings, "device": str(device_of(model)), "batch_size": size},
        classes=names,
        labels=data.labels.long().cpu().numpy(),
        predictions=predictions,
        margins=margins,
        likeliest=likeliest,
        probabilities=probabilities,
        parameters=sum(parameter.numel() for parameter in model.parameters()),
        seconds=seconds,
        known=known or Known(),
    )


def _outcome(model: nn.Module, images: Tensor, labels: Tensor, classes: int) -> tuple[Tensor, ...]:
    """Predictions and margins (b,), likeliest classes and their probabilities (b, k) of one batch, on the CPU."""
    logits = logits_of(model, images, classes=classes)
    right = labels.long().to(logits.device)[:, None]
    best_other = logits.scatter(1, right, float("-inf")).amax(1)
    probabilities, likeliest = logits.softmax(1).topk(min(LIKELIEST, classes), dim=1)
    margins = logits.gather(1, right)[:, 0] - best_other
    return tuple(part.cpu() for part in (logits.argmax(1), margins, likeliest, probabilities))
