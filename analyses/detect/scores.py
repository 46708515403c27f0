"""What detectors say of an image: a number that is larger for images like those the model knows.

Maximum softmax probability (Hendrycks and Gimpel 2017), energy (Liu et al. 2020), ODIN (Liang et al. 2018), and the
Mahalanobis distance of every stage with its input pre-processing (Lee et al. 2018).
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from scs_eval.analyses.core.model_state import device_of
from scs_eval.analyses.core.precision import wide
from scs_eval.analyses.core.validation import logits_of
from scs_eval.analyses.detect.gaussians import TiedGaussians
from scs_eval.analyses.detect.stages import captured, channel_means

PLAIN = ("max softmax", "energy", "ODIN")
ODIN_TEMPERATURE = 1000.0


def stage_features(model: nn.Module, images: Tensor, stages: tuple[str, ...], *, classes: int) -> list[Tensor]:
    """(n, C) the features of each stage, on the CPU."""
    with torch.no_grad(), captured(model, stages) as outputs:
        logits_of(model, images, classes=classes)
        return [channel_means(output).cpu() for output in outputs]


def plain_scores(model: nn.Module, images: Tensor, *, noise: float, classes: int) -> Tensor:
    """(3, n) maximum softmax, energy (log Σ exp of the logits) and ODIN, on the CPU."""

    def odin(batch: Tensor) -> Tensor:
        return (wide(logits_of(model, batch, classes=classes)) / ODIN_TEMPERATURE).log_softmax(1).amax(1)

    moved = preprocessed(odin, images.to(device_of(model)), noise)
    with torch.no_grad():
        logits = wide(logits_of(model, images, classes=classes))
        scores = [logits.softmax(1).amax(1), logits.logsumexp(1), odin(moved).exp()]
    return torch.stack(scores).cpu()


def stage_scores(
    model: nn.Module, images: Tensor, stages: tuple[str, ...], gaussians: list[TiedGaussians], *, noise: float,
    classes: int,
) -> Tensor:  # fmt: skip
    """(stages, n) the Mahalanobis score of each stage, each for an image pre-processed for that stage; on the CPU."""
    rows = []
    for stage, gaussian in zip(stages, gaussians, strict=True):

        def score(batch: Tensor, stage: str = stage, gaussian: TiedGaussians = gaussian) -> Tensor:
            with captured(model, (stage,)) as outputs:
                logits_of(model, batch, classes=classes)
                return gaussian.score(channel_means(outputs[0]))

        moved = preprocessed(score, images.to(device_of(model)), noise)
        with torch.no_grad():
            rows.append(score(moved).cpu())
    return torch.stack(rows)


def preprocessed(score: Callable[[Tensor], Tensor], images: Tensor, noise: float) -> Tensor:
    """Images moved by `noise` in every pixel in the direction that raises their score: known ones gain more by it.

    x + noise · sign(∂ score / ∂x), not cut to [0, 1], as in both papers.
    """
    if not noise:
        return images
    with torch.enable_grad():
        given = images.detach().clone().requires_grad_()
        (gradient,) = torch.autograd.grad(score(given).sum(), given)
    return images + noise * gradient.sign()
