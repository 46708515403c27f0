"""The sweep over ε as a part of a comparison."""

from scs_eval.analyses.core.task import Task
from scs_eval.analyses.pgd import PgdResult, pgd
from scs_eval.analyses.scorecard import STEPS

KEPT = 500  # images whose attacked versions a page may show
SWEEP = 0.4  # share of the time; the rest is the scorecard's


def run(task: Task) -> PgdResult:
    """The sweep with its scorecard."""
    name, network = task.twin
    return pgd(
        task.model, task.images, task.labels, **task.named(), eps=task.eps, seed=task.seed, indices=task.indices,
        kept=KEPT, twin=network, twin_name=name, checkpoint=task.checkpoint,
        progress=lambda count: task.progress(SWEEP * count / len(task.images)),
        scorecard_progress=lambda count: task.progress((1 - SWEEP) * count / STEPS),
    )  # fmt: skip
