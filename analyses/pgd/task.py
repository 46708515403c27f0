"""The sweep over ε as a part of a comparison."""

from scs_eval.analyses.core.task import Task
from scs_eval.analyses.pgd import PgdOptions, pgd
from scs_eval.analyses.pgd.result import PgdResult
from scs_eval.analyses.pgd.runner import count_steps

KEPT = 500  # images whose attacked versions a page may show


def run(task: Task) -> PgdResult:
    """The sweep with its scorecard."""
    card = task.options.get("scorecard", "fast")
    preset = None if card == "none" else card
    steps = count_steps(len(task.images), preset)
    return pgd(
        task.model, task, eps=task.eps, attacks=task.attacks,
        options=PgdOptions(
            kept=KEPT, twin=task.twin, checkpoint=task.checkpoint, progress=lambda count: task.progress(count / steps),
            scorecard=preset,
        ),
        label=task.label, seed=task.seed,
    )  # fmt: skip
