"""Which attacked images to show, and the explanations of what the model saw before and after."""

from typing import TypedDict

import numpy as np
import torch
from torch import Tensor, nn

from scs_eval.analyses.attribution.attribute import attribute
from scs_eval.errors import NotApplicableError


class Explanations(TypedDict):
    """Maps (k, 2, H, W), before and after: the gradient's size, and what each pixel adds to the logit, or None."""

    gradients: np.ndarray
    contributions: np.ndarray | None


def choose_pictures(min_eps: Tensor, labels: Tensor, *, most: int) -> Tensor:
    """Positions of up to `most` images that were right until attacked, of as many classes as there are."""
    is_adversarial = ((min_eps > 0) & min_eps.isfinite()).nonzero()[:, 0]
    counts: dict[int, int] = {}
    rounds = []
    for label in labels[is_adversarial].tolist():
        rounds.append(counts.get(label, 0))
        counts[label] = rounds[-1] + 1
    return is_adversarial[torch.tensor(rounds, dtype=torch.long).argsort(stable=True)[:most]]


def explain_attacked(
    model: nn.Module, images: Tensor, adversarial: Tensor, *, before: Tensor, after: Tensor
) -> Explanations:
    """Explain the predicted class of the images (k, 3, H, W), and that of their attacked versions."""
    if not len(images):
        return Explanations(gradients=np.zeros((0, 2, *images.shape[2:]), np.float32), contributions=None)
    pairs = [(images, before), (adversarial, after)]
    try:
        slopes = [attribute(model, *pair, method="grad").abs().amax(1) for pair in pairs]
    except NotApplicableError:
        slopes = [torch.zeros_like(images[:, 0])] * 2
    try:
        parts = torch.stack([attribute(model, *pair, method="wx").sum(1) for pair in pairs], 1).numpy()
    except NotApplicableError:
        parts = None
    return Explanations(gradients=torch.stack(slopes, 1).numpy(), contributions=parts)
