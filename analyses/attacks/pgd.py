"""The one loop of all gradient attacks: evaluate, keep the best point, let misclassified images go, step.

PGD (Madry et al. 2018): x ← P(x + α·step(∇ loss)), with P the projection onto the ball. FGSM is its first step.
"""

from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor

from scs_eval.analyses.attacks.ball import Ball
from scs_eval.analyses.attacks.objective import Evaluation, Objective
from scs_eval.analyses.core.precision import wide, widest

StepCallback = Callable[[int, Tensor, Tensor, Tensor], None]


class Best:
    """The best point of each of n images so far: a misclassified one if there is one, else that of the highest loss."""

    def __init__(self, images: Tensor) -> None:
        self.images = images.clone()
        self.loss = torch.full((len(images),), -torch.inf, dtype=widest(images.device), device=images.device)
        self.is_adversarial = torch.zeros(len(images), dtype=torch.bool, device=images.device)

    def record(self, rows: Tensor, points: Tensor, loss: Tensor, is_adversarial: Tensor) -> None:
        """Take the points (m, 3, H, W) of the images `rows` (m,) that are better than what is kept."""
        was = self.is_adversarial[rows]
        better = (is_adversarial & ~was) | ((is_adversarial == was) & (loss > self.loss[rows]))
        chosen = rows[better]
        self.images[chosen], self.is_adversarial[chosen] = points[better], is_adversarial[better]
        self.loss[chosen] = wide(loss[better])


class StepRule(Protocol):
    """How a gradient attack moves; it may keep a state per image under way."""

    def move(self, step: int, points: Tensor, evaluation: Evaluation, ball: Ball) -> Tensor:
        """The next points."""

    def keep(self, rows: Tensor) -> None:
        """Forget all images but these."""


class Pgd:
    """Steps of one size, a share of ε."""

    def __init__(self, share: float) -> None:
        self.share = share

    def move(self, step: int, points: Tensor, evaluation: Evaluation, ball: Ball) -> Tensor:
        """P(x + α·step(g))."""
        assert evaluation.gradient is not None
        return ball.project(points + ball.step(evaluation.gradient, self.share * ball.eps))

    def keep(self, rows: Tensor) -> None:
        """Nothing is kept from step to step."""


def run_gradient_attack(
    objective: Objective,
    ball: Ball,
    start: Tensor,
    rule: StepRule,
    *,
    steps: int,
    stop_early: bool,
    callback: StepCallback | None,
    image: Tensor | None = None,
) -> Best:
    """The best of the start and the points after each step.

    image: (n,) which rows are copies of one image, that leave together.
    """
    best, points = Best(ball.centre), start
    rows = torch.arange(len(start), device=start.device)
    for step in range(steps + 1):
        evaluation = objective.evaluate(points, gradient=step < steps)
        best.record(rows, points, evaluation.loss, evaluation.is_adversarial)
        if callback is not None:
            callback(step, rows, points, evaluation.loss)
        leaving = evaluation.is_adversarial if image is None else copies_of(image[rows], evaluation.is_adversarial)
        if stop_early and leaving.any():
            left = (~leaving).nonzero()[:, 0]
            rows, points, ball, objective = rows[left], points[left], ball.of(left), objective.of(left)
            evaluation = Evaluation(*(None if part is None else part[left] for part in evaluation))  # type: ignore[arg-type]
            rule.keep(left)
        if step == steps or len(rows) == 0:
            break
        points = rule.move(step, points, evaluation, ball)
    return best


def copies_of(image: Tensor, chosen: Tensor) -> Tensor:
    """(m,) which rows are of an image (m,) one of whose rows is chosen (m,)."""
    return torch.isin(image, image[chosen])
