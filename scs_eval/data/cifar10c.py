"""CIFAR-10-C (Hendrycks and Dietterich 2019): the CIFAR-10 test images under a corruption, at five severities.

A file for each corruption, `fog.npy` (50000, 32, 32, 3): the test images five times, the mildest first; `labels.npy`
beside them.
"""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from scs_eval.data.cifar10 import Images, Labels
from scs_eval.data.places import places
from scs_eval.errors import InputError, did_you_mean

PREFIX, FOLDER = "cifar10-c", "CIFAR-10-C"
SEVERITIES = 5


def read_cifar10c(source: str, data_dir: str | Path | None = None) -> tuple[Images, Labels, NDArray[np.int64]]:
    """Images, labels and positions in the file of "cifar10-c:fog", or of one severity, "cifar10-c:fog:3"."""
    _, corruption, severity = [*source.split(":"), "", ""][:3]
    if severity not in ("", *map(str, range(1, SEVERITIES + 1))) or not corruption or source.count(":") > 2:
        raise InputError(f"expected {PREFIX}:CORRUPTION or {PREFIX}:CORRUPTION:SEVERITY (1 to 5), got {source!r}")
    images, labels = read_corruption(_find(corruption, data_dir))
    count = len(labels) // SEVERITIES
    rows = np.arange(len(labels)) if severity == "" else np.arange(count) + count * (int(severity) - 1)
    return images[rows], labels[rows], rows


def is_corruption(path: Path) -> bool:
    """Whether a file is one of CIFAR-10-C: an .npy with labels.npy beside it."""
    return path.suffix == ".npy" and path.name != "labels.npy" and (path.parent / "labels.npy").is_file()


def read_corruption(path: Path) -> tuple[Images, Labels]:
    """The images (N, 3, 32, 32) of one file, and the labels (N,) beside it."""
    images, labels = _array(path), _array(path.parent / "labels.npy")
    if images.ndim != 4 or images.shape[-1] != 3 or images.dtype != np.uint8 or labels.shape != images.shape[:1]:
        raise InputError(
            f"expected bytes (N, 32, 32, 3) in {path} and N labels in labels.npy, got {images.dtype} {images.shape} "
            f"and {labels.shape}"
        )
    return np.ascontiguousarray(images.transpose(0, 3, 1, 2)), labels.astype(np.int64)


def _array(path: Path) -> NDArray[np.generic]:
    try:
        array: NDArray[np.generic] = np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise InputError(f"expected an array without pickle in {path}, got {type(error).__name__}: {error}") from error
    return array


def _find(corruption: str, data_dir: str | Path | None) -> Path:
    searched = places(data_dir)
    folders = [folder for location in searched for folder in (location.path / FOLDER, location.path)]
    for folder in folders:
        if (folder / "labels.npy").is_file():
            if (folder / f"{corruption}.npy").is_file():
                return folder / f"{corruption}.npy"
            known = sorted(path.stem for path in folder.glob("*.npy") if path.name != "labels.npy")
            hint = did_you_mean(corruption, known, otherwise=f"there are {', '.join(known)}")
            raise InputError(f"no corruption {corruption!r} in {folder}; {hint}")
    looked = ", ".join(str(location.path) for location in searched)
    raise InputError(f"expected {FOLDER} with labels.npy in {looked}, found none; unpack CIFAR-10-C.tar there")
