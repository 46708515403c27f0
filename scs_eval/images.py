"""Images that are read when they are used, as if they were one array (n, 3, H, W) of floats in [0, 1].

A `Reader` decodes one image; `StreamedImages` are some of a reader's images. Indexing reads them now; `batches` has
worker processes read ahead. They travel as bytes where they are bytes, and become floats when a batch is used. What
works on a batch at a time, `images[part]`, so takes a tensor and a million files alike.
"""

import hashlib
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor
from torch.utils.data import DataLoader

from scs_eval.errors import InputError

Positions = slice | Tensor | np.ndarray | Sequence[int]
FEW = 64  # images that are read sooner than a worker process has started
MOST_WORKERS = 4


class Reader(Protocol):
    """Where images come from: asked for a number, gives the image (3, H, W) as bytes, or as floats in [0, 1]."""

    def __getitem__(self, index: int) -> Tensor:
        """The image, decoded now."""

    def name(self, index: int) -> str:
        """What an error calls the image: a file's path."""

    def identity(self, index: int) -> str:
        """What changes when the image does, without decoding it: a file's path, size and time."""


class StreamedImages:
    """The images `numbers` (n,) of a reader, all of `size` (H, W); read when they are asked for, and not kept."""

    dtype, ndim, device = torch.float32, 4, torch.device("cpu")

    def __init__(self, reader: Reader, numbers: np.ndarray, size: tuple[int, int]) -> None:
        self.reader, self.numbers, self.size = reader, np.asarray(numbers, dtype=np.int64), size

    @property
    def shape(self) -> torch.Size:
        """(n, 3, H, W)."""
        return torch.Size((len(self), 3, *self.size))

    def __len__(self) -> int:
        return len(self.numbers)

    def __repr__(self) -> str:
        return f"StreamedImages({len(self)} images of {self.size[1]}×{self.size[0]}, read when used)"

    def __getitem__(self, positions: Positions | int) -> Tensor:
        """The images at these positions, (…, 3, H, W): one, a slice, whole numbers of any shape, or a mask."""
        at = _numbers(positions, len(self))
        batches = list(self.batches([part for part in torch.from_numpy(at.ravel()).split(FEW) if len(part)]))
        pixels = torch.cat(batches) if batches else torch.empty(0, 3, *self.size)
        return pixels.view(*at.shape, 3, *self.size)

    def subset(self, positions: Positions) -> "StreamedImages":
        """Some of the images, still unread."""
        return StreamedImages(self.reader, self.numbers[_numbers(positions, len(self))], self.size)

    def batches(self, parts: Sequence[Positions]) -> Iterator[Tensor]:
        """The images at each of the parts, in order, read ahead by worker processes if they are many."""
        return map(_unit, self._load(parts, _stacked))

    def errors(self) -> Iterator[tuple[int, InputError]]:
        """Read every image once: the positions of those that cannot be read, and why."""
        parts = [range(start, min(start + FEW, len(self))) for start in range(0, len(self), FEW)]
        for part, batch in zip(parts, self._load(parts, _errors), strict=True):
            yield from ((part[index], error) for index, error in batch)

    def _load(self, parts: Sequence[Positions], collate: Callable[[list[Any]], Any]) -> Iterator[Any]:
        wanted = [self.numbers[_numbers(part, len(self))].tolist() for part in parts]
        return iter(
            DataLoader(
                _Readable(self.reader, self.size),  # type: ignore[arg-type]
                batch_sampler=wanted,
                collate_fn=collate,
                num_workers=useful_workers(sum(map(len, wanted))),
                generator=torch.Generator(),  # or it would draw from the caller's random numbers
            )
        )

    def digest(self) -> bytes:
        """What changes when one of the images does, or their order, without reading them."""
        whole = hashlib.sha256(repr(self.size).encode())
        for number in self.numbers.tolist():
            whole.update(self.reader.identity(number).encode() + b"\n")
        return whole.digest()


Images = Tensor | StreamedImages


def read_batches(images: Images, parts: Sequence[Positions]) -> Iterator[Tensor]:
    """The images at each of the parts, in order."""
    return iter(images[part] for part in parts) if isinstance(images, Tensor) else images.batches(parts)


def take_images(images: Images, positions: Positions) -> Images:
    """Some of the images; those that are read when used stay unread."""
    return images[positions] if isinstance(images, Tensor) else images.subset(positions)


def indices_digest(indices: ArrayLike) -> str:
    """The sha256 of a list of whole numbers (as 8-byte little-endian): two runs saw the same images iff it is equal."""
    return hashlib.sha256(np.asarray(indices).astype("<i8").tobytes()).hexdigest()


def useful_workers(count: int) -> int:
    """How many processes to read so many images with: none for a few, else one for each core, up to four."""
    if count <= FEW:
        return 0
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(MOST_WORKERS, cores)


class _Readable:
    """What a worker runs: an image, or the error instead of it, which torch would wrap in a page of text."""

    def __init__(self, reader: Reader, size: tuple[int, int]) -> None:
        self.reader, self.size = reader, size

    def __getitem__(self, number: int) -> Tensor | Exception:
        try:
            image = self.reader[number]
        except InputError as error:
            return error
        if image.shape != (3, *self.size):
            height, width = image.shape[-2:]
            return InputError(
                f"expected images of one size, {self.size[1]}×{self.size[0]}, got {width}×{height} in "
                f"{self.reader.name(number)}; give the size to scale them to (size=224 or --size 224)"
            )
        return image


def _stacked(images: list[Any]) -> Any:
    """A batch as bytes if all of it is; else floats; or the first error."""
    errors = [image for image in images if isinstance(image, Exception)]
    if errors:
        return errors[0]
    same = len({image.dtype for image in images}) == 1
    return torch.stack(images if same else [_floats(image) for image in images])


def _errors(images: list[Any]) -> list[tuple[int, InputError]]:
    return [(index, image) for index, image in enumerate(images) if isinstance(image, InputError)]


def _unit(batch: Any) -> Tensor:
    """The batch as floats in [0, 1]; an error is raised."""
    if isinstance(batch, Exception):
        raise batch
    pixels = _floats(batch)
    if batch.is_floating_point():
        low, high = pixels.min().item(), pixels.max().item()
        if not (low >= 0 and high <= 1):  # written so that NaN fails too
            raise InputError(f"expected images in [0, 1], got [{low:.3g}, {high:.3g}]; give them before normalising")
    return pixels


def _floats(pixels: Tensor) -> Tensor:
    return pixels.float().div_(255) if pixels.dtype == torch.uint8 else pixels.float()


def _numbers(positions: Positions | int, count: int) -> np.ndarray:
    """Positions of any kind as whole numbers from 0 to count − 1; a mask as the positions where it is true."""
    if isinstance(positions, slice):
        return np.arange(count)[positions]
    given = positions.detach().cpu().numpy() if isinstance(positions, Tensor) else np.asarray(positions)
    if given.dtype == bool:
        return np.flatnonzero(given)
    return np.asarray(np.arange(count)[given.astype(np.int64)])
