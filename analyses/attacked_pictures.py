"""Which attacked images to show, and the explanations of what the model saw before and after."""

from typing import TypedDict

import numpy as np
import torch
from torch import Tensor, nn

from scs_eval.analyses.attribution import attribute
from scs_eval.analyses.layer_maps import UnsuitableError


class Explanations(TypedDict):
    """Maps (k, 2, H, W), before and after: the gradient's size, and what each pixel adds to the logit, or None."""

    gradients: np.ndarray
    contributions: np.ndarray | None


def choose_pictures(critical: Tensor, labels: Tensor, *, most: int) -> Tensor:
    """Positions of up to `most` images that were right until attacked, of as many classes as there are."""
    broken = ((critical > 0) & critical.isfinite()).nonzero()[:, 0]
    seen: dict[int, int] = {}
    rounds = []
    for label in labels[broken].tolist():
        rounds.append(seen.get(label, 0))
        seen[label] = rounds[-1] + 1
    return broken[torch.tensor(rounds, dtype=torch.long).argsort(stable=True)[:most]]


def explain(model: nn.Module, images: Tensor, adversarial: Tensor, *, before: Tensor, after: Tensor) -> Explanations:
    """Explain the predicted class of the images (k, 3, H, W), and that of their attacked versions."""
    if not len(images):
        return Explanations(gradients=np.zeros((0, 2, *images.shape[2:]), np.float32), contributions=None)
    asked = [(images, before), (adversarial, after)]
    try:
        slopes = [attribute(model, *each, method="grad").abs().amax(1) for each in asked]
    except UnsuitableError:
        slopes = [torch.zeros_like(images[:, 0])] * 2
    try:
        parts = torch.stack([attribute(model, *each, method="wx").sum(1) for each in asked], 1).numpy()
    except UnsuitableError:
        parts = None
    return Explanations(gradients=torch.stack(slopes, 1).numpy(), contributions=parts)
