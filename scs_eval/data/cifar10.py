"""CIFAR-10 (Krizhevsky 2009), from the official binary files or from torchvision's copy."""

import socket
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from scs_eval.data.places import Place, cache_dir, places
from scs_eval.errors import InputError

CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
BINARY, PYTHON = "cifar-10-batches-bin", "cifar-10-batches-py"
BINARY_URL = "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz"
RECORDS_PER_FILE = 10_000
RECORD_BYTES = 1 + 3 * 32 * 32  # the label, then the red, green and blue planes row by row
TRAIN_FILES = tuple(f"data_batch_{i}" for i in range(1, 6))
TEST_FILES = ("test_batch",)
DOWNLOAD_TIMEOUT = 20.0  # seconds of silence; without it a dead network blocks for minutes

Images = NDArray[np.uint8]
Labels = NDArray[np.int64]


def read_cifar10(data_dir: str | Path | None = None, *, train: bool) -> tuple[Images, Labels]:
    """The 50,000 training or 10,000 test images, (N, 3, 32, 32), and their labels, (N,).

    Looked for in `data_dir`, $SCS_EVAL_DATA and the user cache; if in none of them, downloaded into the user cache.
    """
    searched = places(data_dir)
    folder = find_cifar10(searched, train=train)
    if folder is None:
        _download(cache_dir(), searched)
        folder = cache_dir() / PYTHON
    if _is_binary(folder, train=train):
        return _read_binary(folder, train=train)
    again = "remove the folder and run again to download it"
    return read_pickles("CIFAR10", folder, train=train, otherwise=again)


def find_cifar10(searched: list[Place], *, train: bool) -> Path | None:
    """The first folder in `searched` that holds every file of the training or test set, in either layout."""
    for location in searched:
        for folder in (location.path / BINARY, location.path / PYTHON, location.path):
            if _is_binary(folder, train=train) or _is_python(folder):
                return folder
    return None


def _files(train: bool) -> tuple[str, ...]:
    return TRAIN_FILES if train else TEST_FILES


def _is_binary(folder: Path, *, train: bool) -> bool:
    return all((folder / f"{name}.bin").is_file() for name in _files(train))


def _is_python(folder: Path) -> bool:
    # torchvision finds the folder by its name, and checks all of the files whichever it reads.
    names = (*TRAIN_FILES, *TEST_FILES, "batches.meta")
    return folder.name == PYTHON and all((folder / name).is_file() for name in names)


def _read_binary(folder: Path, *, train: bool) -> tuple[Images, Labels]:
    records = np.concatenate([_read_records(folder / f"{name}.bin") for name in _files(train)])
    return np.ascontiguousarray(records[:, 1:]).reshape(-1, 3, 32, 32), records[:, 0].astype(np.int64)


def _read_records(path: Path) -> Images:
    """The records of one file, (10000, 3073)."""
    expected, size = RECORDS_PER_FILE * RECORD_BYTES, path.stat().st_size
    if size != expected:
        raise InputError(f"expected {expected} bytes in {path}, got {size}; the file is incomplete, get it again")
    records = np.fromfile(path, dtype=np.uint8).reshape(RECORDS_PER_FILE, RECORD_BYTES)
    wrong = np.flatnonzero(records[:, 0] >= len(CLASSES))
    if len(wrong):
        raise InputError(
            f"expected labels 0 to 9 in {path}, got {records[wrong[0], 0]} in record {wrong[0]}; "
            "the file is damaged or not CIFAR-10, get it again"
        )
    return records


def read_pickles(name: str, folder: Path, *, train: bool, otherwise: str) -> tuple[Images, Labels]:
    """Read through torchvision, which unpickles the files only after checking their MD5 sums.

    name: CIFAR10 or CIFAR100. otherwise: what to do where the sums differ.
    """
    from torchvision import datasets

    try:
        dataset = getattr(datasets, name)(str(folder.parent), train=train)
    except RuntimeError as error:
        raise InputError(
            f"expected the files of {name.replace('CIFAR', 'CIFAR-')} in {folder}, got others (their MD5 sums differ); "
            f"{otherwise}"
        ) from error
    return np.ascontiguousarray(dataset.data.transpose(0, 3, 1, 2)), np.asarray(dataset.targets, dtype=np.int64)


def _download(target: Path, searched: list[Place]) -> None:
    """Put torchvision's copy into `target`, whole or not at all."""
    from torchvision.datasets import CIFAR10

    try:
        target.mkdir(parents=True, exist_ok=True)
        # Beside, then rename: a half-extracted folder must never look like data.
        with tempfile.TemporaryDirectory(dir=target, prefix=".download-") as beside, _quick_network():
            CIFAR10(beside, download=True)
            (Path(beside) / PYTHON).rename(target / PYTHON)
    except Exception as error:  # the network, the server, the disk: whichever it was, the remedy is the same
        if _is_python(target / PYTHON):
            return  # another process was faster
        looked = ", ".join(str(location.path) for location in searched)
        reason = " ".join(str(error).split()) or type(error).__name__
        raise InputError(
            f"expected CIFAR-10 in {looked}, found none, and downloading it failed ({reason}); "
            f"unpack {BINARY_URL} so that {target / BINARY / 'test_batch.bin'} exists, "
            "or give the folder you unpacked it in as --data-dir"
        ) from error


@contextmanager
def _quick_network() -> Iterator[None]:
    """Give up on a silent network, and keep torchvision's messages out of stdout, where --json goes."""
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(DOWNLOAD_TIMEOUT)
    try:
        with redirect_stdout(sys.stderr):
            yield
    finally:
        socket.setdefaulttimeout(before)
