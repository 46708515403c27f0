"""What it costs to load and augment a batch, in training steps."""

from collections.abc import Iterator
from functools import partial
from itertools import chain, count

import numpy as np
import torch

from scs_eval.benchmarks.contest import Growth, Say, Settings, Target, contest
from scs_eval.benchmarks.work import batch, laid_out, step
from scs_eval.models.zoo.registry import create_model
from scs_eval.training.processes import World
from scs_eval.training.recipe import Recipe
from scs_eval.training.sources import ArraySource

SUITE = "loading"
MODEL = "rohrer25k_conv"  # the cheapest step of the zoo
IMAGES = 50_000  # as many as CIFAR-10 has, since the draws of an epoch are made at its beginning


def targets(settings: Settings, say: Say) -> Iterator[Target]:
    """A batch from memory, cropped and flipped, against the training step that it is for."""
    x, y = batch(settings.batch)
    model, images = laid_out(create_model(MODEL).train(), x)
    seconds = contest(
        {"ours": partial(next, _batches(settings.batch)), "theirs": partial(step, model, images, y)},
        rounds=settings.rounds,
    )
    yield Target(
        suite=SUITE,
        what="a batch loaded, cropped, flipped",
        against=f"{MODEL}: training step",
        goal=0.1,
        faster=False,
        ours=seconds["ours"],
        theirs=seconds["theirs"],
    )


def _batches(size: int) -> Iterator[object]:
    """Batches without end of random images."""
    images = np.random.default_rng(0).integers(0, 256, (IMAGES, 3, 32, 32), dtype=np.uint8)
    data = images, np.arange(IMAGES) % 10
    world = World(rank=0, size=1, device=torch.device("cpu"))
    source = ArraySource(data, data, num_classes=10, recipe=Recipe(batch_size=size), seed=0, world=world)
    return chain.from_iterable(source.train_batches(epoch, start=0) for epoch in count(1))


def growths(settings: Settings, say: Say) -> Iterator[Growth]:
    """Nothing here grows."""
    return iter(())
