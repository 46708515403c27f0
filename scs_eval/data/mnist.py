"""MNIST (LeCun et al. 1998) and Fashion-MNIST (Xiao et al. 2017): their four files in the IDX format, packed or not.

Grey images of 28×28 pixels become RGB with three equal channels.
"""

import gzip
import math
import struct
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from scs_eval.data.cifar10 import Images, Labels
from scs_eval.data.places import places
from scs_eval.errors import InputError

DIGITS = tuple(map(str, range(10)))
CLOTHES = (
    "T-shirt or top", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "ankle boot",
)  # fmt: skip
FOLDERS = {"mnist": "MNIST", "fashion-mnist": "FashionMNIST"}  # torchvision's, which keeps the files in `raw`
CLASSES = {"mnist": DIGITS, "fashion-mnist": CLOTHES}
BYTES = 0x08  # the IDX code of unsigned bytes


def read_mnist(name: str, data_dir: str | Path | None = None, *, train: bool) -> tuple[Images, Labels]:
    """The images (N, 3, 28, 28) and labels (N,) of "mnist" or "fashion-mnist": 60,000 for training, 10,000 to test."""
    part, searched = "train" if train else "t10k", places(data_dir)
    for location in searched:
        for folder in _folders(location.path, name):
            pictures, labels = (_find(folder, f"{part}-{kind}") for kind in ("images-idx3", "labels-idx1"))
            if pictures is not None and labels is not None:
                return _read_pair(pictures, labels)
    looked = ", ".join(str(location.path) for location in searched)
    raise InputError(
        f"expected {part}-images-idx3-ubyte and {part}-labels-idx1-ubyte (packed as .gz or not) in {FOLDERS[name]}/raw "
        f"or {name} in {looked}, found none; put the official files there, or give their folder as --data-dir"
    )


def _folders(root: Path, name: str) -> list[Path]:
    """Where a set's files may be. Both have the same names, so a bare folder counts only if it is named itself."""
    inside = [root / FOLDERS[name] / "raw", root / FOLDERS[name], root / name]
    bare = {"raw": root.parent.name, "": root.name}["raw" if root.name == "raw" else ""]
    return [*inside, root] if bare.lower() in (name, FOLDERS[name].lower()) else inside


def _find(folder: Path, stem: str) -> Path | None:
    """The file, in either spelling of its name (train-images-idx3-ubyte, train-images.idx3-ubyte), packed or not."""
    spellings = [f"{stem}-ubyte", f"{stem.replace('-idx', '.idx')}-ubyte"]
    candidates = (folder / f"{spelling}{end}" for spelling in spellings for end in ("", ".gz"))
    return next((path for path in candidates if path.is_file()), None)


def _read_pair(pictures: Path, labels: Path) -> tuple[Images, Labels]:
    grey, classes = read_idx(pictures), read_idx(labels)
    if grey.ndim != 3 or classes.shape != grey.shape[:1] or not len(classes) or classes.max() > 9:
        raise InputError(
            f"expected images (n, 28, 28) and n labels from 0 to 9 in {pictures} and {labels.name}, "
            f"got {grey.shape} and {classes.shape}; get them again"
        )
    return np.repeat(grey[:, None], 3, axis=1), classes.astype(np.int64)


def read_idx(path: Path) -> NDArray[np.uint8]:
    """An array of bytes from an IDX file: two zeros, the type, the number of dimensions, their sizes, the values."""
    try:
        data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        zeros, kind, dimensions = struct.unpack(">HBB", data[:4])
        shape = struct.unpack(f">{dimensions}I", data[4 : 4 + 4 * dimensions])
    except (OSError, EOFError, struct.error) as error:
        raise InputError(f"expected an IDX file, got {path} ({type(error).__name__}); get it again") from error
    values = data[4 + 4 * dimensions :]
    if (zeros, kind) != (0, BYTES) or len(values) != math.prod(shape):
        raise InputError(f"expected {math.prod(shape)} bytes of an IDX file in {path}, got {len(values)}; get it again")
    return np.frombuffer(values, dtype=np.uint8).reshape(shape)
