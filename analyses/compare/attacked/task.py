"""Explanations under attack as a part of a comparison: the images of the grids are attacked, and set into the same."""

from scs_eval.analyses.compare.attacked import AttackedResult, attacked_explanations
from scs_eval.analyses.core.task import Task


def run(task: Task) -> AttackedResult:
    """Each image of the grids is attacked by itself, at the full ε."""
    cells = task.grids.cells(task.indices)
    labels, indices = task.labels[cells], task.indices[cells]
    return attacked_explanations(
        task.model, task.images[cells], labels, **task.named(), eps=task.shown_eps, method=task.method, seed=task.seed,
        play=lambda moved: task.grids.scores(task, moved, labels, indices), floor=task.grids.chance, indices=indices,
        progress=lambda count: task.progress(count / (1 + len(task.shown_eps))),
    )  # fmt: skip
