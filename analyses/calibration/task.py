"""Calibration as a part of a comparison."""

from scs_eval.analyses.calibration import CalibrationResult, calibration
from scs_eval.analyses.core.task import Task

BINS = 15


def run(task: Task) -> CalibrationResult:
    """All images of the task; of few images, as many bins as there are."""
    return calibration(
        task.model, task.images, task.labels, **task.named(), seed=task.seed, indices=task.indices,
        bins=min(BINS, len(task.labels)), checkpoint=task.checkpoint,
        progress=lambda count: task.progress(count / len(task.labels)),
    )  # fmt: skip
