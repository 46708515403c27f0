"""Contributions as a part of a comparison."""

from scs_eval.analyses.contributions import KEPT, ContributionsResult, contributions
from scs_eval.analyses.contributions.neurons import NeuronsResult, neurons
from scs_eval.analyses.core.task import Task

SMALL, MANY = 64, 500  # pixels of images of which a page can show so many


def run(task: Task) -> ContributionsResult | NeuronsResult:
    """W(x) of the predicted class; with the options layer and directions, of that layer's directions instead."""
    known = {**task.named(), "labels": task.labels, "indices": task.indices}
    if "layer" in task.options:
        return neurons(task.model, task.images, **known, **task.options)
    kept = MANY if max(task.images.shape[2:]) <= SMALL else KEPT
    return contributions(task.model, task.images, **known, **task.options, kept=kept)
