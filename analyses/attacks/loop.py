"""The one loop of all gradient attacks: look, keep the best point, let broken images go, step.

PGD (Madry et al. 2018): x ← P(x + α·step(∇ loss)), with P the way back into the ball. FGSM is its first step.
"""

from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor

from scs_eval.analyses.attacks.geometry import Ball
from scs_eval.analyses.attacks.problem import Problem, Seen

Watch = Callable[[int, Tensor, Tensor, Tensor], None]


class Best:
    """The best point of each of n images so far: a misclassified one if there is one, else that of the highest loss."""

    def __init__(self, images: Tensor) -> None:
        self.images = images.clone()
        self.loss = torch.full((len(images),), -torch.inf, dtype=torch.float64, device=images.device)
        self.broken = torch.zeros(len(images), dtype=torch.bool, device=images.device)

    def record(self, rows: Tensor, points: Tensor, loss: Tensor, broken: Tensor) -> None:
        """Take the points (m, 3, H, W) of the images `rows` (m,) that are better than what is kept."""
        was = self.broken[rows]
        better = (broken & ~was) | ((broken == was) & (loss > self.loss[rows]))
        chosen = rows[better]
        self.images[chosen], self.broken[chosen] = points[better], broken[better]
        self.loss[chosen] = loss[better].double()


class Rule(Protocol):
    """How a gradient attack moves; it may keep a state per image under way."""

    def move(self, step: int, points: Tensor, seen: Seen, ball: Ball) -> Tensor:
        """The next points."""

    def keep(self, rows: Tensor) -> None:
        """Forget all images but these."""


class Pgd:
    """Steps of one size, a share of ε."""

    def __init__(self, share: float) -> None:
        self.share = share

    def move(self, step: int, points: Tensor, seen: Seen, ball: Ball) -> Tensor:
        """P(x + α·step(g))."""
        assert seen.gradient is not None
        return ball.project(points + ball.step(seen.gradient, self.share * ball.eps))

    def keep(self, rows: Tensor) -> None:
        """Nothing is kept from step to step."""


def climb(
    problem: Problem,
    ball: Ball,
    start: Tensor,
    rule: Rule,
    *,
    steps: int,
    stop_early: bool,
    watch: Watch | None,
) -> Best:
    """The best of the start and the points after each step."""
    best, points = Best(ball.centre), start
    rows = torch.arange(len(start), device=start.device)
    for step in range(steps + 1):
        seen = problem.look(points, gradient=step < steps)
        best.record(rows, points, seen.loss, seen.broken)
        if watch is not None:
            watch(step, rows, points, seen.loss)
        if stop_early and seen.broken.any():
            left = (~seen.broken).nonzero()[:, 0]
            rows, points, ball, problem = rows[left], points[left], ball.of(left), problem.of(left)
            seen = Seen(*(None if part is None else part[left] for part in seen))  # type: ignore[arg-type]
            rule.keep(left)
        if step == steps or len(rows) == 0:
            break
        points = rule.move(step, points, seen, ball)
    return best
