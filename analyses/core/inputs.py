"""What users hand over, as the analyses work with it: models, and arrays of any kind as plain tensors."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from scs_eval.analyses.core.validation import UNLABELLED, check_class_names, check_one_per_image, count_logits
from scs_eval.datasets import is_dataset, open_dataset
from scs_eval.errors import InputError
from scs_eval.images import Images, StreamedImages, indices_digest

ArrayLike = Tensor | StreamedImages | np.ndarray | Sequence[Any]
# What every analysis takes as its images: arrays, what `scs_eval.load_data` gives, a dataset of torch or Hugging Face.
ImagesLike = ArrayLike | Any
ModelLike = nn.Module | str
HALF = (torch.float16, torch.bfloat16)


def as_model(model: ModelLike) -> nn.Module:
    """The model, if it is one that can be explained; a name or a file as `load_model` takes it is loaded."""
    if isinstance(model, str):
        from scs_eval.models.loading.load import load_model

        model = load_model(model)
    if not isinstance(model, nn.Module):
        raise InputError(f"expected a model (torch.nn.Module), got {type(model).__name__}")
    half = next((tensor.dtype for tensor in model.parameters() if tensor.dtype in HALF), None)
    if half is not None:  # gradients underflow, and few layers have kernels for it on a CPU
        name = str(half).removeprefix("torch.")
        raise InputError(f"expected a model in single or double precision, got {name}; call model.float() first")
    return model


def as_tensor(values: ArrayLike, *, what: str) -> Tensor:
    """A tensor of its own values: from numpy arrays and lists, without a graph, and not of inference mode."""
    with torch.inference_mode(False):
        try:
            if not isinstance(values, Tensor):
                values = torch.as_tensor(np.asarray(values))
        except (TypeError, ValueError, RuntimeError) as error:
            reason = str(error).splitlines()[0]
            raise InputError(
                f"expected {what} as a tensor or an array, got {type(values).__name__}: {reason}"
            ) from error
        return values.detach().clone() if values.is_inference() else values.detach()


@dataclass(frozen=True, eq=False, kw_only=True)
class Examples:
    """What an analysis works on.

    images: (n, 3, H, W). labels: (n,), −1 for all where there are none. classes: None where nobody named them.
    indices: (n,) where the images come from. settings: where from, as far as the data say it.
    """

    images: Images
    labels: Tensor
    classes: tuple[str, ...] | None
    indices: Tensor
    settings: dict[str, Any] = field(default_factory=dict)

    @property
    def labelled(self) -> bool:
        """Whether the images' classes are known."""
        return not bool((self.labels == UNLABELLED).all())

    def class_names(self, model: nn.Module) -> tuple[str, ...]:
        """The names, or the numbers of the model's logits."""
        return self.classes or tuple(map(str, range(count_logits(model, self.images[:1]))))


def as_examples(
    images: ImagesLike,
    labels: ArrayLike | None = None,
    *,
    classes: Sequence[str] | None = None,
    indices: ArrayLike | None = None,
) -> Examples:
    """Images with what is known of them: as arrays, or as one object that brings labels, classes and indices.

    What is given beside such an object takes the place of its own.
    """
    settings: dict[str, Any] = {"data": "array"}
    if hasattr(images, "images") and hasattr(images, "labels"):
        data = images
        images, labels = data.images, data.labels if labels is None else labels
        classes = getattr(data, "classes", None) if classes is None else classes
        indices = getattr(data, "indices", None) if indices is None else indices
        known = {"data": getattr(data, "source", None), "data_seed": getattr(data, "seed", None)}
        settings = {name: value for name, value in known.items() if value is not None}
    elif is_dataset(images):
        settings = {"data": type(images).__name__}
        images, own_labels, own_classes = open_dataset(images)
        labels, classes = own_labels if labels is None else labels, classes or own_classes
    check_class_names(() if classes is None else classes)
    pictures = images if isinstance(images, StreamedImages) else as_images(images)
    count = len(pictures)
    given = None if labels is None else as_labels(labels)
    if given is not None and given.ndim != 1:
        check_one_per_image(given, count, what="labels")
    if indices is not None:
        indices = as_labels(indices, what="indices").cpu()
        check_one_per_image(indices, count, what="indices")
    at = torch.arange(count) if indices is None else indices
    return Examples(
        images=pictures,
        labels=torch.full((count,), UNLABELLED) if given is None else given,
        classes=tuple(classes) if classes is not None else None,
        indices=at,
        settings={**settings, "n": count, "indices_sha256": indices_digest(at)},
    )


def as_images(images: ArrayLike) -> Tensor:
    """Images as a tensor; double precision of numpy and lists becomes single, which networks are in."""
    if isinstance(images, StreamedImages):
        return images[:]
    given = as_tensor(images, what="images")
    return given.float() if given.dtype == torch.float64 and not isinstance(images, Tensor) else given


def as_labels(labels: ArrayLike, *, what: str = "labels") -> Tensor:
    """Labels or targets as a tensor."""
    return as_tensor(labels, what=what)
