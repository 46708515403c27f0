"""`load_data`: the one way from the name of some images to the images."""

from numbers import Integral
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from scs_eval.data.choice import choose
from scs_eval.data.cifar10 import CLASSES, read_cifar10
from scs_eval.data.folder import list_images, read_folder, split_folder
from scs_eval.data.image_data import ImageData
from scs_eval.data.sample import read_sample, sample_classes
from scs_eval.data.scaling import refuse_beyond_memory, scaled
from scs_eval.errors import InputError, did_you_mean

NAMES = ("sample", "cifar10")


def load_data(
    source: str | Path = "sample",
    *,
    n: int | None = None,
    seed: int = 0,
    size: int | None = None,
    resize: int | None = None,
    split: str = "test",
    data_dir: str | Path | None = None,
    skip_bad: bool = False,
    num_classes: int | None = None,
) -> ImageData:
    """Images in [0, 1] with their labels.

    source: "sample" (1,000 CIFAR-10 test images, bundled), "cifar10", or the path of a folder of class folders, also of
        one that has them in `val` and `train`, as ImageNet's.
    n: how many images; chosen at random by `seed`, evenly over the classes, kept in the order of the source. None: all.
    size: scale to size × size pixels, bilinear with antialiasing; what is not square is cropped to its centre. None:
        as they are, which for a folder must be squares of one size.
    resize: for a folder, scale the shorter side to this many pixels before size × size are cropped: 256 with size=224
        is how ImageNet networks are evaluated. None: scale to `size`.
    split: "test" or "train"; cifar10 has both, and a folder with `train` in it.
    data_dir: where cifar10 is looked for, before $SCS_EVAL_DATA and the user cache.
    skip_bad: leave out unreadable images of a folder, with a warning that says how many.
    num_classes: how many classes the network has that is to see a folder. If they are more than the class folders,
        those must be called as ImageNet's classes are or be listed in classes.txt there. None: as many as folders.
    """
    for name, value, least in (("n", n, 1), ("seed", seed, 0), ("size", size, 1), ("resize", resize, size or 1)):
        _check_whole(name, value, least)
    if resize is not None and size is None:
        raise InputError(f"expected a size to crop to with resize {resize}, got none; give both")
    _check_split(source, split)
    if source == "sample":
        images, labels, indices = read_sample()
        return _pick(images, labels, indices, classes=sample_classes(), source="sample", n=n, seed=seed, size=size)
    if source == "cifar10":
        images, labels = read_cifar10(data_dir, train=split == "train")
        name = f"cifar10:{split}"
        return _pick(images, labels, np.arange(len(labels)), classes=CLASSES, source=name, n=n, seed=seed, size=size)
    folder = split_folder(_folder(source), split)
    sizes = {"size": size, "resize": resize}
    return read_folder(folder, n=n, seed=seed, skip_bad=skip_bad, num_classes=num_classes, **sizes)


def count_classes(source: str | Path) -> int:
    """How many classes a source has, without reading an image."""
    if source in NAMES:
        return len(CLASSES)
    return len(list_images(split_folder(_folder(source), "test"))[0])


def _pick(
    images: NDArray[np.uint8],
    labels: NDArray[np.int64],
    indices: NDArray[np.int64],
    *,
    classes: tuple[str, ...],
    source: str,
    n: int | None,
    seed: int,
    size: int | None,
) -> ImageData:
    chosen = choose(labels, n=n, seed=seed)
    if size is not None:
        refuse_beyond_memory(len(chosen), size)
    pixels = torch.from_numpy(images[chosen]).float().div_(255)
    return ImageData(
        images=pixels if size is None else scaled(pixels, size),
        labels=torch.from_numpy(labels[chosen]),
        classes=classes,
        indices=torch.from_numpy(indices[chosen]),
        source=source,
    )


def _check_whole(name: str, value: Any, least: int) -> None:
    if value is not None and (not isinstance(value, Integral) or value < least):
        raise InputError(f"expected {name} as a whole number of at least {least}, got {value!r}")


def _check_split(source: str | Path, split: str) -> None:
    if split not in ("test", "train"):
        raise InputError(f"expected the split 'test' or 'train', got {split!r}")
    if split == "train" and source == "sample":
        raise InputError(f"expected source 'cifar10' with split 'train', got {str(source)!r}, which has no such split")


def _folder(source: str | Path) -> Path:
    """The path, unless it reads like a misspelt name."""
    try:
        path = Path(source).expanduser()
        if source != "" and (path.exists() or len(path.parts) > 1):
            return path
    except (OSError, ValueError, RuntimeError) as error:  # too long, a null byte, no such user
        raise InputError(f"expected a folder of class folders, got {str(source)!r}: {error}") from error
    hint = did_you_mean(str(source).lower(), NAMES, otherwise="there is no such folder", most=1)
    raise InputError(f"expected 'sample', 'cifar10' or a folder of class folders, got {str(source)!r}; {hint}")
