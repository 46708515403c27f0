"""Loss and accuracy on the test images."""

from dataclasses import dataclass

import torch
from torch import nn

from scs_eval.training.distributed import World
from scs_eval.training.objective import count_correct, evaluation_loss
from scs_eval.training.recipe import Recipe
from scs_eval.training.source import Source


@dataclass(frozen=True)
class Evaluation:
    """The outcome on the test images of all processes."""

    loss: float
    correct: int
    images: int

    @property
    def accuracy(self) -> float:
        """Share of correct images."""
        return self.correct / self.images


def evaluate(model: nn.Module, source: Source, *, recipe: Recipe, world: World) -> Evaluation:
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
    return Evaluation(loss=world.sum(loss).item() / images, correct=correct, images=images)
