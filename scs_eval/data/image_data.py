"""What every source of images gives."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from scs_eval.errors import InputError
from scs_eval.images import Images, StreamedImages, take_images

UNLABELLED = -1


@dataclass(frozen=True, eq=False, repr=False)
class ImageData:
    """Images of one size, with their labels if they have any.

    images: float32 (N, 3, H, W), RGB in [0, 1]: a tensor, or `StreamedImages`, which are read when they are used;
        both give a tensor for `images[positions]`, and `images[:]` is all of them.
    labels: int64 (N,), positions in `classes`; −1 for all where nobody knows.
    classes: the names of the classes.
    indices: int64 (N,), the position of each image in the original set (CIFAR-10 test index, place in the folder).
    source: what the images came from: "sample", "cifar10:test", "cifar10:train" or the folder's path.
    seed: by which they were chosen, if anyone chose.

    >>> import scs_eval, torch
    >>> images, labels, indices = torch.rand(4, 3, 32, 32), torch.tensor([0, 1, 0, 1]), torch.arange(4)
    >>> data = scs_eval.ImageData(images, labels, ("cat", "dog"), indices, source="random numbers")
    >>> data.subset(data.labels == 1)
    ImageData(2 images of 3×32×32, 2 classes, source='random numbers')
    """

    images: Images
    labels: torch.Tensor
    classes: tuple[str, ...]
    indices: torch.Tensor
    source: str
    seed: int | None = None

    def __post_init__(self) -> None:
        for name in ("images", "labels", "indices"):
            if not isinstance(value := getattr(self, name), torch.Tensor | StreamedImages):
                raise InputError(f"expected {name} as a tensor, got {type(value).__name__}; use torch.as_tensor")
        if self.images.ndim != 4 or self.images.shape[1] != 3 or self.images.dtype != torch.float32:
            raise InputError(
                f"expected float32 images of shape (N, 3, H, W), got {self.images.dtype} {tuple(self.images.shape)}"
            )
        for name, values in (("labels", self.labels), ("indices", self.indices)):
            if values.shape != (len(self),) or values.dtype != torch.int64:
                raise InputError(
                    f"expected one int64 per image ({len(self)}) as {name}, got {values.dtype} {tuple(values.shape)}"
                )
        if len(self):
            self._check_ranges()

    def _check_ranges(self) -> None:
        if isinstance(self.images, torch.Tensor):  # others are looked at when they are read
            low, high = self.images.min().item(), self.images.max().item()
            if not (low >= 0 and high <= 1):  # written so that NaN fails too
                raise InputError(
                    f"expected images in [0, 1], got [{low:.3g}, {high:.3g}]; give them before normalising"
                )
        first, last = self.labels.min().item(), self.labels.max().item()
        if self.labelled and (first < 0 or last >= len(self.classes)):
            raise InputError(f"expected labels from 0 to {len(self.classes) - 1}, got {first} to {last}")

    def __len__(self) -> int:
        return self.images.shape[0]

    @property
    def labelled(self) -> bool:
        """Whether the classes of the images are known."""
        return not bool((self.labels == UNLABELLED).all())

    def __repr__(self) -> str:
        size = "×".join(map(str, self.images.shape[1:]))
        kinds = f"{len(self.classes)} classes" if self.labelled else "no labels"
        return f"ImageData({len(self)} images of {size}, {kinds}, source={self.source!r})"

    def subset(self, positions: torch.Tensor | slice) -> ImageData:
        """The images at `positions` (integers, a mask or a slice), in that order."""
        return replace(
            self,
            images=take_images(self.images, positions),
            labels=self.labels[positions],
            indices=self.indices[positions],
        )
