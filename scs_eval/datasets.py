"""Datasets of torch and of Hugging Face as images that are read when they are used, and labels that are known before.

Neither package's class is asked for: a dataset has a length and gives, for a number, an image with its label as a pair
or as a mapping (`image` or `img`, `label` …).
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from scs_eval.errors import InputError
from scs_eval.images import StreamedImages

IMAGES = ("image", "img", "pixel_values", "picture")
LABELS = ("label", "labels", "fine_label", "target", "targets")
UNLABELLED = -1

Prepare = Callable[[Any], Any]  # from a PIL image to one of the size that is wanted


class LabelledDataset(NamedTuple):
    """images: read when used. labels: (N,), −1 where there are none. classes: their names, if the dataset knows."""

    images: StreamedImages
    labels: np.ndarray
    classes: tuple[str, ...] | None


def is_dataset(value: Any) -> bool:
    """Whether a value is like a dataset: it can be asked how many there are and for one by its number."""
    arrays = isinstance(value, Tensor | StreamedImages | np.ndarray | str | bytes | Sequence | Mapping)
    return not arrays and hasattr(value, "__len__") and hasattr(value, "__getitem__") and not hasattr(value, "images")


def open_dataset(dataset: Any, *, prepare: Prepare | None = None) -> LabelledDataset:
    """A dataset's images, labels and classes; labels come from its columns where it has them, without an image.

    prepare: scales a PIL image, or an array (H, W, 3) of bytes; without it all images must have one size.
    """
    if len(dataset) == 0:
        raise InputError("expected a dataset with at least one image, got none")
    reader = DatasetReader(dataset, prepare)
    height, width = reader[0].shape[1:]
    labels = _labels(dataset)
    images = StreamedImages(reader, np.arange(len(dataset)), (height, width))
    return LabelledDataset(images, labels, _classes(dataset))


class DatasetReader:
    """The images of a dataset, as bytes or floats (3, H, W)."""

    def __init__(self, dataset: Any, prepare: Prepare | None = None) -> None:
        self.dataset, self.prepare = dataset, prepare

    def __getitem__(self, index: int) -> Tensor:
        return image_tensor(_image(self.dataset[index]), self.prepare)

    def name(self, index: int) -> str:
        """Its number in the dataset."""
        return f"image {index} of the dataset"

    def identity(self, index: int) -> str:
        """A digest of the image: a dataset does not say otherwise when it changes."""
        return hashlib.sha256(self[index].contiguous().numpy().data).hexdigest()


def image_tensor(image: Any, prepare: Prepare | None = None) -> Tensor:
    """An image as (3, H, W): a PIL image, an array (H, W[, 3]) of bytes, or a tensor (3, H, W) or (1, H, W)."""
    if isinstance(image, Tensor):
        return image.expand(3, *image.shape[1:]) if image.ndim == 3 and len(image) == 1 else _three(image)
    if prepare is not None:
        image = prepare(image)
    elif hasattr(image, "convert"):
        image = image.convert("RGB")
    array = np.array(image)
    if array.ndim == 2:
        array = np.repeat(array[..., None], 3, axis=2)
    return _three(torch.from_numpy(array).permute(2, 0, 1) if array.ndim == 3 else torch.from_numpy(array))


def _three(image: Tensor) -> Tensor:
    if image.ndim != 3 or len(image) != 3 or not (image.is_floating_point() or image.dtype == torch.uint8):
        raise InputError(
            f"expected images (3, H, W) as bytes or floats in [0, 1], or PIL images, got {image.dtype} "
            f"{tuple(image.shape)}"
        )
    return image


def _image(item: Any) -> Any:
    if isinstance(item, Mapping):
        name = next((name for name in IMAGES if name in item), None)
        if name is None:
            raise InputError(f"expected one of {', '.join(IMAGES)} in an example, got {', '.join(map(str, item))}")
        return item[name]
    return item[0] if isinstance(item, tuple | list) else item


def _labels(dataset: Any) -> np.ndarray:
    """(N,) from `targets` or `labels`, from the column of a table, through a subset, else by reading every example."""
    if hasattr(dataset, "indices") and hasattr(dataset, "dataset"):
        return _labels(dataset.dataset)[np.asarray(dataset.indices, dtype=np.int64)]
    columns = getattr(dataset, "column_names", None)
    for name in LABELS:
        values = dataset[name] if columns is not None and name in columns else getattr(dataset, name, None)
        if values is not None and not callable(values) and len(values) == len(dataset):
            return np.asarray(values, dtype=np.int64)
    return np.array([_label(dataset[index]) for index in range(len(dataset))], dtype=np.int64)


def _label(item: Any) -> int:
    if isinstance(item, Mapping):
        name = next((name for name in LABELS if name in item), None)
        return UNLABELLED if name is None else int(item[name])
    return int(item[1]) if isinstance(item, tuple | list) and len(item) > 1 else UNLABELLED


def _classes(dataset: Any) -> tuple[str, ...] | None:
    """From `classes`, as torchvision has it, or from the feature of a table's label column."""
    if hasattr(dataset, "indices") and hasattr(dataset, "dataset"):
        return _classes(dataset.dataset)
    features = getattr(dataset, "features", None)
    if isinstance(features, Mapping):
        for name in LABELS:
            if names := getattr(features.get(name), "names", None):
                return tuple(map(str, names))
    names = getattr(dataset, "classes", None)
    return tuple(map(str, names)) if isinstance(names, Sequence) and names else None
