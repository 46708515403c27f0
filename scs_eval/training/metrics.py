"""Loss and accuracy: what is minimised, the sums of an epoch, when they diverge, the evaluation on the test images."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from scs_eval.training.processes import World
from scs_eval.training.recipe import Recipe
from scs_eval.training.sources import Source


def training_loss(recipe: Recipe, logits: Tensor, targets: Tensor) -> Tensor:
    """The mean loss of a batch; targets are labels (N,) or, after MixUp, class shares (N, C)."""
    if recipe.loss == "ce":
        return F.cross_entropy(logits, targets, label_smoothing=recipe.label_smoothing)
    wanted = class_shares(targets, num_classes=logits.shape[1]).to(logits.dtype)
    if recipe.label_smoothing:
        wanted = wanted * (1 - recipe.label_smoothing) + recipe.label_smoothing / logits.shape[1]
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


class EpochMetrics:
    """Loss, hits and gradient norms of an epoch so far, and the seconds spent."""

    def __init__(self, parameters: int, *, device: torch.device) -> None:
        self.loss = torch.tensor(0.0, device=device)
        self.correct = torch.tensor(0.0, device=device)
        self.gradients = torch.zeros(parameters, device=device)
        self.batches = 0
        self.images = 0
        self.seconds = 0.0
        self.lr = 0.0

    def add(self, loss: Tensor, correct: Tensor, gradients: Tensor, *, images: int, lr: float) -> None:
        """Take in one batch and the learning rate of its step."""
        self.lr = lr
        self.loss += loss
        self.correct += correct
        self.gradients += gradients
        self.batches += 1
        self.images += images

    def read(self) -> tuple[float, float]:
        """Mean loss and accuracy so far. Waits for the device."""
        return self.loss.item() / max(self.batches, 1), self.correct.item() / max(self.images, 1)

    def total(self, world: World) -> tuple[float, float]:
        """Mean loss and accuracy over all processes, each of which had equally many images."""
        sums = world.sum(torch.stack([self.loss, self.correct])).tolist()
        return sums[0] / (self.batches * world.size), sums[1] / (self.images * world.size)

    def state_dict(self, world: World) -> dict[str, Any]:
        """Everything, for a checkpoint in an epoch, which all processes go on from: so the mean of theirs.

        Gradients are the same in all of them.
        """
        loss, correct = world.sum(torch.stack([self.loss, self.correct])) / world.size
        return {**vars(self), "loss": loss, "correct": correct}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a checkpoint."""
        for name, value in state.items():
            now = getattr(self, name)
            setattr(self, name, value.to(now.device) if isinstance(value, Tensor) else value)


@dataclass(frozen=True)
class ModelEvaluation:
    """The outcome on the test images of all processes."""

    loss: float
    correct: int
    images: int

    @property
    def accuracy(self) -> float:
        """Share of correct images."""
        return self.correct / self.images


def evaluate(model: nn.Module, source: Source, *, recipe: Recipe, world: World) -> ModelEvaluation:
    """Evaluate in eval mode, without gradients; the model is in training mode afterwards."""
    loss = torch.tensor(0.0, device=world.device)
    counts = torch.zeros(2, dtype=torch.int64, device=world.device)
    model.eval()
    with torch.inference_mode():
        for images, labels in source.test_batches():
            logits = model(images).float()
            loss += evaluation_loss(recipe, logits, labels)
            counts += torch.stack([count_correct(logits, labels), torch.tensor(len(labels), device=world.device)])
    model.train()
    correct, images = world.sum(counts).tolist()
    return ModelEvaluation(loss=world.sum(loss).item() / images, correct=correct, images=images)


def norms(tensors: list[Tensor]) -> Tensor:
    """The L2 norm of each tensor as one vector on the device."""
    return torch.stack(torch._foreach_norm(tensors)).float()


LIMIT = 1000.0  # a loss this many times the first one (plus one), or a gradient this many times its mean, has exploded


class DivergedError(RuntimeError):
    """Training diverged; the message names the epoch, the parameter and the last good checkpoint."""


class DivergenceMonitor:
    """Watches every step without waiting for the device; only `has_diverged` reads from it."""

    def __init__(self, names: list[str], *, device: torch.device) -> None:
        self.names = names
        self.steps = 0
        self.limit = torch.tensor(torch.inf, device=device)
        self.worst_loss = torch.tensor(0.0, device=device)
        self.total = torch.zeros(len(names), device=device)
        self.diverged_since = torch.full((len(names),), -1, device=device)
        self.growth = torch.zeros(len(names), device=device)  # the largest gradient, in its mean until then
        self.broken = torch.tensor(False, device=device)

    def observe(self, loss: Tensor, gradients: Tensor) -> None:
        """Take in the loss and the gradient norm of every parameter of one step."""
        if self.steps == 0:
            self.limit = LIMIT * (1 + loss)
        self.worst_loss = torch.maximum(self.worst_loss, loss)  # a NaN stays
        finite = gradients.isfinite()
        self.broken |= ~finite.all()
        growth = gradients * self.steps / self.total.clamp(min=torch.finfo(self.total.dtype).tiny)
        exploded = ~finite | (growth > LIMIT)  # never in the first step, if it is finite
        self.growth = torch.maximum(self.growth, growth)
        self.diverged_since = torch.where(exploded & (self.diverged_since < 0), self.steps, self.diverged_since)
        self.total += torch.where(finite, gradients, 0)
        self.steps += 1

    def has_diverged(self) -> bool:
        """Whether a loss exploded or a gradient is no longer a number. Waits for the device."""
        return bool((self.broken | ~(self.worst_loss < self.limit)).item())  # also of a NaN

    def first_diverged_parameter(self) -> str:
        """The parameter whose gradient diverged first; of several in one step the one nearest to the output.

        A gradient that is not finite makes those of all earlier layers so, hence the last of them is where it began.
        Where only the loss exploded, it is the parameter whose gradient grew most.
        """
        if (self.diverged_since < 0).all():
            return self.names[int(self.growth.argmax())]
        since = torch.where(self.diverged_since < 0, torch.iinfo(torch.int64).max, self.diverged_since).tolist()
        first = min(since)
        return [name for name, step in zip(self.names, since, strict=True) if step == first][-1]
