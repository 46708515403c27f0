"""A folder of class folders: `cat/1.png`, `cat/2.jpg`, `dog/1.png` …"""

import sys
import warnings
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import track

from scs_eval.data.choice import choose
from scs_eval.data.class_names import arrange
from scs_eval.data.decode import UnreadableImageError, read_image
from scs_eval.data.image_data import ImageData
from scs_eval.data.scaling import refuse_beyond_memory
from scs_eval.errors import InputError

SUFFIXES = (".bmp", ".gif", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp")
LONG_LOAD = 200  # images from which on a progress bar is worth its flicker


def read_folder(
    folder: Path,
    *,
    n: int | None,
    seed: int,
    size: int | None,
    skip_bad: bool,
    resize: int | None = None,
    num_classes: int | None = None,
) -> ImageData:
    """The images in the class folders of `folder`, by class and name; `indices` count all image files in that order.

    Only the images chosen by n and seed are decoded. With skip_bad an unreadable one is left out (with a warning) and,
    if n is given, replaced by another of its class as far as there is one. Without a size all must be squares of one
    size already. The labels are positions among `num_classes` classes, see `class_names`.
    """
    folders, paths, own_labels = list_images(folder)
    classes, positions = arrange(folder, folders, num_classes=num_classes)
    labels = positions[own_labels]
    if size is not None:
        refuse_beyond_memory(len(paths) if n is None else min(n, len(paths)), size)
    usable = np.ones(len(paths), dtype=np.bool_)
    decoded: dict[int, NDArray[np.float32]] = {}
    # Another round whenever unreadable images were replaced by others.
    while missing := [i for i in choose(labels, n=n, seed=seed, usable=usable).tolist() if i not in decoded]:
        for i in _with_progress(missing):
            try:
                decoded[i] = read_image(paths[i], size=size, resize=resize)
            except UnreadableImageError:
                if not skip_bad:
                    raise
                usable[i] = False
            else:
                _check_shape(paths[i], decoded[i], next(iter(decoded.values())))
    _report_skipped([paths[i] for i in np.flatnonzero(~usable)], readable=len(decoded))
    indices = sorted(decoded)
    return ImageData(
        images=_stack([decoded.pop(i) for i in indices]),
        labels=torch.from_numpy(labels[indices]),
        classes=classes,
        indices=torch.tensor(indices),
        source=str(folder.resolve()),
    )


def split_folder(folder: Path, split: str) -> Path:
    """Where the class folders are: in `train` or `val` (or `test`) if it has nothing but these, as ImageNet's has."""
    parts = {path.name: path for path in _visible(folder) if path.is_dir()} if folder.is_dir() else {}
    if (
        not parts
        or not set(parts) <= {"train", "val", "test"}
        or not any(_has_folders(part) for part in parts.values())
    ):
        if split == "train":
            raise InputError(f"expected `train` and `val` with class folders in {folder}, which has no such split")
        return folder
    names = ("train",) if split == "train" else ("val", "test")
    found = [parts[name] for name in names if name in parts]
    if not found:
        raise InputError(f"expected a folder {' or '.join(names)} in {folder}, got {', '.join(parts)}")
    return found[0]


def _has_folders(folder: Path) -> bool:
    return any(path.is_dir() for path in _visible(folder))


def list_images(folder: Path) -> tuple[tuple[str, ...], list[Path], NDArray[np.int64]]:
    """Class names, image files and their labels; sorted by name, hidden files and other suffixes left out."""
    _check_folder(folder)
    class_folders = [path for path in _visible(folder) if path.is_dir()]
    if not class_folders:
        raise InputError(f"expected one folder per class in {folder}, got none; sort the images into class folders")
    found = [[path for path in _visible(each) if _is_image(path)] for each in class_folders]
    for each, images in zip(class_folders, found, strict=True):
        if not images:
            raise InputError(
                f"expected images ({' '.join(SUFFIXES)}) directly in the class folder {each}, got none; "
                "add some, remove it, or name the folder that holds the class folders"
            )
    labels = np.repeat(np.arange(len(found), dtype=np.int64), [len(images) for images in found])
    return tuple(each.name for each in class_folders), [path for images in found for path in images], labels


def _check_folder(folder: Path) -> None:
    if not folder.exists():
        raise InputError(f"expected a folder of class folders, got {folder}; there is no such folder")
    if not folder.is_dir():
        raise InputError(f"expected a folder of class folders, got the file {folder}; name the folder above its class")


def _visible(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if not path.name.startswith("."))


def _is_image(path: Path) -> bool:
    return path.suffix.lower() in SUFFIXES and path.is_file()


def _with_progress(items: Sequence[int]) -> Iterable[int]:
    hidden = len(items) < LONG_LOAD or not sys.stderr.isatty()
    return track(items, "Reading images", console=Console(stderr=True), transient=True, disable=hidden)


def _check_shape(path: Path, image: NDArray[np.float32], first: NDArray[np.float32]) -> None:
    (height, width), (expected, _) = image.shape[1:], first.shape[1:]
    if height != width or height != expected:
        raise InputError(
            f"expected square images of one size, got {width}×{height} in {path}; "
            "give the size to scale them to (size=32 or --size 32)"
        )


def _report_skipped(skipped: list[Path], *, readable: int) -> None:
    if skipped and not readable:
        raise InputError(f"expected readable images, got {len(skipped)} unreadable ones, the first {skipped[0]}")
    if skipped:
        count = "1 unreadable image" if len(skipped) == 1 else f"{len(skipped)} unreadable images"
        warnings.warn(f"skipped {count}, the first {skipped[0]}", stacklevel=4)


def _stack(images: list[NDArray[np.float32]]) -> torch.Tensor:
    """(N, 3, H, W), freeing each image once copied: a second copy of everything may not fit."""
    stacked = torch.empty(len(images), *images[0].shape)
    for i in reversed(range(len(images))):
        stacked[i] = torch.from_numpy(images.pop())
    return stacked
