"""Detectors as a part of a comparison."""

from scs_eval.analyses.core.task import Task
from scs_eval.analyses.detect import DetectOptions, detect
from scs_eval.analyses.detect.parts import noise_images
from scs_eval.analyses.detect.result import DetectResult
from scs_eval.analyses.detect.runner import steps


def run(task: Task) -> DetectResult:
    """Adversarial images at the shown ε, and noise; half of the images is for the Gaussians."""
    options = DetectOptions(eps=task.shown_eps)
    others = {"noise": noise_images(len(task.labels) // 2, task.images.shape[1:], seed=task.seed)}
    total = steps(len(task.labels), others, options, fitted_elsewhere=False)
    return detect(
        task.model, task.images, task.labels, **task.named(), others=others, options=options, indices=task.indices,
        seed=task.seed, checkpoint=task.checkpoint, progress=lambda count: task.progress(count / total),
    )  # fmt: skip
