"""Images with their labels as one object, whoever loaded them: what an analysis takes as its data."""

from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor

from scs_eval.images import Images


class LabelledImages(Protocol):
    """What an analysis asks of data; `scs_eval.data.ImageData` has it, and so has `ImageSet`.

    images: floats (N, 3, H, W) in [0, 1], a tensor or read when used. labels: (N,) positions in `classes`.
    indices: (N,) whole numbers by which the images are known in the set they come from.
    """

    @property
    def images(self) -> Images: ...  # noqa: D102 -- the class says it

    @property
    def labels(self) -> Tensor: ...  # noqa: D102

    @property
    def classes(self) -> Sequence[str]: ...  # noqa: D102

    @property
    def indices(self) -> Tensor: ...  # noqa: D102


class ImageSet:
    """Labelled images from tensors; without `indices` they are counted from 0. source, seed: where from, if known."""

    def __init__(
        self, images: Images, labels: Tensor, classes: Sequence[str], indices: Tensor | None = None, *,
        source: str | None = None, seed: int | None = None,
    ) -> None:  # fmt: skip
        self.images, self.labels, self.classes = images, labels, classes
        self.source, self.seed = source, seed
        self.indices = torch.arange(len(images)) if indices is None else torch.as_tensor(indices)
