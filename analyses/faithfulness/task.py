"""Faithfulness as a part of a comparison."""

from scs_eval.analyses.core.task import Task
from scs_eval.analyses.faithfulness import FaithfulnessResult, faithfulness

STEPS = 3  # the method and two controls


def run(task: Task) -> FaithfulnessResult:
    """One method of attribution, of the predicted class."""
    return faithfulness(
        task.model, task.images, **task.named(), method=task.method, indices=task.indices, seed=task.seed,
        progress=lambda count: task.progress(count / STEPS),
    )  # fmt: skip
