"""What every source of images gives."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from scs_eval.errors import InputError


@dataclass(frozen=True, eq=False, repr=False)
class ImageData:
    """Labelled images of one size.

    images: float32 (N, 3, H, W), RGB in [0, 1].
    labels: int64 (N,), positions in `classes`.
    classes: the names of the classes.
    indices: int64 (N,), the position of each image in the original set (CIFAR-10 test index, place in the folder).
    source: what the images came from: "sample", "cifar10:test", "cifar10:train" or the folder's path.
    """

    images: torch.Tensor
    labels: torch.Tensor
    classes: tuple[str, ...]
    indices: torch.Tensor
    source: str

    def __post_init__(self) -> None:
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
        low, high = self.images.min().item(), self.images.max().item()
        if not (low >= 0 and high <= 1):  # written so that NaN fails too
            raise InputError(f"expected images in [0, 1], got [{low:.3g}, {high:.3g}]; give them before normalising")
        first, last = self.labels.min().item(), self.labels.max().item()
        if first < 0 or last >= len(self.classes):
            raise InputError(f"expected labels from 0 to {len(self.classes) - 1}, got {first} to {last}")

    def __len__(self) -> int:
        return self.images.shape[0]

    def __repr__(self) -> str:
        size = "×".join(map(str, self.images.shape[1:]))
        return f"ImageData({len(self)} images of {size}, {len(self.classes)} classes, source={self.source!r})"

    def subset(self, positions: torch.Tensor | slice) -> ImageData:
        """The images at `positions` (integers, a mask or a slice), in that order."""
        return replace(
            self, images=self.images[positions], labels=self.labels[positions], indices=self.indices[positions]
        )
