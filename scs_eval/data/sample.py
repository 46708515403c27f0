"""The bundled sample: 1,000 CIFAR-10 test images, 100 of each class."""

import io
from importlib.resources import files

import numpy as np
from numpy.typing import NDArray
from PIL import Image

FILE = "sample.npz"


def read_sample() -> tuple[NDArray[np.uint8], NDArray[np.int64], NDArray[np.int64]]:
    """Images (1000, 3, 32, 32), labels (1000,) and CIFAR-10 test indices (1000,), by rising index."""
    stored = _stored()
    strip = np.asarray(Image.open(io.BytesIO(stored["png"].tobytes())))  # (1000 · 32, 32, 3), one below the other
    images = np.ascontiguousarray(strip.reshape(-1, 32, 32, 3).transpose(0, 3, 1, 2))
    return images, stored["labels"].astype(np.int64), stored["indices"].astype(np.int64)


def sample_classes() -> tuple[str, ...]:
    """The names of the classes, by label."""
    return tuple(str(name) for name in _stored()["classes"])


def sample_origin() -> str:
    """Where the images come from and how they were chosen."""
    return str(_stored()["origin"])


def _stored() -> dict[str, NDArray[np.generic]]:
    with files("scs_eval.data").joinpath(FILE).open("rb") as file, np.load(file, allow_pickle=False) as arrays:
        return dict(arrays)
