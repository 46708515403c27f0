"""Faithfulness as a part of a comparison."""

from scs_eval.analyses.core.task import Task
from scs_eval.analyses.faithfulness import faithfulness
from scs_eval.analyses.faithfulness.result import FaithfulnessResult

STEPS = 4  # the method and three controls


def run(task: Task) -> FaithfulnessResult:
    """One method of attribution, of the predicted class."""
    return faithfulness(
        task.model, task, methods=task.method, metrics=task.metrics, label=task.label, seed=task.seed,
        progress=lambda count: task.progress(count / (STEPS * len(task.images))),
    )  # fmt: skip
