"""A minimum-norm polish: each image's nearest misclassified point, between whatever values of ε.

After FMN (Pintor, Roli, Brendel and Biggio 2021): steps along the gradient of the margin alternate with updates of the
radius of the ball that the point is projected onto. What differs from FMN: the radius is where the linearised margin
crosses zero (FMN takes that only until its first success, then a few per cent up or down), directions are averaged,
each image has its own step size, which grows while it gains and ends its polish when it does not, and where a second
class is about as near, a second start heads for it. How the constants were chosen: docs/strength.md.
"""

import torch
from torch import Tensor

from scs_eval.analyses.attacks.ball import distance, dual_norm
from scs_eval.analyses.attacks.objective import Objective
from scs_eval.analyses.core.precision import wide

MOST_STEPS = 36
LONGEST, SHORTEST = 2.0, 0.2  # a step as a share of the radius: the first, and that below which an image is left alone
AGAIN = 1.0  # the first step of the second start
LONGER, SHORTER = 1.3, 0.83  # its factor after a step with gain, and after one without
GAIN = 0.02  # a step gains if it lowers ε by this share; times the step's share, it aims at no less
BEYOND = 0.02  # how far beyond the linearised boundary to aim, times the step's share
NEAREST = 0.5  # of the best radius: as far as one step trusts the linearisation
MEMORY = 0.8  # weight of earlier directions
SOFT = 4.0  # L∞: pixels whose gradient is at least the mean over this make a whole step
ALIKE = 1.1  # a second class is tried where a linear model would reach it within this much of the nearest one's ε


def polish(
    objective: Objective, images: Tensor, best: Tensor, start: Tensor, guess: Tensor, radius: Tensor, norm: str
) -> tuple[Tensor, Tensor]:
    """Points (n, 3, H, W) and their distances (n,) from the images: misclassified where nearer than `radius`.

    objective: with the margin as its loss; its labels are those of the images. best, radius: what is to be improved on;
    it stays where nothing nearer was found. start, guess: where to begin, and how far that is (`linear_step`).
    """
    points, nearest = _descend(objective, images, best, start, radius, norm, LONGEST)
    rows = (nearest < radius).nonzero()[:, 0]
    if len(rows):
        other = _towards_another(objective.of(rows), images[rows], points[rows])
        reach, start = linear_step_of(other, images[rows], norm, nearest[rows])
        alike = (reach < ALIKE * guess[rows]).nonzero()[:, 0]
        rows = rows[alike]
        points[rows], nearest[rows] = _descend(
            other.of(alike), images[rows], points[rows], start[alike], nearest[rows], norm, AGAIN
        )
    return points, nearest


def _towards_another(objective: Objective, images: Tensor, points: Tensor) -> Objective:
    """The objective with the class as a target that is the likeliest at the points besides the label and the answer."""
    logits = objective.logits(points)
    taken = torch.stack([objective.labels, logits.argmax(1)], dim=1)
    return objective.towards(logits.scatter(1, taken, -torch.inf).argmax(1))


def _descend(
    objective: Objective, images: Tensor, best: Tensor, start: Tensor, radius: Tensor, norm: str, longest: float
) -> tuple[Tensor, Tensor]:
    """One start of `polish`, with `longest` as its first step."""
    best, points, radius, memory = best.clone(), start.clone(), radius.clone(), torch.zeros_like(images)
    share, rows = torch.full_like(radius, longest), torch.arange(len(images), device=images.device)
    for step in range(MOST_STEPS):
        if len(rows) == 0:
            break
        evaluation = objective.of(rows).evaluate(points[rows], gradient=True)
        assert evaluation.gradient is not None
        now = distance(images[rows], points[rows], norm)
        nearer = evaluation.is_adversarial & (now < radius[rows])
        gained = nearer & (now < (1 - GAIN) * radius[rows])
        best[rows[nearer]], radius[rows[nearer]] = points[rows[nearer]], now[nearer]
        if step > 0:
            share[rows] = (share[rows] * torch.where(gained, LONGER, SHORTER)).clamp(max=longest)
        slope, direction = _normalised(evaluation.gradient, norm)
        memory[rows] = MEMORY * memory[rows] + (1 - MEMORY) * direction
        target = _radius(now - wide(evaluation.loss) / slope, radius[rows], share[rows])
        points[rows] = _moved(images[rows], points[rows], memory[rows], share[rows], target, norm)
        rows = rows[share[rows] >= SHORTEST]
    return best, radius


def linear_step_of(objective: Objective, images: Tensor, norm: str, most: Tensor) -> tuple[Tensor, Tensor]:
    """`linear_step` of an objective whose loss is a margin."""
    evaluation = objective.evaluate(images, gradient=True)
    assert evaluation.gradient is not None
    return linear_step(images, evaluation.loss, evaluation.gradient, norm, most)


def linear_step(
    images: Tensor, loss: Tensor, gradient: Tensor, norm: str, most: float | Tensor
) -> tuple[Tensor, Tensor]:
    """The ε (n,) that would fool a linear model, 0 where there is no telling, and the points at it, but within `most`.

    loss, gradient: of the margin at the images.
    """
    slope, direction = _normalised(gradient, norm)
    guess = (-wide(loss) / slope).nan_to_num(nan=0.0)
    reach = guess.clamp(min=0).minimum(torch.as_tensor(most).to(guess))
    return guess, _moved(images, images, direction, torch.ones_like(reach), reach, norm)


def _radius(boundary: Tensor, best: Tensor, share: Tensor) -> Tensor:
    """(m,) where to look next: a little beyond the estimated boundary, nearer than the best."""
    aim = boundary.nan_to_num(nan=torch.inf) * (1 + BEYOND * share)
    return aim.maximum(NEAREST * best).minimum((1 - GAIN * share) * best)


def _moved(images: Tensor, points: Tensor, direction: Tensor, share: Tensor, radius: Tensor, norm: str) -> Tensor:
    """The points after a step of share × radius, projected onto the ball of that radius and onto [0, 1].

    In the images' precision, unlike `Ball.project`: a point may end outside by a rounding, but the distance that counts
    is measured afterwards.
    """
    size, radius = ((value.view(-1, 1, 1, 1)).to(images) for value in (share * radius, radius))
    if norm == "linf":
        mean = direction.abs().mean((1, 2, 3), keepdim=True).clamp(min=torch.finfo(images.dtype).tiny)
        change = (points - images + size * (SOFT * direction / mean).clamp(-1, 1)).clamp(-radius, radius)
    else:
        change = points - images + size * direction / _length(direction)
        change = change * (radius / _length(change)).clamp(max=1)
    return (images + change).clamp(0, 1)


def _length(values: Tensor) -> Tensor:
    length = values.flatten(1).norm(dim=1).view(-1, 1, 1, 1)
    return length.clamp(min=torch.finfo(values.dtype).tiny)


def _normalised(gradient: Tensor, norm: str) -> tuple[Tensor, Tensor]:
    """The gradient's dual norm (m,), in double precision, and the gradient over it."""
    gradient = gradient.nan_to_num(nan=0.0, posinf=0.0, neginf=0.0)
    slope = dual_norm(gradient, norm).clamp(min=torch.finfo(torch.float32).tiny)
    return slope, gradient / slope.view(-1, 1, 1, 1).to(gradient)
