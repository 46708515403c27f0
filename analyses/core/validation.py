"""What every analysis asks of images, labels and a model's answer; anything else is an error of one line."""

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor, nn

from scs_eval.analyses.core.model_state import device_of, evaluating
from scs_eval.errors import InputError, brief, check_name, check_whole, did_you_mean, several
from scs_eval.images import Images

UNLABELLED = -1


LARGEST_SEED = 2**63 - 1  # what every library takes


def check_request(
    *,
    label: str,
    seed: int = 0,
    batch_size: int | None = None,
    classes: Sequence[str] | None = None,
    checkpoint: str | Path | None = None,
) -> None:
    """Raise unless what every analysis is asked with can be used: names for tables and figures, a seed, a batch …"""
    check_name(label, what="label")
    check_class_names(() if classes is None else classes)
    check_whole(0, seed=seed)
    if seed > LARGEST_SEED:
        raise InputError(f"expected seed of at most {LARGEST_SEED}, got {seed}")
    if batch_size is not None:
        check_whole(1, batch_size=batch_size)
    if not isinstance(checkpoint, str | Path | None):
        raise InputError(f"expected checkpoint as a path, got {brief(checkpoint)}")


def check_class_names(classes: Sequence[str]) -> None:
    """Raise unless they can be written; a class may have no name."""
    for name in several(classes=classes):
        check_name("-" if name == "" else name, what="class name")


def check_several_classes(classes: Sequence[str]) -> None:
    """Raise where there is nothing to tell apart: the probability of an only class is always 1."""
    if len(classes) < 2:
        raise InputError(f"expected at least two classes, got {len(classes)}; the probability of an only class is 1")


def check_images(images: Images) -> None:
    """Raise unless images are floats (n ≥ 1, 3, H, W) in [0, 1]; those that are read when used are looked at then."""
    if images.ndim != 4 or images.shape[1] != 3 or not images.dtype.is_floating_point:
        got = f"got {images.dtype} {tuple(images.shape)}"
        raise InputError(f"expected images as floats (n, 3, H, W), {got}; scs_eval.load_data takes other kinds")
    if 0 in images.shape:
        raise InputError(f"expected at least one image, got shape {tuple(images.shape)}")
    if not isinstance(images, Tensor):
        return
    low, high = images.min().item(), images.max().item()
    if not (low >= 0 and high <= 1):  # written so that NaN fails too
        raise InputError(f"expected images in [0, 1], got [{low:.3g}, {high:.3g}]; normalise inside the model")


def check_labels(labels: Tensor, *, images: Images, classes: Sequence[str], what: str = "labels") -> None:
    """Raise unless there is one whole number per image that is a position in `classes`."""
    if labels.ndim and len(labels) and (labels == UNLABELLED).all():
        raise InputError("this needs the images' classes, and they have none; sort them into class folders")
    check_one_per_image(labels, len(images), what=what)
    first, last = int(labels.min()), int(labels.max())
    if first < 0 or last >= len(classes):
        raise InputError(f"expected {what} from 0 to {len(classes) - 1}, got {first} to {last}")


def check_one_per_image(numbers: Tensor, count: int, *, what: str) -> None:
    """Raise unless there are as many whole numbers as images."""
    if numbers.shape != (count,) or numbers.is_floating_point() or numbers.dtype == torch.bool:
        raise InputError(f"expected {count} {what} as whole numbers, got {numbers.dtype} {tuple(numbers.shape)}")


def logits_of(model: nn.Module, images: Tensor, *, classes: int) -> Tensor:
    """The model's finite logits (b, classes), in single precision at least, on the device that the model is on."""
    try:
        logits = model(images.to(device_of(model)))
    except torch.OutOfMemoryError:
        raise  # a matter of the batch size, not of the request
    except RuntimeError as error:
        size = "×".join(map(str, images.shape[1:]))
        raise InputError(f"the model cannot take images of {size}: {error}") from error
    if not isinstance(logits, Tensor) or logits.shape != (len(images), classes):
        got = f"shape {tuple(logits.shape)}" if isinstance(logits, Tensor) else type(logits).__name__
        raise InputError(f"expected {classes} logits for each of {len(images)} images, one per class, got {got}")
    if not logits.isfinite().all():
        raise InputError("expected finite logits, got NaN or infinity; the model may not have been trained to the end")
    return logits.float() if logits.dtype in (torch.float16, torch.bfloat16) else logits


def check_answer(model: nn.Module, images: Images, *, classes: int) -> None:
    """Raise unless the model has a finite logit for each class of such an image; ask before the work."""
    with evaluating(model), torch.no_grad():
        logits_of(model, images[:1], classes=classes)


def count_logits(model: nn.Module, images: Tensor) -> int:
    """How many classes the model has, by asking it."""
    try:
        with torch.no_grad():
            logits = model(images.to(device_of(model)))
    except RuntimeError as error:
        raise InputError(f"the model cannot take images of {'×'.join(map(str, images.shape[1:]))}: {error}") from error
    if not isinstance(logits, Tensor) or logits.ndim != 2 or logits.shape[1] < 2:
        raise InputError("expected a model that gives at least two logits for each image, (n, classes)")
    return logits.shape[1]


def class_position(name: str, classes: Sequence[str]) -> int:
    """Where a class stands; an unknown one raises and suggests the nearest."""
    if name in classes:
        return list(classes).index(name)
    hint = did_you_mean(name, classes, otherwise=f"classes: {', '.join(classes[:20])}", most=1)
    raise InputError(f"unknown class {name!r}; {hint}")
