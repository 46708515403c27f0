"""Where batches come from: the contract, images held in memory, and which data a name means."""

from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from scs_eval.data.choice import usable_images
from scs_eval.data.scaling import resized
from scs_eval.errors import InputError
from scs_eval.training.augmentation import crop_flip, generator, to_unit
from scs_eval.training.job import Job
from scs_eval.training.network import image_size
from scs_eval.training.processes import World
from scs_eval.training.recipe import Recipe

EVAL_BATCH, EVAL_PIXELS = 500, 100 * 224**2  # images at once in an evaluation: so many, and so large in all
HOLD_OUT = 2307  # the seed of the choice of held-out images

Arrays = tuple[np.ndarray, np.ndarray]  # images as bytes (N, 3, H, W), labels (N,)


class Source(Protocol):
    """Batches of this process: images (N, 3, H, W) in [0, 1] on its device, and their labels (N,)."""

    num_classes: int
    steps: int  # batches in an epoch
    sizes: tuple[int, ...]  # sides of the images that networks see, in training and in evaluation

    def train_batches(self, epoch: int, *, start: int) -> Iterator[tuple[Tensor, Tensor]]:
        """The augmented batches of an epoch from number `start` on; the same whenever the epoch is repeated."""

    def test_batches(self) -> Iterator[tuple[Tensor, Tensor]]:
        """This process's share of the test images, not augmented."""


class ArraySource:
    """CIFAR-sized data as bytes on the device.

    The draws of a whole epoch are made at once from (seed, epoch). All processes make the same draws and take
    their share of each batch, so the batches do not depend on the number of processes. The images left over after
    the last whole batch sit this epoch out. A network for larger images, `size` pixels on a side, gets them enlarged.
    """

    def __init__(
        self,
        train: Arrays,
        test: Arrays,
        *,
        num_classes: int,
        recipe: Recipe,
        seed: int,
        world: World,
        size: int | None = None,
    ) -> None:
        _refuse_folder_options(recipe)
        self.num_classes = num_classes
        self.recipe, self.seed, self.world = recipe, seed, world
        self.images, self.labels = (torch.from_numpy(part).to(world.device) for part in train)
        self.test_images, self.test_labels = (torch.from_numpy(part).to(world.device) for part in test)
        self.sizes: tuple[int, ...] = (size or self.images.shape[-1],)
        self.steps = len(self.images) // recipe.batch_size
        if self.steps == 0:
            raise InputError(f"batch_size: expected at most the {len(self.images)} images, got {recipe.batch_size}")

    def train_batches(self, epoch: int, *, start: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Shuffled, cropped and flipped."""
        order, offsets, flips = self._draws(epoch)
        size = self.recipe.batch_size
        for batch in range(start, self.steps):
            chosen = self.world.share(order[batch * size : (batch + 1) * size])
            crops = crop_flip(
                self.images[chosen], padding=self.recipe.crop_padding, offsets=offsets[chosen], flips=flips[chosen]
            )
            yield self._enlarged(to_unit(crops)), self.labels[chosen]

    def test_batches(self) -> Iterator[tuple[Tensor, Tensor]]:
        """In order, as they are."""
        mine = self.world.share(torch.arange(len(self.test_images), device=self.world.device))
        for chosen in mine.split(max(1, min(EVAL_BATCH, EVAL_PIXELS // self.sizes[0] ** 2))):
            yield self._enlarged(to_unit(self.test_images[chosen])), self.test_labels[chosen]

    def _enlarged(self, images: Tensor) -> Tensor:
        return images if images.shape[-1] == self.sizes[0] else resized(images, self.sizes[0])

    def _draws(self, epoch: int) -> tuple[Tensor, Tensor, Tensor]:
        count, stream = len(self.images), generator(self.seed, epoch)
        order = torch.randperm(count, generator=stream)
        offsets = torch.randint(2 * self.recipe.crop_padding + 1, (count, 2), generator=stream)
        flips = torch.rand(count, generator=stream) < 0.5
        if self.recipe.alternating_flip:
            flips = self._alternating_flips(epoch)
        if not self.recipe.flip:
            flips.zero_()
        device = self.world.device
        return order.to(device), offsets.to(device), flips.to(device)

    def _alternating_flips(self, epoch: int) -> Tensor:
        """Which images to mirror: half of them in odd epochs, the other half in even ones (Jordan 2024, airbench).

        So two epochs show every image both ways; random flips repeat one of the two for half of the images.
        """
        first = torch.rand(len(self.images), generator=generator(self.seed, 0)) < 0.5  # epochs count from 1
        return first if epoch % 2 else ~first


def _refuse_folder_options(recipe: Recipe) -> None:
    plain = Recipe()
    for name in ("augment", "erasing", "repeats", "image_size", "eval_resize", "eval_size"):
        if getattr(recipe, name) != getattr(plain, name):
            raise InputError(f"{name} needs a folder of images; for data in memory leave it at {getattr(plain, name)}")


def divide(train: Arrays, test: Arrays, *, validation: int, train_images: int) -> tuple[Arrays, Arrays]:
    """The images to train on and those to evaluate on: with `validation`, held-out training images and no test image.

    Which images are held out depends on no seed, so that runs with different seeds can be compared.
    """
    if not validation and not train_images:
        return train, test
    left = len(train[1]) - validation
    if left < max(train_images, 1):
        wanted = f"{validation} images for validation and {train_images or 'some'} for training"
        raise InputError(f"expected at most the {len(train[1])} training images, got {wanted}")
    order = torch.randperm(len(train[1]), generator=generator(HOLD_OUT)).numpy()
    chosen = np.sort(order[validation : validation + (train_images or left)])
    held_out = np.sort(order[:validation])
    evaluated = (train[0][held_out], train[1][held_out]) if validation else test
    return (train[0][chosen], train[1][chosen]), evaluated


def open_data(job: Job, world: World) -> Source:
    """`cifar10` is held in memory; any other name is a folder with class folders in `train` and in `val` or `test`.

    A network made for larger images gets those of CIFAR-10 enlarged, as the analyses show them to it.
    """
    if job.data == "cifar10":
        from scs_eval.data.cifar10 import read_cifar10

        train, test = (read_cifar10(job.data_dir, train=part) for part in (True, False))
        chosen = training_images(job, len(train[1]))
        train = train[0][chosen], train[1][chosen]
        train, test = divide(train, test, validation=job.validation, train_images=job.train_images)
        size = image_size(job.model)
        return ArraySource(train, test, num_classes=10, recipe=job.recipe, seed=job.seed, world=world, size=size)
    root = Path(job.data)
    if not root.is_dir():
        raise InputError(f"no data {job.data!r}: expected cifar10 or a folder with train and val in it")
    if job.validation or job.train_images:
        raise InputError("--validation and --train-images are for cifar10; a folder has its own val")
    from scs_eval.training.folder import FolderSource

    return FolderSource(
        root,
        recipe=job.recipe,
        seed=job.seed,
        workers=job.workers,
        world=world,
        choose=lambda count: training_images(job, count),
    )


def training_images(job: Job, count: int) -> NDArray[np.int64]:
    """Which of so many training images are trained on, in the order of the set."""
    usable = usable_images(np.arange(count), only=job.indices, exclude=job.exclude, source=f"{job.data} (training)")
    return np.flatnonzero(usable)
