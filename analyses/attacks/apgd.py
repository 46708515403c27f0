"""Auto-PGD (Croce and Hein 2020, algorithm 1): PGD with momentum that halves its own step when progress stalls."""

import math

import torch
from torch import Tensor

from scs_eval.analyses.attacks.ball import Ball
from scs_eval.analyses.attacks.objective import Evaluation
from scs_eval.analyses.core.precision import wide, widest

_MOMENTUM = 0.75  # α: the weight of the new step
_ENOUGH = 0.75  # ρ: the share of steps that must gain for the step size to stay


def checkpoints(steps: int) -> list[int]:
    """When progress is judged: ⌈p_j N⌉ with p₀ = 0, p₁ = 0.22, p_{j+1} = p_j + max(p_j − p_{j−1} − 0.03, 0.06)."""
    shares = [0.0, 0.22]
    while shares[-1] < 1:
        shares.append(shares[-1] + max(shares[-1] - shares[-2] - 0.03, 0.06))
    return sorted({math.ceil(share * steps - 1e-9) for share in shares if 0 < share <= 1})


class Apgd:
    """x_{k+1} = P(x_k + α (z − x_k) + (1 − α)(x_k − x_{k−1})), z = P(x_k + η·step(g)); η starts at 2 ε.

    At a checkpoint η is halved and the best point taken up again if fewer than ρ of the steps since the last one
    gained, or if neither η nor the best loss changed since then. All of it image by image.
    """

    def __init__(self, ball: Ball, steps: int) -> None:
        n, device = len(ball.centre), ball.centre.device
        self.checkpoints, self.last = set(checkpoints(steps)), 0
        self.size = 2 * ball.eps
        self.before = self.best = self.best_gradient = ball.centre
        self.best_loss = torch.full((n,), -torch.inf, device=device, dtype=widest(device))
        self.loss = self.judged_loss = self.best_loss
        self.gains = torch.zeros(n, dtype=torch.long, device=device)
        self.halved = torch.zeros(n, dtype=torch.bool, device=device)

    def move(self, step: int, points: Tensor, evaluation: Evaluation, ball: Ball) -> Tensor:
        """The point after `points`, whose loss and gradient were seen."""
        assert evaluation.gradient is not None
        gradient = self._note(step, points, evaluation)
        if step in self.checkpoints:
            points, gradient = self._judge(step, points, gradient)
        ahead = ball.project(points + ball.step(gradient, self.size))
        if step > 0:
            drift = (1 - _MOMENTUM) * (points - self.before)
            ahead = ball.project(points + _MOMENTUM * (ahead - points) + drift)
        self.before = points
        return ahead

    def _note(self, step: int, points: Tensor, evaluation: Evaluation) -> Tensor:
        loss, gradient = wide(evaluation.loss), evaluation.gradient
        assert gradient is not None
        if step > 0:
            self.gains = self.gains + (loss > self.loss)
        better = loss > self.best_loss
        where = better[:, None, None, None]
        self.best = torch.where(where, points, self.best)
        self.best_gradient = torch.where(where, gradient, self.best_gradient)
        self.loss, self.best_loss = loss, torch.where(better, loss, self.best_loss)
        return gradient

    def _judge(self, step: int, points: Tensor, gradient: Tensor) -> tuple[Tensor, Tensor]:
        stalled = self.gains < _ENOUGH * (step - self.last)
        stalled |= ~self.halved & (self.best_loss == self.judged_loss)
        self.halved, self.judged_loss, self.last = stalled, self.best_loss, step
        self.gains = torch.zeros_like(self.gains)
        where = stalled[:, None, None, None]
        self.size = torch.where(where, self.size / 2, self.size)
        self.loss = torch.where(stalled, self.best_loss, self.loss)
        return torch.where(where, self.best, points), torch.where(where, self.best_gradient, gradient)

    def keep(self, rows: Tensor) -> None:
        """Forget all images but these."""
        for name in ("size", "before", "best", "best_gradient", "best_loss", "loss", "judged_loss", "gains", "halved"):
            setattr(self, name, getattr(self, name)[rows])
