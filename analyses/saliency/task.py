"""Saliency as a part of a comparison."""

from scs_eval.analyses.core.task import Task
from scs_eval.analyses.saliency import SaliencyOptions, saliency
from scs_eval.analyses.saliency.result import SaliencyResult


def run(task: Task) -> SaliencyResult:
    """Gradients of the predicted class."""
    return saliency(task.model, task, options=SaliencyOptions(**task.options), label=task.label, seed=task.seed)
