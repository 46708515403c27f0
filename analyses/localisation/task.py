"""The pointing game as a part of a comparison: the same grids for all models."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor

from scs_eval.analyses.core.labelled_images import ImageSet
from scs_eval.analyses.core.task import Task
from scs_eval.analyses.localisation import LocalisationOptions, localisation
from scs_eval.analyses.localisation.choice import choose_mosaics
from scs_eval.analyses.localisation.mosaics import Mosaics, positions_of
from scs_eval.analyses.localisation.result import LocalisationResult
from scs_eval.analyses.localisation.runner import image_logits

SIDE = 3  # cells of a grid


@dataclass(frozen=True, eq=False)
class SharedMosaics:
    """Grids that every model of a comparison plays; other analyses may score their own images in them."""

    mosaics: Mosaics

    @property
    def sizes(self) -> dict[str, int]:
        """How many grids, and how many images are in them."""
        return {"grid": len(self.mosaics), "cell": self.mosaics.indices.size}

    @property
    def settings(self) -> dict[str, Any]:
        """What a result depends on."""
        return {"grids": self.mosaics.indices.tolist(), "targets": self.mosaics.targets.tolist()}

    @property
    def chance(self) -> float:
        """What an even map scores."""
        return 1 / self.mosaics.side**2

    def cells(self, indices: Tensor) -> Tensor:
        """The positions of the grids' images among those with these indices."""
        return positions_of(self.mosaics, indices).flatten()

    def scores(self, task: Task, images: Tensor, labels: Tensor, indices: Tensor) -> np.ndarray:
        """The model's score in every grid, made of these images."""
        data = ImageSet(images, labels, task.classes, indices)
        return localisation(task.model, data, self.mosaics, method=task.method, seed=task.seed).grid_scores


def shared_mosaics(tasks: Sequence[Task], *, count: int) -> SharedMosaics:
    """Grids of images that all models have right; too few raise."""
    logits = [image_logits(task.model, task.images, classes=len(task.classes)) for task in tasks]
    first = tasks[0]
    return SharedMosaics(choose_mosaics(logits, first.labels, first.indices, side=SIDE, count=count, seed=first.seed))


def run(task: Task) -> LocalisationResult:
    """All grids."""
    mosaics = task.grids.mosaics
    return localisation(
        task.model, ImageSet(task.images, task.labels, task.classes, task.indices), mosaics,
        LocalisationOptions(
            checkpoint=task.checkpoint, progress=lambda count: task.progress(count / len(mosaics)), **task.options
        ),
        method=task.method, label=task.label, seed=task.seed,
    )  # fmt: skip
