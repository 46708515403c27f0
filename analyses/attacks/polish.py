"""A minimum-norm polish: from a misclassified point to a nearer one, off any grid of ε.

After FMN (Pintor, Roli, Brendel and Biggio 2021): steps along the gradient of the margin alternate with updates of the
radius of the ball that the point is projected onto. Three things differ, because we begin at a point that a search has
found: the radius is where the linearised margin crosses zero (FMN takes that only until its first success, then a few
per cent up or down), directions are averaged, and each image shortens its own steps when they no longer gain.
"""

import torch
from torch import Tensor

from scs_eval.analyses.attacks.ball import Ball, distance, dual_norm
from scs_eval.analyses.attacks.objective import Objective

MOST_STEPS = 30
SHORTEST, SHORTER = 0.07, 0.8  # a step as a share of the radius: from 1 down, SHORTER after each that gains nothing
GAIN = (
    0.01  # a step gains if it lowers ε by this share; the next radius is below the best by as much × the step's share
)
BEYOND = 0.02  # how far beyond the linearised boundary to aim, times the step's share
NEAREST = 0.5  # of the best radius: as far as one step trusts the linearisation
MEMORY = 0.5  # weight of earlier directions


def polish(objective: Objective, images: Tensor, best: Tensor, start: Tensor, norm: str) -> tuple[Tensor, Tensor]:
    """Points (n, 3, H, W) and their distances (n,) from the images, none farther than the misclassified `best`.

    objective: with the margin as its loss; its labels are those of the images. start: where to begin.
    """
    best, points, radius = best.clone(), start.clone(), distance(images, best, norm)
    memory = torch.zeros_like(start)
    share = torch.ones_like(radius)
    rows = torch.arange(len(images), device=images.device)
    for step in range(MOST_STEPS):
        evaluation = objective.of(rows).evaluate(points[rows], gradient=True)
        assert evaluation.gradient is not None
        now = distance(images[rows], points[rows], norm)
        nearer = evaluation.is_adversarial & (now < radius[rows])
        gained = nearer & (now < (1 - GAIN) * radius[rows])
        best[rows[nearer]], radius[rows[nearer]] = points[rows[nearer]], now[nearer]
        if step > 0:
            share[rows[~gained]] *= SHORTER
        slope, direction = _normalised(evaluation.gradient, norm)
        memory[rows] = MEMORY * memory[rows] + (1 - MEMORY) * direction
        target = _radius(now - evaluation.loss.double() / slope, radius[rows], share[rows])
        ball = Ball.around(images[rows], target, norm)
        move = ball.step(memory[rows], (share[rows] * target).view(-1, 1, 1, 1))
        points[rows] = ball.project(points[rows] + move)
        rows = rows[share[rows] >= SHORTEST]
        if len(rows) == 0:
            break
    return best, radius


def _radius(boundary: Tensor, best: Tensor, share: Tensor) -> Tensor:
    """(m,) where to look next: a little beyond the estimated boundary, nearer than the best."""
    aim = boundary.nan_to_num(nan=torch.inf) * (1 + BEYOND * share)
    return aim.maximum(NEAREST * best).minimum((1 - GAIN * share) * best)


def _normalised(gradient: Tensor, norm: str) -> tuple[Tensor, Tensor]:
    """The gradient's dual norm (m,), in double precision, and the gradient over it."""
    gradient = gradient.nan_to_num(nan=0.0, posinf=0.0, neginf=0.0)
    slope = dual_norm(gradient, norm).clamp(min=torch.finfo(torch.float32).tiny)
    return slope, gradient / slope.view(-1, 1, 1, 1).to(gradient)
