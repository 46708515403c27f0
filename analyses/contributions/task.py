"""Contributions as a part of a comparison."""

from scs_eval.analyses.contributions import ContributionsResult, contributions
from scs_eval.analyses.core.task import Task


def run(task: Task) -> ContributionsResult:
    """W(x) of the predicted class."""
    return contributions(task.model, task.images, labels=task.labels, **task.named(), indices=task.indices)
