"""How much do noise, blur, weather and compression hurt? The common corruptions of Hendrycks and Dietterich (2019)."""

from collections.abc import Callable, Sequence
from itertools import chain
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from scs_eval.analyses.core.batching import images_at_once
from scs_eval.analyses.core.checkpoint import Checkpoint
from scs_eval.analyses.core.fingerprint import fingerprint
from scs_eval.analyses.core.inputs import ArrayLike, ImagesLike, ModelLike, as_examples, as_model
from scs_eval.analyses.core.model_state import device_of, evaluating
from scs_eval.analyses.core.outcomes import Outcomes, in_slices
from scs_eval.analyses.core.validation import check_images, check_labels, check_request, logits_of
from scs_eval.analyses.corruptions.corrupt import CORRUPTIONS, SEVERITIES, SHOWN, check_corruption, corrupt
from scs_eval.analyses.corruptions.result import CorruptionsComparison as CorruptionsComparison
from scs_eval.analyses.corruptions.result import CorruptionsResult as CorruptionsResult
from scs_eval.errors import InputError, check_text, check_whole, several
from scs_eval.progress import Progress

# From a corruption, a severity, the ids (b,) of images and the images (b, 3, H, W) to the corrupted ones.
Source = Callable[[str, int, np.ndarray, Tensor], Tensor]


def corruptions(
    model: ModelLike,
    images: ImagesLike,
    labels: ArrayLike | None = None,
    *,
    classes: Sequence[str] | None = None,
    names: Sequence[str] = tuple(CORRUPTIONS),
    reference: nn.Module | None = None,
    reference_name: str = "the reference",
    source: Source | None = None,
    source_name: str = "generated",
    indices: ArrayLike | None = None,
    label: str = "model",
    seed: int = 0,
    batch_size: int = 50,
    progress: Progress | None = None,
    checkpoint: Path | None = None,
) -> CorruptionsResult:
    """Show the model images (n, 3, H, H) in [0, 1] with labels (n,) under every corruption in five severities.

    images: arrays, or data that bring labels, classes and indices; they are read when they are used. names: which
    corruptions. reference: a network whose errors on the very same pixels the mean corruption error is relative to.
    source: corrupted images from elsewhere, such as the files of CIFAR-10-C; without, they are made from `seed` and
    `indices`. progress: is told how many more images are done. checkpoint: a file to resume from.

    >>> import scs_eval
    >>> result = scs_eval.corruptions("rohrer25k_scs", scs_eval.load_data("sample", n=10), names=["contrast", "fog"])
    >>> result.per_image.shape
    (10,)
    """
    check_request(label=label, seed=seed, checkpoint=checkpoint)
    check_whole(1, batch_size=batch_size)
    check_text(source_name=source_name, reference_name=reference_name)
    chosen = check_names(names)
    model, data = as_model(model), as_examples(images, labels, classes=classes, indices=indices)
    check_images(data.images)
    known = data.class_names(model)
    check_labels(data.labels, images=data.images, classes=known)
    truth, ids = data.labels.long().cpu(), data.indices.numpy()
    make = source or (lambda name, severity, own, clean: corrupt(clean, name, severity, seed=seed, ids=own))
    networks = [model] if reference is None else [model, as_model(reference)]

    def right(part: slice) -> np.ndarray:
        """(networks, 1 + corruptions · severities, b) whether each is right, clean first."""
        clean = data.images[part].cpu()
        moved = (make(name, level, ids[part], clean) for name in chosen for level in SEVERITIES)  # one at a time
        rows = [
            [_right(network, some, truth[part], len(known)) for network in networks] for some in chain([clean], moved)
        ]
        return np.stack(rows).swapaxes(0, 1)

    others = [fingerprint(network, (), reference_name) for network in networks[1:]]
    key = fingerprint(model, (data.images, truth, data.indices), (chosen, seed, source_name, others))
    kept = Outcomes(Checkpoint(checkpoint, key) if checkpoint else None, progress)
    with evaluating(model), evaluating(networks[-1]), torch.inference_mode():
        kept.resume("outcomes")
        outcomes = kept.run("outcomes", in_slices(len(truth), images_at_once(data.images, batch_size), right))
        pictures = torch.cat([make(name, SHOWN, ids[:1], data.images[:1].cpu()) for name in chosen])
    shape = (len(chosen), len(SEVERITIES), len(truth))
    return CorruptionsResult(
        label=label,
        settings={**data.settings, "device": str(device_of(model)), "batch_size": batch_size, "seed": seed},
        classes=known,
        names=chosen,
        source=source_name,
        indices=ids,
        labels=truth.numpy(),
        clean=outcomes[0, 0],
        right=outcomes[0, 1:].reshape(shape),
        pictures=pictures.numpy(),
        reference=reference_name if reference is not None else "",
        reference_right=None if reference is None else outcomes[1, 1:].reshape(shape),
    )


def check_names(names: Sequence[str]) -> tuple[str, ...]:
    """Each corruption once, in the order of the paper."""
    asked = several(names=names)
    for name in asked:
        check_corruption(name, 1)
    if not asked:
        raise InputError("expected at least one corruption, got none")
    return tuple(name for name in CORRUPTIONS if name in asked)


def _right(model: nn.Module, images: Tensor, labels: Tensor, classes: int) -> np.ndarray:
    return (logits_of(model, images, classes=classes).argmax(1).cpu() == labels).numpy()
