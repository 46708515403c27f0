"""Notices a loss or gradient that diverges, and says where it began."""

import torch
from torch import Tensor

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
