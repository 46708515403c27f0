"""Certificates as a part of a comparison."""

from scs_eval.analyses.certify import CertifyOptions, certify
from scs_eval.analyses.certify.result import CertifyResult
from scs_eval.analyses.core.task import Task


def run(task: Task) -> CertifyResult:
    """All images of the task at the usual σ."""
    return certify(
        task.model, task.images, task.labels, **task.named(), options=CertifyOptions(), indices=task.indices,
        seed=task.seed, checkpoint=task.checkpoint,
        progress=lambda count: task.progress(count / (3 * len(task.labels))),
    )  # fmt: skip
