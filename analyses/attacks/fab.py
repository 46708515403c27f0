"""FAB, the fast adaptive boundary attack (Croce and Hein 2020): from hyperplane to hyperplane, always near the image.

At a point x the margin is linearised; both x and the image are projected onto the hyperplane where it is zero, inside
[0, 1], and the next point is a mean of the two, a little beyond. A point on the far side is drawn back to the image.
It looks for the nearest misclassified point; at a given ε it succeeds if that lies in the ball.
"""

import torch
from torch import Tensor

from scs_eval.analyses.attacks.ball import Ball, distance
from scs_eval.analyses.attacks.objective import Evaluation, Objective
from scs_eval.analyses.attacks.pgd import Best, copies_of
from scs_eval.analyses.attacks.prospects import Prospects
from scs_eval.analyses.core.precision import wide, widest

MOST_BIAS = 0.1  # α_max: weight of the image's own projection
BEYOND = 1.05  # η: how far to go, of the way to the hyperplane
BACK = 0.9  # β: what is left of a perturbation on the far side
INSIDE = 1 + 1e-6  # also for lengths measured in float32
ITERATIONS = 10  # of Newton's method; the equation is piecewise linear, and few pixels reach 0 or 1


def run_fab(
    objective: Objective, ball: Ball, start: Tensor, *, steps: int, stop_early: bool, image: Tensor | None = None
) -> Best:
    """The best point of `steps` steps, each a gradient and a forward pass.

    image: (n,) which rows are copies of one image, that leave together. With stop_early an image is also given up
    whose nearest misclassified point would not come into the ball (`prospects.py`).
    """
    best, points = Best(ball.centre), start
    rows = torch.arange(len(points), device=points.device)
    nearest = torch.full((len(points),), torch.inf, dtype=widest(points.device), device=points.device)
    prospects = Prospects(len(points), steps=steps, device=points.device)
    for step in range(steps):
        here = objective.evaluate(points, gradient=True)
        if step == 0:
            best.record(rows, ball.project(points), here.loss, here.is_adversarial)
        points = _next_points(ball, points, here)
        there = objective.evaluate(points, gradient=False)
        radius = ball.eps[:, 0, 0, 0].clamp(min=torch.finfo(ball.eps.dtype).tiny)
        length = distance(ball.centre, points, ball.norm) * INSIDE / radius
        nearest = torch.where(there.is_adversarial, nearest.minimum(length), nearest)
        success = there.is_adversarial & (length <= 1)
        best.record(rows[success], points[success], there.loss[success], success[success])
        drawn_back = ball.centre + BACK * (points - ball.centre)
        points = torch.where(there.is_adversarial[:, None, None, None], drawn_back, points)
        leaving = success if image is None else copies_of(image[rows], success)
        leaving = leaving | prospects.hopeless(step + 1, 1 - nearest)
        if stop_early and leaving.any():
            left = (~leaving).nonzero()[:, 0]
            rows, points, ball, objective = rows[left], points[left], ball.of(left), objective.of(left)
            nearest = nearest[left]
            prospects.keep(left)
        if len(rows) == 0:
            break
    return best


def _next_points(ball: Ball, points: Tensor, here: Evaluation) -> Tensor:
    """The mean of the projections of the points and of the images, weighted by their lengths."""
    assert here.gradient is not None
    slope = wide(here.gradient).nan_to_num(nan=0.0, posinf=0.0, neginf=0.0)
    centre, now, loss = wide(ball.centre), wide(points), wide(here.loss)
    at_image = loss + (slope * (centre - now)).sum((1, 2, 3))
    own = to_hyperplane(now, slope, -loss, ball.norm)
    images = to_hyperplane(centre, slope, -at_image, ball.norm)
    lengths = [distance(torch.zeros_like(change), change, ball.norm) for change in (own, images)]
    bias = (lengths[0] / (lengths[0] + lengths[1]).clamp(min=1e-30)).clamp(max=MOST_BIAS)[:, None, None, None]
    mean = (1 - bias) * (now + BEYOND * own) + bias * (centre + BEYOND * images)
    return mean.clamp(0, 1).to(points)


def to_hyperplane(points: Tensor, slope: Tensor, value: Tensor, norm: str) -> Tensor:
    """The smallest change δ of points (n, 3, H, W) with slope·δ = value (n,) that stays in [0, 1]; else the farthest.

    δ(λ) = λ·u cut to [0, 1], with u = sign(slope) in L∞ and u = slope in L2; slope·δ rises ever more slowly in λ, so
    Newton's method from λ = 0 never goes too far.
    """
    side = wide(torch.where(value < 0, -1.0, 1.0))[:, None, None, None]
    unit = side * (slope.sign() if norm == "linf" else slope)
    size = torch.zeros_like(side)
    change = torch.zeros_like(points)
    for _ in range(ITERATIONS):
        free = (points + change > 0) & (points + change < 1) | (change == 0)
        rise = (slope * unit * free).sum((1, 2, 3), keepdim=True).abs().clamp(min=torch.finfo(slope.dtype).tiny)
        missing = (value.abs() - (slope * change).sum((1, 2, 3)).abs())[:, None, None, None]
        size = (size + missing / rise).clamp(max=1e30)
        change = (points + size * unit).clamp(0, 1) - points
    return change
