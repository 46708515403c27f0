"""What a source of images holds, before any are chosen: pixels, the paths of files, or a dataset, with labels."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scs_eval.data.arrays import channels_first, label_array, numbered_classes, read_npz
from scs_eval.data.cifar10 import CLASSES, read_cifar10
from scs_eval.data.cifar10c import PREFIX, is_corruption, read_cifar10c, read_corruption
from scs_eval.data.cifar100 import CLASSES as FINE_CLASSES
from scs_eval.data.cifar100 import read_cifar100
from scs_eval.data.class_names import arrange, known_classes
from scs_eval.data.folder import list_images, split_folder
from scs_eval.data.mnist import CLASSES as MNIST_CLASSES
from scs_eval.data.mnist import read_mnist
from scs_eval.data.own import OWN_DATA
from scs_eval.data.sample import read_sample, sample_classes
from scs_eval.datasets import is_dataset, open_dataset
from scs_eval.errors import InputError, did_you_mean

CLASSES_OF_NAMES = {"sample": CLASSES, "cifar10": CLASSES, "cifar100": FINE_CLASSES, **MNIST_CLASSES}
NAMES = tuple(CLASSES_OF_NAMES)


@dataclass(frozen=True, eq=False)
class Opened:
    """What a source holds, before any is chosen: pixels (N, 3, H, W), the paths of files, or a dataset."""

    pixels: Any
    labels: NDArray[np.int64]
    classes: tuple[str, ...]
    indices: NDArray[np.int64]
    source: str


def count_classes(source: Any) -> int | None:
    """How many classes a source has, without reading an image; None if it has no labels."""
    if isinstance(source, str) and source in CLASSES_OF_NAMES:
        return len(CLASSES_OF_NAMES[source])
    if str(source).startswith(f"{PREFIX}:"):
        return len(CLASSES)
    opened = open_images(source, None, None, split="test", data_dir=None, num_classes=None)
    return None if (opened.labels < 0).all() else len(opened.classes)


def open_images(
    source: Any, labels: Any, classes: Sequence[str] | None, *, split: str, data_dir: Any, num_classes: int | None
) -> Opened:
    """What a name, a path, an array or a dataset holds; options as `load_data` takes them."""
    if not isinstance(source, str | Path):
        return _opened_object(source, labels, classes, num_classes)
    if labels is not None or classes is not None:
        raise InputError(f"labels and classes are for arrays; {str(source)!r} brings its own")
    if source in NAMES or str(source).startswith(f"{PREFIX}:"):
        return _opened_set(str(source), data_dir, split)
    if isinstance(source, str) and source in OWN_DATA:
        return _opened_own(source, split, data_dir, num_classes)
    path = _path(source)
    if is_corruption(path):
        images, truth = read_corruption(path)
        return Opened(images, truth, CLASSES, np.arange(len(truth)), str(path.resolve()))
    if path.suffix == ".npz" and path.is_file():
        images, truth, names = read_npz(path)
        return replace(_opened_object(images, truth, names, num_classes), source=str(path.resolve()))
    return _opened_files(split_folder(path, split), num_classes)


def _opened_set(name: str, data_dir: str | Path | None, split: str) -> Opened:
    train = split == "train"
    if name == "sample":
        images, labels, indices = read_sample()
        return Opened(images, labels, sample_classes(), indices, "sample")
    if name.startswith(PREFIX):
        images, labels, indices = read_cifar10c(name, data_dir)
        return Opened(images, labels, CLASSES, indices, name)
    if name in MNIST_CLASSES:
        images, labels = read_mnist(name, data_dir, train=train)
        classes = MNIST_CLASSES[name]
    elif name == "cifar100":
        images, labels = read_cifar100(data_dir, train=train)
        classes = FINE_CLASSES
    else:
        images, labels = read_cifar10(data_dir, train=train)
        classes = CLASSES
    return Opened(images, labels, classes, np.arange(len(labels)), f"{name}:{split}")


def _opened_own(name: str, split: str, data_dir: Any, num_classes: int | None) -> Opened:
    """What a registered function returns; anything wrong with it is reported with its name."""
    value = OWN_DATA[name]()
    images, labels, classes = (*value, None)[:3] if isinstance(value, tuple) else (value, None, None)
    try:
        opened = open_images(images, labels, classes, split=split, data_dir=data_dir, num_classes=num_classes)
    except InputError as error:
        raise InputError(f"the data {name!r}: {error}") from error
    return replace(opened, source=name)


def _opened_files(folder: Path, num_classes: int | None) -> Opened:
    names, paths, own_labels = list_images(folder)
    classes, labels = known_classes(num_classes), own_labels
    if names:
        classes, positions = arrange(folder, names, num_classes=num_classes)
        labels = positions[own_labels]
    return Opened(paths, labels, classes, np.arange(len(paths)), str(folder.resolve()))


def _opened_object(source: Any, labels: Any, classes: Sequence[str] | None, num_classes: int | None) -> Opened:
    """An array or a tensor of images, or a dataset."""
    if is_dataset(source):
        _, truth, names = open_dataset(source)
        pixels, name = source, type(source).__name__
    else:
        pixels, name = channels_first(source), "array"
        truth, names = label_array(labels, len(pixels)), None
    called = tuple(classes or names or ())
    if not called:
        called = known_classes(num_classes) if (truth < 0).all() else numbered_classes(truth, num_classes)
    return Opened(pixels, truth, called, np.arange(len(truth)), name)


def _path(source: str | Path) -> Path:
    """The path, unless it reads like a misspelt name."""
    try:
        path = Path(source).expanduser()
        if source != "" and (path.exists() or len(path.parts) > 1):
            return path
    except (OSError, ValueError, RuntimeError) as error:  # too long, a null byte, no such user
        raise InputError(f"expected a folder of images or an image, got {str(source)!r}: {error}") from error
    names = (*NAMES, *OWN_DATA)
    hint = did_you_mean(str(source).lower(), names, otherwise="there is no such folder or file", most=1)
    raise InputError(f"expected {', '.join(names)}, a folder of images or an image, got {str(source)!r}; {hint}")
