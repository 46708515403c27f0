"""Accuracy as a part of a comparison."""

from typing import cast

from scs_eval.analyses.accuracy import AccuracyResult, Known, accuracy
from scs_eval.analyses.core.task import Task


def run(task: Task) -> AccuracyResult:
    """All images of the task."""
    return accuracy(task.model, task.images, task.labels, **task.named(), known=cast(Known, task.facts))
