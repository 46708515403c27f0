"""Square attack: random search by squares, without gradients (Andriushchenko et al. 2020).

A query repaints a random square and is kept if the loss grew; after the first hundred, the best of five is. The
square's share of the image halves from 0.8 at fixed parts of the budget. L∞ (algorithm 2): the square becomes ±ε, a
sign per channel; at first, vertical stripes do. L2 (algorithm 3): the square takes what another square gives up, and
what is left of ε, in a bulge of either sign.
"""

import numpy as np
import torch
from torch import Tensor

from scs_eval.analyses.attacks.ball import Ball
from scs_eval.analyses.attacks.objective import Objective
from scs_eval.analyses.attacks.pgd import Best
from scs_eval.analyses.core.precision import wide, widest

_SHARE = 0.8
_HALVINGS = (0.001, 0.005, 0.02, 0.1, 0.2, 0.4, 0.6, 0.8)  # parts of the budget
_TILES = 5  # per side, of the first L2 point
_AT_ONCE = 100  # queries whose random numbers are drawn together
_ONE_BY_ONE = 100  # queries at the beginning, when many gain
_BLOCK = 5  # queries after that which begin at the same point; it divides the two above


def run_square_attack(
    objective: Objective, ball: Ball, draws: list[np.random.Generator], *, steps: int, stop_early: bool
) -> Best:
    """The best point of `steps` queries."""
    best, points = Best(ball.centre), _first(ball, draws)
    rows, made = torch.arange(len(points), device=points.device), 1
    repaint = repaint_linf if ball.norm == "linf" else repaint_l2
    _record(best, rows, points, objective)
    while True:
        if stop_early and best.is_adversarial[rows].any():
            left = (~best.is_adversarial[rows]).nonzero()[:, 0]
            rows, ball, objective = rows[left], ball.of(left), objective.of(left)
        if len(rows) == 0 or made >= steps:
            return best
        first = (made - 1) % _AT_ONCE
        if first == 0:
            numbers = _numbers(draws, best.images)
        block = min(1 if made <= _ONE_BY_ONE else _BLOCK, steps - made)
        copies = torch.arange(len(rows), device=rows.device).repeat(block)
        chosen = numbers[rows, first : first + block].transpose(0, 1).flatten(0, 1)
        balls, side = ball.of(copies), side_at((made - 1) / steps, ball)
        points = balls.project(repaint(balls, best.images[rows[copies]], side, chosen))
        _record(best, rows[copies], points, objective.of(copies))
        made += block


def _record(best: Best, rows: Tensor, points: Tensor, objective: Objective) -> None:
    """Note the points (k m, 3, H, W), k in turn for each of m images, `rows` (k m,)."""
    evaluation, images = objective.evaluate(points, gradient=False), len(rows.unique())
    for part in torch.arange(len(rows), device=rows.device).split(images):
        best.record(rows[part], points[part], evaluation.loss[part], evaluation.is_adversarial[part])


def side_at(progress: float, ball: Ball) -> int:
    """The side of the square after a part of the budget, for L2 odd and at least 3 if the image is as large."""
    height, width = ball.centre.shape[2:]
    share = _SHARE / 2 ** sum(progress > part for part in _HALVINGS)
    side = max(1, round((share * height * width) ** 0.5))
    if ball.norm == "l2":
        side = max(3, side + 1 - side % 2)
    return min(side, height, width)


def repaint_linf(ball: Ball, points: Tensor, side: int, numbers: Tensor) -> Tensor:
    """Each point with its square at centre ± ε."""
    inside = _placed(torch.ones(side, side), ball, numbers[:, 0], numbers[:, 1]) > 0
    signs = _signs(numbers[:, 5:])[:, :, None, None]
    return torch.where(inside, (ball.centre + signs * ball.eps).to(points), points)


def repaint_l2(ball: Ball, points: Tensor, side: int, numbers: Tensor) -> Tensor:
    """Each point with the length of its change in a second square moved into a bulge in the first.

    Per channel, with ν the change, W₁ and W₂ the squares, η the bulge of length 1 and ρ = ±1: ν becomes 0 in W₂ and
    a (ρη + ν/‖ν‖) scaled to length √(‖ν‖² over both + (ε² − ‖all ν‖²)/channels) in W₁.
    """
    change = wide(points) - wide(ball.centre)
    spare = (ball.eps.square() - change.square().sum((1, 2, 3), keepdim=True)).clamp(min=0) / points.shape[1]
    eta = _bulges(side).to(change)
    shape = _placed(eta / eta.norm(), ball, numbers[:, 0], numbers[:, 1], flip=numbers[:, 4] < 0.5)
    taken = _placed(torch.ones(side, side), ball, numbers[:, 0], numbers[:, 1]) > 0
    given = _placed(torch.ones(side, side), ball, numbers[:, 2], numbers[:, 3]) > 0
    there = change * taken
    mixed = _signs(numbers[:, 5:])[:, :, None, None] * shape + there / _lengths(there)
    available = ((change * (taken | given)).square().sum((2, 3), keepdim=True) + spare).sqrt()
    moved = torch.where(taken, mixed / _lengths(mixed) * available, torch.where(given, 0, change))
    return (wide(ball.centre) + moved).to(points)


def _first(ball: Ball, draws: list[np.random.Generator]) -> Tensor:
    """L∞: stripes one pixel wide of ±ε. L2: tiles of bulges with random signs, together of length ε."""
    channels, height, width = ball.centre.shape[1:]
    if ball.norm == "linf":
        signs = _signs(_drawn(draws, (channels, 1, width), ball.centre))
        return ball.project((ball.centre + signs * ball.eps).to(ball.centre).expand_as(ball.centre))
    side = max(1, min(height, width) // _TILES)
    signs = _signs(_drawn(draws, (channels, -(-height // side), -(-width // side)), ball.centre))
    signs = signs.repeat_interleave(side, 2).repeat_interleave(side, 3)
    pattern = _bulges(side).to(ball.eps).repeat(signs.shape[2] // side, signs.shape[3] // side)
    change = (signs * pattern)[:, :, :height, :width]
    length = change.square().sum((1, 2, 3), keepdim=True).sqrt()
    return ball.project((ball.centre + change * ball.eps / length).to(ball.centre))


def _bulges(side: int) -> Tensor:
    """(side, side): a bulge in the left half and one of the other sign in the right."""
    half = side // 2
    return torch.cat([_bulge(side, half), -_bulge(side, side - half)], dim=1)


def _bulge(height: int, width: int) -> Tensor:
    """Σ_{k=0}^{M} 1/(n+1−k)², n = ⌊height/2⌋, M = n − the distance (larger of rows and columns) from the middle."""
    n = height // 2
    rows, columns = (torch.arange(height) - n).abs(), (torch.arange(width) - width // 2).abs()
    depth = n - torch.maximum(rows[:, None], columns[None])
    sums = (1 / (n + 1 - torch.arange(n + 1, dtype=torch.float64)) ** 2).cumsum(0)
    return sums[depth]


def _placed(pattern: Tensor, ball: Ball, top: Tensor, left: Tensor, *, flip: Tensor | None = None) -> Tensor:
    """(n, 1, H, W): the pattern at a place given by two numbers in [0, 1) per image, 0 elsewhere; some transposed."""
    (height, width), side = ball.centre.shape[2:], len(pattern)
    pattern = pattern.to(top.device)
    r = torch.arange(height, device=top.device) - (top * (height - side + 1)).floor()[:, None]
    c = torch.arange(width, device=top.device) - (left * (width - side + 1)).floor()[:, None]
    inside = ((r >= 0) & (r < side))[:, :, None] & ((c >= 0) & (c < side))[:, None, :]
    r, c = r.clamp(0, side - 1).long()[:, :, None], c.clamp(0, side - 1).long()[:, None, :]
    values = pattern[r, c] if flip is None else torch.where(flip[:, None, None], pattern[c, r], pattern[r, c])
    return (values * inside)[:, None]


def _numbers(draws: list[np.random.Generator], like: Tensor) -> Tensor:
    """(n, queries, 5 + channels) numbers in [0, 1): two places, one flip, a sign per channel."""
    return _drawn(draws, (_AT_ONCE, 5 + like.shape[1]), like)


def _drawn(draws: list[np.random.Generator], shape: tuple[int, ...], like: Tensor) -> Tensor:
    numbers = torch.from_numpy(np.stack([draw.random(shape) for draw in draws]))
    return numbers.to(like.device, widest(like.device))


def _signs(numbers: Tensor) -> Tensor:
    return wide(torch.where(numbers < 0.5, -1.0, 1.0))


def _lengths(values: Tensor) -> Tensor:
    """(n, C, 1, 1) the length of each channel, at least a tiny number."""
    return values.square().sum((2, 3), keepdim=True).sqrt().clamp(min=torch.finfo(values.dtype).tiny)
