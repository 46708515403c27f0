"""Corruptions as a part of a comparison."""

from scs_eval.analyses.core.model_state import device_of
from scs_eval.analyses.core.task import Task
from scs_eval.analyses.corruptions import CorruptionsResult, corruptions


def run(task: Task) -> CorruptionsResult:
    """All corruptions, beside the convolution network that the zoo compares the model with, if it is trained."""
    from scs_eval.models.loading.sources import trained_reference

    facts = task.facts
    name, network = trained_reference(facts.get("network", ""), seed=facts.get("seed", 0), device=device_of(task.model))
    return corruptions(
        task.model, task.images, task.labels, **task.named(), seed=task.seed, indices=task.indices, reference=network,
        reference_name=name, checkpoint=task.checkpoint,
        progress=lambda count: task.progress(count / len(task.labels)),
    )  # fmt: skip
