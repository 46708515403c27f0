"""Sums over the batches of an epoch, kept on the device so that no batch waits for a number."""

from typing import Any

import torch
from torch import Tensor

from scs_eval.training.distributed import World


class Tally:
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
