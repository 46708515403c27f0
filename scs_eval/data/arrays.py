"""Images that are arrays already: in memory, or in a file with `images` and perhaps `labels` (.npz)."""

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from scs_eval.data.image_data import UNLABELLED
from scs_eval.data.scaling import resized
from scs_eval.errors import InputError


class ArrayReader:
    """Images of an array (N, 3, H, W), bytes or floats in [0, 1], scaled when they are asked for."""

    def __init__(self, pixels: NDArray[Any], *, size: int | None = None) -> None:
        self.pixels, self.size = pixels, size

    def __getitem__(self, index: int) -> Tensor:
        image = torch.from_numpy(np.array(self.pixels[index]))
        if self.size is None or image.shape[1:] == (self.size, self.size):
            return image
        unit = image.float().div_(255) if image.dtype == torch.uint8 else image.float()
        return resized(unit[None], self.size)[0]

    def name(self, index: int) -> str:
        """Its number in the array."""
        return f"image {index}"

    def identity(self, index: int) -> str:
        """A digest of the image itself, and how it is scaled."""
        return f"{hashlib.sha256(np.ascontiguousarray(self.pixels[index]).data).hexdigest()} {self.size}"


def channels_first(images: Any) -> NDArray[Any]:
    """Images (N, 3, H, W), (N, H, W, 3) or grey (N, H, W) as (N, 3, H, W), bytes or floats in [0, 1]."""
    array = images.detach().cpu().numpy() if isinstance(images, Tensor) else np.asarray(images)
    if array.dtype == bool or not (np.issubdtype(array.dtype, np.floating) or array.dtype == np.uint8):
        raise InputError(f"expected images as bytes (uint8) or as floats in [0, 1], got {array.dtype}")
    if array.ndim == 3:
        array = np.repeat(array[:, None], 3, axis=1)
    if array.ndim == 4 and array.shape[1] != 3 and array.shape[3] == 3:
        array = array.transpose(0, 3, 1, 2)
    if array.ndim == 4 and array.shape[1] == 1:
        array = np.repeat(array, 3, axis=1)
    if array.ndim != 4 or array.shape[1] != 3 or array.size == 0:
        raise InputError(f"expected images (N, 3, H, W), (N, H, W, 3) or (N, H, W), got {tuple(array.shape)}")
    return array if array.dtype == np.uint8 else _checked(array.astype(np.float32))


def _checked(array: NDArray[np.float32]) -> NDArray[np.float32]:
    low, high = float(array.min()), float(array.max())
    if not (low >= 0 and high <= 1):  # written so that NaN fails too
        raise InputError(f"expected images in [0, 1], got [{low:.3g}, {high:.3g}]; give them before normalising")
    return array


def label_array(labels: Any, count: int) -> NDArray[np.int64]:
    """One label for each image; −1 for all where there are none."""
    if labels is None:
        return np.full(count, UNLABELLED, dtype=np.int64)
    array = labels.detach().cpu().numpy() if isinstance(labels, Tensor) else np.asarray(labels)
    if array.shape != (count,) or not np.issubdtype(array.dtype, np.integer):
        raise InputError(f"expected {count} labels as whole numbers, got {array.dtype} {tuple(array.shape)}")
    return array.astype(np.int64)


def numbered_classes(labels: NDArray[np.int64], num_classes: int | None) -> tuple[str, ...]:
    """0, 1, 2 …: as many as the network has, or as the labels need."""
    count = num_classes or (int(labels.max()) + 1 if len(labels) else 0)
    return tuple(map(str, range(count)))


def read_npz(path: Path) -> tuple[NDArray[Any], Any, Sequence[str] | None]:
    """`images` of a file, and `labels` and `classes` if it has them; nothing in it is run."""
    try:
        with np.load(path, allow_pickle=False) as stored:
            if "images" not in stored.files:
                raise InputError(f"expected an array `images` in {path}, got {', '.join(stored.files) or 'nothing'}")
            arrays = {name: stored[name] for name in ("images", "labels", "classes") if name in stored.files}
    except (OSError, ValueError, EOFError, BadZipFile) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"expected arrays without pickle in {path}, got {type(error).__name__}: {error}") from error
    names = arrays.get("classes")
    return arrays["images"], arrays.get("labels"), None if names is None else [str(name) for name in names]
