"""A training epoch and the accuracy of many images, against the loops that people write."""

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from scs_eval.analyses.accuracy import accuracy
from scs_eval.benchmarks.contest import Growth, Say, Settings, Target, contest
from scs_eval.models.zoo.registry import create_model
from scs_eval.training.processes import World
from scs_eval.training.recipe import Recipe
from scs_eval.training.sources import ArraySource
from scs_eval.training.trainer import Trainer

SUITE = "epochs"
MODEL = "rohrer100k_conv"
TRAINING_IMAGES = 10_000  # a fifth of CIFAR-10; an epoch of all takes five times as long in both loops
WORKERS = 2


def targets(settings: Settings, say: Say) -> Iterator[Target]:
    """Both lines of the table."""
    yield _epoch(settings)
    yield _accuracy(settings)


def _pixels(count: int) -> tuple[np.ndarray, np.ndarray]:
    images = np.random.default_rng(0).integers(0, 256, (count, 3, 32, 32), dtype=np.uint8)
    return images, np.arange(count) % 10


def _epoch(settings: Settings) -> Target:
    """Crop, flip, forward, backward, Adam with OneCycle; ours also notes norms and watches for divergence."""
    data, recipe = _pixels(TRAINING_IMAGES), Recipe(batch_size=settings.batch)
    loader = DataLoader(_Pictures(*data), settings.batch, shuffle=True, num_workers=WORKERS, drop_last=True)
    seconds = contest(
        {
            "ours": partial(_our_epoch, _trainer(data, recipe)),
            "theirs": partial(_plain_epoch, *_plain_learner(recipe, steps=len(loader)), loader),
        },
        rounds=settings.rounds,
        warmup=1,
    )
    against = f"torch loop, torchvision transforms, DataLoader with {WORKERS} workers"
    return _target(f"{MODEL}: training epoch of {TRAINING_IMAGES:,} images", against, 1.5, True, seconds)


def _trainer(data: tuple[np.ndarray, np.ndarray], recipe: Recipe) -> Trainer:
    world = World(rank=0, size=1, device=torch.device("cpu"))
    source = ArraySource(data, data, num_classes=10, recipe=recipe, seed=0, world=world)
    return Trainer(create_model(MODEL).train(), source, recipe=recipe, seed=0, world=world)


def _our_epoch(trainer: Trainer) -> None:
    for images, labels in trainer.source.train_batches(trainer.epoch, start=0):
        trainer.train_step(images, labels)
    trainer.start_next_epoch()


class _Pictures(Dataset[tuple[Tensor, int]]):
    """As torchvision's CIFAR10 gives them: a PIL image through transforms, one at a time."""

    def __init__(self, images: np.ndarray, labels: np.ndarray) -> None:
        from torchvision import transforms

        self.images, self.labels = images.transpose(0, 2, 3, 1), labels.tolist()
        self.transform = transforms.Compose(
            [transforms.RandomCrop(32, padding=4), transforms.RandomHorizontalFlip(), transforms.ToTensor()]
        )

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        from PIL import Image

        return self.transform(Image.fromarray(self.images[index])), self.labels[index]


def _plain_learner(recipe: Recipe, *, steps: int) -> tuple[nn.Module, torch.optim.Optimizer, Any]:
    model = create_model(MODEL).train()
    optimizer = torch.optim.Adam(model.parameters(), lr=recipe.lr)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, recipe.lr, total_steps=recipe.epochs * steps)
    return model, optimizer, schedule


def _plain_epoch(
    model: nn.Module, optimizer: torch.optim.Optimizer, schedule: Any, loader: "DataLoader[tuple[Tensor, int]]"
) -> None:
    for images, labels in loader:
        loss = F.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()


def _accuracy(settings: Settings) -> Target:
    images = torch.from_numpy(_pixels(settings.most_images)[0]).float().div_(255)
    labels, model = torch.arange(len(images)) % 10, create_model(MODEL).eval()
    classes = [str(k) for k in range(10)]
    seconds = contest(
        {
            "ours": partial(accuracy, model, images, labels, classes=classes),
            "theirs": partial(_plain_accuracy, model, images, labels),
        },
        rounds=settings.rounds,
    )
    against = "plain no_grad loop over the tensor, batches of 250"
    return _target(f"{MODEL}: accuracy of {len(images):,} images", against, 1.1, False, seconds)


@torch.no_grad()
def _plain_accuracy(model: nn.Module, images: Tensor, labels: Tensor) -> float:
    right = sum(int((model(x).argmax(1) == y).sum()) for x, y in zip(images.split(250), labels.split(250), strict=True))
    return right / len(images)


def _target(what: str, against: str, goal: float, faster: bool, seconds: dict[str, tuple[float, ...]]) -> Target:
    ours, theirs = seconds["ours"], seconds["theirs"]
    return Target(suite=SUITE, what=what, against=against, goal=goal, faster=faster, ours=ours, theirs=theirs)


def growths(settings: Settings, say: Say) -> Iterator[Growth]:
    """Both are proportional to the images."""
    return iter(())
