"""What an attack sees of a model: the loss of points, whether they are misclassified, and the loss's gradient."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor, nn

from scs_eval.analyses.attacks.losses import Loss
from scs_eval.analyses.core.batching import chunk_size, chunks
from scs_eval.analyses.core.validation import logits_of

# Every pass through a model has this many images, the last one filled up with copies. Convolutions choose their method
# by the size of the batch: in sizes 1, 2, 3, 7 and 33 the gradient of our trained networks differs from that in 128 in
# the last bit, and the sign of a gradient near 0 makes a whole step of it. At one size an image's result is the same
# to the bit wherever it stands in the batch and whoever its neighbours are.

Backward = Callable[[], AbstractContextManager[object]]


class Evaluation(NamedTuple):
    """Of n points: loss (n,), whether the answer is wrong (n,), and the loss's gradient (n, 3, H, W), or None."""

    loss: Tensor
    is_adversarial: Tensor
    gradient: Tensor | None


@dataclass(frozen=True)
class Objective:
    """A frozen model, a loss, and for each image its label (n,) and, when targeted, the class to reach (n,).

    backward: a context for the forward pass whose gradient is taken, such as `explanation_mode`; the loss and the
    answer are always those of the plain model.
    at_once: images of a pass, if not the number that makes results the same to the bit.
    """

    model: nn.Module
    classes: int
    loss: Loss
    labels: Tensor
    targets: Tensor | None = None
    backward: Backward | None = None
    at_once: int | None = None

    def of(self, rows: Tensor) -> "Objective":
        """The objective of some images."""
        return replace(self, labels=self.labels[rows], targets=None if self.targets is None else self.targets[rows])

    def towards(self, targets: Tensor) -> "Objective":
        """The same objective with a class to reach for each image (n,)."""
        return replace(self, targets=targets)

    def logits(self, points: Tensor) -> Tensor:
        """(n, K) the plain model's logits."""
        with torch.no_grad():
            parts = [logits_of(self.model, part, classes=self.classes) for part in chunks(points, self._size(points))]
        return torch.cat(parts)[: len(points)]

    def evaluate(self, points: Tensor, *, gradient: bool) -> Evaluation:
        """Loss, answer and, if wanted, gradient at the points (n, 3, H, W)."""
        if not gradient:
            return self._evaluation(self.logits(points), None)
        logits_parts, slopes = zip(*(self._slope(*part) for part in self._parts(points)), strict=True)
        logits, slope = torch.cat(logits_parts)[: len(points)], torch.cat(slopes)[: len(points)]
        return self._evaluation(logits if self.backward is None else self.logits(points), slope)

    def _evaluation(self, logits: Tensor, slope: Tensor | None) -> Evaluation:
        return Evaluation(self.loss(logits, self.labels, self.targets), logits.argmax(1) != self.labels, slope)

    def _parts(self, points: Tensor) -> Iterator[tuple[Tensor, Tensor, Tensor | None]]:
        size = self._size(points)
        parts, labels = chunks(points, size), chunks(self.labels, size)
        targets: list[Tensor] | list[None] = [None] * len(parts) if self.targets is None else chunks(self.targets, size)
        return zip(parts, labels, targets, strict=True)

    def _size(self, points: Tensor) -> int:
        return chunk_size(points) if self.at_once is None else self.at_once

    def _slope(self, points: Tensor, labels: Tensor, targets: Tensor | None) -> tuple[Tensor, Tensor]:
        """Logits and gradient of one chunk; zero if the model has no gradient at all."""
        points = points.detach().requires_grad_()
        with torch.enable_grad(), (self.backward or nullcontext)():
            logits = logits_of(self.model, points, classes=self.classes)
            if not logits.requires_grad:
                return logits, torch.zeros_like(points)
            loss = self.loss(logits, labels, targets).sum()
            (slope,) = torch.autograd.grad(loss, points)
        return logits.detach(), slope
