"""Contributions as a part of a comparison."""

from scs_eval.analyses.contributions import KEPT, ContributionsResult, contributions
from scs_eval.analyses.core.task import Task

SMALL, MANY = 64, 500  # pixels of images of which a page can show so many


def run(task: Task) -> ContributionsResult:
    """W(x) of the predicted class."""
    kept = MANY if max(task.images.shape[2:]) <= SMALL else KEPT
    return contributions(task.model, task.images, labels=task.labels, **task.named(), indices=task.indices, kept=kept)
