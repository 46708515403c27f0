"""The ball around each image, cut with [0, 1]: random points in it, steps along a gradient, projection onto it."""

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from scs_eval.analyses.core.precision import wide, widest


class Ball(NamedTuple):
    """Balls of radius eps (n, 1, 1, 1), in double precision, around images `centre` (n, 3, H, W).

    lower, upper: (n, 3, H, W) the nearest floats inside [centre − ε, centre + ε] ∩ [0, 1]: the whole L∞ ball, and the
    box around the L2 ball.
    """

    norm: str
    centre: Tensor
    eps: Tensor
    lower: Tensor
    upper: Tensor

    @classmethod
    def around(cls, images: Tensor, eps: Tensor, norm: str) -> "Ball":
        """The balls of radius eps (n,)."""
        radius = eps.to(images.device, widest(images.device)).view(-1, 1, 1, 1)
        lower, upper = _no_further(images, -radius).clamp(min=0), _no_further(images, radius).clamp(max=1)
        return cls(norm, images, radius, lower, upper)

    def of(self, rows: Tensor) -> "Ball":
        """The balls of some images."""
        return Ball(self.norm, *(part[rows] for part in self[1:]))

    def step(self, gradient: Tensor, size: Tensor) -> Tensor:
        """The change of length `size` (n, 1, 1, 1) that gains most if the loss is linear: ±size, or size·g/‖g‖₂."""
        gradient = gradient.nan_to_num(nan=0.0)
        if self.norm == "linf":
            return size.to(gradient) * gradient.sign()
        scaled = gradient / _largest(gradient)  # so that squares neither overflow nor underflow
        length = _length(scaled).to(gradient).clamp(min=torch.finfo(gradient.dtype).tiny)  # no step without a gradient
        return size.to(gradient) * scaled / length

    def project(self, points: Tensor) -> Tensor:
        """The nearest points of the balls; inside in exact arithmetic, not only up to rounding."""
        if self.norm == "linf":
            return points.clamp(self.lower, self.upper)
        change = wide(points) - wide(self.centre)
        shrink = (self.eps / (_length(change) * (1 + 1e-6))).clamp(max=1)  # also for lengths measured in float32
        return _no_further(self.centre, change * shrink).clamp(self.lower, self.upper)

    def random(self, draws: list[np.random.Generator]) -> Tensor:
        """A random point of each ball: each pixel uniform in ±ε, or uniform in the L2 ball; then cut to [0, 1]."""
        shape = self.centre.shape[1:]
        linf = self.norm == "linf"
        units = np.stack([_in_cube(draw, shape) if linf else _in_sphere(draw, shape) for draw in draws])
        return self.project(self.centre + (self.eps * torch.from_numpy(units).to(self.eps)).to(self.centre))


def dual_norm(gradient: Tensor, norm: str) -> Tensor:
    """(n,) how fast a linear loss can grow per unit of ε: ‖g‖₁ for L∞, ‖g‖₂ for L2."""
    flat = wide(gradient.flatten(1))
    return flat.abs().sum(1) if norm == "linf" else flat.norm(dim=1)


def distance(images: Tensor, points: Tensor, norm: str) -> Tensor:
    """(n,) how far points (n, 3, H, W) are from images, in double precision."""
    change = (wide(points) - wide(images)).flatten(1)
    return change.abs().amax(1) if norm == "linf" else change.norm(dim=1)


def _no_further(points: Tensor, change: Tensor) -> Tensor:
    """points + change in the points' precision, never further from them than |change| (double precision)."""
    moved = (wide(points) + change).to(points.dtype)
    beyond = (wide(moved) - wide(points)).abs() > change.abs()
    return torch.where(beyond, torch.nextafter(moved, points), moved)


def _in_cube(draw: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    return draw.random(shape) * 2 - 1


def _in_sphere(draw: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    direction = draw.standard_normal(shape)
    radius = draw.random() ** (1 / direction.size)
    return direction * (radius / np.sqrt((direction**2).sum()))


def _largest(values: Tensor) -> Tensor:
    return values.abs().amax((1, 2, 3), keepdim=True).clamp(min=torch.finfo(values.dtype).tiny)


def _length(values: Tensor) -> Tensor:
    """(n, 1, 1, 1) ‖·‖₂ in double precision, at least a tiny number."""
    square = wide(values).square().sum((1, 2, 3), keepdim=True)
    return square.sqrt().clamp(min=torch.finfo(square.dtype).tiny)
