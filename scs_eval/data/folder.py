"""Image files: one, a folder of them without labels, or a folder of class folders (`cat/1.png`, `dog/1.jpg` …)."""

from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from scs_eval.data.decode import read_pixels, stored_size
from scs_eval.data.image_data import UNLABELLED
from scs_eval.errors import InputError

SUFFIXES = (".bmp", ".gif", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp")

Listing = tuple[tuple[str, ...], list[Path], NDArray[np.int64]]  # classes, files, labels


class FileReader:
    """Decodes files when they are asked for; size, resize: as `decode.read_pixels` takes them."""

    def __init__(self, paths: list[Path], *, size: int | None = None, resize: int | None = None) -> None:
        self.paths, self.size, self.resize = paths, size, resize

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.from_numpy(read_pixels(self.paths[index], size=self.size, resize=self.resize))

    def name(self, index: int) -> str:
        """The file's path."""
        return str(self.paths[index])

    def identity(self, index: int) -> str:
        """The file's path, length and time of change, and how it is scaled."""
        try:
            stat = self.paths[index].stat()
            version = f"{stat.st_size} {stat.st_mtime_ns}"
        except OSError:  # gone: reading it will say so
            version = ""
        return f"{self.paths[index]} {version} {self.size} {self.resize}"


def common_size(paths: list[Path]) -> tuple[int, int]:
    """The size of files that are squares of one size, by their headers alone; another raises."""
    expected = stored_size(paths[0])
    for path in paths:
        height, width = stored_size(path)
        if height != width or height != expected[0]:
            raise InputError(
                f"expected square images of one size, got {width}×{height} in {path}; "
                "give the size to scale them to (size=32 or --size 32)"
            )
    return expected


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
    there = [parts[name] for name in names if name in parts]
    if not there:
        raise InputError(f"expected a folder {' or '.join(names)} in {folder}, got {', '.join(parts)}")
    return there[0]


def _has_folders(folder: Path) -> bool:
    return any(path.is_dir() for path in _visible(folder))


def list_images(folder: Path) -> Listing:
    """Class names, image files and their labels; sorted by name, hidden files and other suffixes left out.

    A file stands for itself. A folder of files alone has no classes, and the label −1 for each of its images.
    """
    if not folder.exists():
        raise InputError(f"expected a folder of images or an image, got {folder}; there is no such folder or file")
    if not folder.is_dir():
        if not folder.is_file():
            raise InputError(f"expected a folder of images or an image, got {folder}, which is neither")
        stored_size(folder)  # which raises unless it is an image
        return (), [folder], np.full(1, UNLABELLED, dtype=np.int64)
    class_folders = [path for path in _visible(folder) if path.is_dir()]
    return _list_classes(class_folders) if class_folders else _list_flat(folder)


def _list_classes(class_folders: list[Path]) -> Listing:
    images_of = [[path for path in _visible(class_folder) if _is_image(path)] for class_folder in class_folders]
    for class_folder, images in zip(class_folders, images_of, strict=True):
        if not images:
            raise InputError(
                f"expected images ({' '.join(SUFFIXES)}) directly in the class folder {class_folder}, got none; "
                "add some, remove it, or name the folder that holds the class folders"
            )
    labels = np.repeat(np.arange(len(images_of), dtype=np.int64), [len(images) for images in images_of])
    return (
        tuple(class_folder.name for class_folder in class_folders),
        [path for images in images_of for path in images],
        labels,
    )


def _list_flat(folder: Path) -> Listing:
    paths = [path for path in _visible(folder) if _is_image(path)]
    if not paths:
        raise InputError(f"expected images ({' '.join(SUFFIXES)}) or one folder per class in {folder}, got none")
    return (), paths, np.full(len(paths), UNLABELLED, dtype=np.int64)


def _visible(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if not path.name.startswith("."))


def _is_image(path: Path) -> bool:
    return path.suffix.lower() in SUFFIXES and path.is_file()
