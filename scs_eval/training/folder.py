"""ImageNet-style data: class folders in `train` and `val`, read by worker processes with torchvision's transforms."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import DataLoader, Dataset
from torchvision.datasets import ImageFolder
from torchvision.transforms import v2

from scs_eval.data.folder import SUFFIXES
from scs_eval.errors import InputError
from scs_eval.training.augmentation import generator
from scs_eval.training.processes import World, ignore_stop_signals
from scs_eval.training.recipe import Recipe

EVAL_BATCH = 100


class FolderSource:
    """Images from files, each augmented by random numbers that depend on seed, epoch and place in the epoch alone.

    So neither the number of workers or processes nor a resumption changes what a model sees.
    """

    def __init__(
        self,
        root: Path,
        *,
        recipe: Recipe,
        seed: int,
        workers: int,
        world: World,
        choose: Callable[[int], NDArray[np.int64]] = np.arange,
    ) -> None:
        """choose: which of so many training images, sorted by class and name, are trained on."""
        if recipe.crop_padding != Recipe().crop_padding:
            raise InputError("crop_padding is for data in memory; a folder's images are cropped to image_size")
        self.recipe, self.seed, self.workers, self.world = recipe, seed, workers, world
        self.train = _open(root, "train", transform=train_transform(recipe))
        self.train.samples = [self.train.samples[index] for index in choose(len(self.train.samples)).tolist()]
        self.test = _open(root, "val" if (root / "val").is_dir() else "test", transform=eval_transform(recipe))
        if self.train.classes != self.test.classes:
            raise InputError(f"expected the same class folders for training and evaluation in {root}, got others")
        self.num_classes = len(self.train.classes)
        self.sizes: tuple[int, ...] = recipe.image_size, recipe.eval_size
        self.steps = len(self.train) // recipe.batch_size
        if self.steps == 0:
            raise InputError(f"batch_size: expected at most the {len(self.train)} images, got {recipe.batch_size}")

    def train_batches(self, epoch: int, *, start: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Augmented batches; with `repeats`, every image drawn appears that often, and as many fewer are drawn."""
        count, stream = len(self.train), generator(self.seed, epoch)
        order = repeated_order(count, repeats=self.recipe.repeats, stream=stream).tolist()
        keys = list(zip(order, torch.randint(2**62, (count,), generator=stream).tolist(), strict=True))
        size = self.recipe.batch_size
        batches = [keys[batch * size : (batch + 1) * size] for batch in range(start, self.steps)]
        mine = [batch[self.world.rank :: self.world.size] for batch in batches]
        return self._load(_Seeded(self.train), mine)

    def test_batches(self) -> Iterator[tuple[Tensor, Tensor]]:
        """This process's share, resized and cropped centrally."""
        keys = [(index, 0) for index in range(self.world.rank, len(self.test), self.world.size)]
        return self._load(_Seeded(self.test), [keys[i : i + EVAL_BATCH] for i in range(0, len(keys), EVAL_BATCH)])

    def _load(self, dataset: "_Seeded", batches: list[list[tuple[int, int]]]) -> Iterator[tuple[Tensor, Tensor]]:
        pinned = self.world.device.type == "cuda"
        loader = DataLoader(
            dataset,
            batch_sampler=batches,
            num_workers=self.workers,
            pin_memory=pinned,
            worker_init_fn=ignore_stop_signals if self.workers else None,
        )
        for images, labels in loader:
            images = images.to(self.world.device, memory_format=torch.channels_last, non_blocking=pinned)
            yield images, labels.to(self.world.device, non_blocking=pinned)


class _Seeded(Dataset[tuple[Tensor, int]]):
    """Asked for (index, seed), gives that image as the transforms make it with that seed."""

    def __init__(self, images: ImageFolder) -> None:
        self.images = images

    def __getitem__(self, key: tuple[int, int]) -> tuple[Tensor, int]:
        index, seed = key
        torch.manual_seed(seed)
        return self.images[index]


def repeated_order(count: int, *, repeats: int, stream: torch.Generator) -> Tensor:
    """`count` indices in random order, each `repeats` times in a row, so that its copies fall into the same batch."""
    return torch.randperm(count, generator=stream).repeat_interleave(repeats)[:count]


def train_transform(recipe: Recipe) -> Any:
    """Random resized crop, flip, automatic augmentation, floats in [0, 1], random erasing."""
    automatic = {"trivial": [v2.TrivialAugmentWide()], "rand": [v2.RandAugment(magnitude=10)], "none": []}
    return v2.Compose(
        [
            v2.PILToTensor(),
            v2.RandomResizedCrop(recipe.image_size, antialias=True),
            v2.RandomHorizontalFlip(0.5 if recipe.flip else 0.0),
            *automatic[recipe.augment],
            v2.ToDtype(torch.float32, scale=True),
            v2.RandomErasing(recipe.erasing),
        ]
    )


def eval_transform(recipe: Recipe) -> Any:
    """Resize the shorter side, crop the centre, floats in [0, 1]."""
    return v2.Compose(
        [
            v2.PILToTensor(),
            v2.Resize(recipe.eval_resize, antialias=True),
            v2.CenterCrop(recipe.eval_size),
            v2.ToDtype(torch.float32, scale=True),
        ]
    )


def _is_listed(path: str) -> bool:
    """Whether the analyses see this file, so that an index means the same image to both."""
    return Path(path).suffix.lower() in SUFFIXES and not Path(path).name.startswith(".")


def _open(root: Path, part: str, *, transform: Any) -> ImageFolder:
    try:
        return ImageFolder(str(root / part), transform=transform, is_valid_file=_is_listed)
    except FileNotFoundError as error:
        raise InputError(f"expected class folders with images in {root / part}: {error}") from error
