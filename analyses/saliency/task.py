"""Saliency as a part of a comparison."""

from scs_eval.analyses.core.task import Task
from scs_eval.analyses.saliency import SaliencyResult, saliency


def run(task: Task) -> SaliencyResult:
    """Gradients of the predicted class."""
    return saliency(task.model, task.images, task.labels, **task.named(), seed=task.seed, indices=task.indices)
