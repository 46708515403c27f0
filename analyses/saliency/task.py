"""Saliency as a part of a comparison."""

from scs_eval.analyses.core.task import Task
from scs_eval.analyses.saliency import saliency
from scs_eval.analyses.saliency.result import SaliencyResult


def run(task: Task) -> SaliencyResult:
    """Gradients of the predicted class."""
    return saliency(task.model, task, label=task.label, seed=task.seed)
