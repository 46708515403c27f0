"""What is minimised: cross-entropy, or binary cross-entropy for B-cos networks."""

import torch
from torch import Tensor
from torch.nn import functional as F

from scs_eval.training.recipe import Recipe


def training_loss(recipe: Recipe, logits: Tensor, targets: Tensor) -> Tensor:
    """The mean loss of a batch; targets are labels (N,) or, after MixUp, class shares (N, C)."""
    if recipe.loss == "ce":
        return F.cross_entropy(logits, targets)
    wanted = class_shares(targets, num_classes=logits.shape[1]).to(logits.dtype)
    if recipe.soft_negatives:
        wanted = wanted.clamp(min=1 / logits.shape[1])
    return F.binary_cross_entropy_with_logits(logits, wanted)


def evaluation_loss(recipe: Recipe, logits: Tensor, labels: Tensor) -> Tensor:
    """The summed loss of a batch with plain targets, so that recipes with the same loss can be compared."""
    if recipe.loss == "ce":
        return F.cross_entropy(logits, labels, reduction="sum")
    wanted = class_shares(labels, num_classes=logits.shape[1]).to(logits.dtype)
    return F.binary_cross_entropy_with_logits(logits, wanted, reduction="none").mean(1).sum()


def class_shares(targets: Tensor, *, num_classes: int) -> Tensor:
    """Labels as one-hot rows; what is already class shares stays as it is."""
    return targets if targets.ndim == 2 else F.one_hot(targets, num_classes)


def count_correct(logits: Tensor, targets: Tensor) -> Tensor:
    """How many images get the label, or the larger share of a mixed image, as a tensor on the device."""
    labels = targets.argmax(1) if targets.ndim == 2 else targets
    return torch.sum(logits.argmax(1) == labels)
