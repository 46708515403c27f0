"""`load_data`: the one way from the name of some images, or from arrays or a dataset, to the images."""

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from scs_eval.data.arrays import ArrayReader
from scs_eval.data.choice import choose, usable_images
from scs_eval.data.cifar10c import PREFIX
from scs_eval.data.decode import scale_pixels
from scs_eval.data.folder import FileReader, common_size
from scs_eval.data.image_data import ImageData
from scs_eval.data.scaling import refuse_beyond_memory, resized
from scs_eval.data.sources import Opened, open_images
from scs_eval.datasets import open_dataset
from scs_eval.errors import InputError, check_whole
from scs_eval.images import Images, Reader, StreamedImages

IN_MEMORY = 2**30  # bytes of floats that a set may take; a larger one is scaled and turned to floats when it is used


def load_data(
    source: Any = "sample",
    *,
    labels: Any = None,
    classes: Sequence[str] | None = None,
    n: int | None = None,
    seed: int = 0,
    size: int | None = None,
    resize: int | None = None,
    split: str = "test",
    data_dir: str | Path | None = None,
    indices: Sequence[int] | None = None,
    exclude: Sequence[int] | None = None,
    skip_bad: bool = False,
    num_classes: int | None = None,
) -> ImageData:
    """Images in [0, 1], with their labels where there are any.

    source: "sample" (1,000 CIFAR-10 test images, bundled), "cifar10", "cifar100", "mnist", "fashion-mnist",
        "cifar10-c:CORRUPTION[:SEVERITY]" or one of its files; an image file; a folder of images, or of class folders,
        also of one that has them in `val` and `train`, as ImageNet's; an .npz file with `images` and `labels`; an array
        or tensor of images; a dataset of torch or of Hugging Face; a name of `register_data`. Files and datasets are
        read when they are used.
    labels, classes: of an array: (N,) whole numbers, and what they are called.
    n: how many images; chosen at random by `seed`, evenly over the classes, kept in the order of the source. None: all.
    size: scale to size × size pixels, bilinear with antialiasing; what is not square is cropped to its centre. None:
        as they are, which for a folder must be squares of one size.
    resize: for files, scale the shorter side to this many pixels before size × size are cropped: 256 with size=224
        is how ImageNet networks are evaluated. None: scale to `size`.
    split: "test" or "train"; of sets that have both, and of a folder with `train` in it.
    data_dir: where sets are looked for by name, before $SCS_EVAL_DATA and the user cache.
    indices, exclude: only images with these indices, and none with those: whole numbers, as `ImageData.indices`.
    skip_bad: read every file once, and leave out those that are unreadable, with a warning that says how many.
    num_classes: how many classes the network has that is to see a folder. If they are more than the class folders,
        those must be called as ImageNet's or CIFAR's classes are or be listed in classes.txt there.

    >>> import scs_eval
    >>> scs_eval.load_data("sample", n=20)
    ImageData(20 images of 3×32×32, 10 classes, source='sample')
    """
    for name, value, least in (("n", n, 1), ("seed", seed, 0), ("size", size, 1), ("resize", resize, size or 1)):
        if value is not None:
            check_whole(least, **{name: value})
    if resize is not None and size is None:
        raise InputError(f"resize {resize} needs the size of the centre to cut out: give size=32 or --size 32 as well")
    _check_split(source, split)
    opened = open_images(source, labels, classes, split=split, data_dir=data_dir, num_classes=num_classes)
    if size is not None:
        refuse_beyond_memory(n or len(opened.indices), size)
    usable = usable_images(opened.indices, only=indices, exclude=exclude, source=opened.source)
    if isinstance(opened.pixels, list):
        return _files(opened, usable, n=n, seed=seed, size=size, resize=resize, skip_bad=skip_bad)
    if isinstance(opened.pixels, np.ndarray):
        images: Images = _array(opened.pixels, chosen := _choose(opened, usable, n=n, seed=seed), size)
        return _data(opened, images, chosen, seed)
    dataset = open_dataset(opened.pixels, prepare=None if size is None else scale_pixels(size, resize))
    return _data(opened, dataset.images.subset(chosen := _choose(opened, usable, n=n, seed=seed)), chosen, seed)


def _choose(opened: Opened, usable: NDArray[np.bool_], *, n: int | None, seed: int) -> NDArray[np.int64]:
    return choose(opened.labels, n=n, seed=seed, usable=usable)


def _data(opened: Opened, images: Images, chosen: NDArray[np.int64], seed: int) -> ImageData:
    return ImageData(
        images=images,
        labels=torch.from_numpy(opened.labels[chosen]),
        classes=opened.classes,
        indices=torch.from_numpy(opened.indices[chosen]),
        source=opened.source,
        seed=int(seed),
    )


def _array(pixels: NDArray[Any], chosen: NDArray[np.int64], size: int | None) -> Images:
    """Floats in memory; images that would take too much of it are made of the array when they are used."""
    height, width = (size, size) if size is not None else pixels.shape[2:]
    if 4 * len(chosen) * 3 * height * width > IN_MEMORY:
        return StreamedImages(ArrayReader(pixels, size=size), chosen, (height, width))
    floats = torch.from_numpy(pixels[chosen])
    floats = floats.float().div_(255) if floats.dtype == torch.uint8 else floats
    return floats if size is None else resized(floats, size)


def _files(
    opened: Opened,
    usable: NDArray[np.bool_],
    *,
    n: int | None,
    seed: int,
    size: int | None,
    resize: int | None,
    skip_bad: bool,
) -> ImageData:
    """Files, unread. With skip_bad each is read once now; one that cannot be is replaced by another where n asks."""
    reader = FileReader(opened.pixels, size=size, resize=resize)
    checked: set[int] = set()
    bad: dict[int, InputError] = {}
    chosen = _choose(opened, usable, n=n, seed=seed)
    while skip_bad and (unknown := [i for i in chosen.tolist() if i not in checked]):
        new = find_unreadable(reader, unknown)
        checked.update(unknown)
        bad.update(new)
        usable[list(new)] = False
        _refuse_if_none(usable, bad, reader)
        chosen = _choose(opened, usable, n=n, seed=seed)
    shape = (size, size) if size is not None else common_size([reader.paths[i] for i in chosen])
    _report_skipped([reader.paths[i] for i in sorted(bad)])
    return _data(opened, StreamedImages(reader, chosen, shape), chosen, seed)


def find_unreadable(reader: FileReader, numbers: Sequence[int]) -> dict[int, InputError]:
    """Read these files once: which of them cannot be, and why."""
    every = StreamedImages(_AnySize(reader), np.asarray(numbers), (1, 1))
    return {int(numbers[position]): error for position, error in every.errors()}


class _AnySize:
    """A reader that decodes an image and forgets it, whatever its size is."""

    def __init__(self, reader: Reader) -> None:
        self.reader = reader

    def __getitem__(self, index: int) -> torch.Tensor:
        self.reader[index]
        return torch.zeros(3, 1, 1, dtype=torch.uint8)

    def name(self, index: int) -> str:
        """As the reader calls it."""
        return self.reader.name(index)

    def identity(self, index: int) -> str:
        """As the reader says."""
        return self.reader.identity(index)


def _refuse_if_none(usable: NDArray[np.bool_], bad: dict[int, InputError], reader: FileReader) -> None:
    if not usable.any():
        raise InputError(
            f"expected readable images, got {len(bad)} unreadable ones, the first {reader.paths[min(bad)]}"
        )


def _report_skipped(skipped: list[Path]) -> None:
    if skipped:
        count = "1 unreadable image" if len(skipped) == 1 else f"{len(skipped)} unreadable images"
        warnings.warn(f"skipped {count}, the first {skipped[0]}", stacklevel=4)


def _check_split(source: Any, split: str) -> None:
    if split not in ("test", "train"):
        raise InputError(f"expected the split 'test' or 'train', got {split!r}")
    if split == "train" and isinstance(source, str) and (source == "sample" or source.startswith(f"{PREFIX}:")):
        raise InputError(f"expected source 'cifar10' with split 'train', got {source!r}, which has no such split")
