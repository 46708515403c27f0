"""Insertion and deletion: what becomes of a class as pixels come or go in the order of a map (Petsiuk et al. 2018).

Deletion starts from the image and replaces the most important pixels first; insertion starts from the baseline and
puts them in first. A map that names the right pixels has a deletion curve that falls early (small area) and an
insertion curve that rises early (large area). The curve is the softmax probability of the class, as in the paper: it
stays in [0, 1], so that areas compare between networks whose logits have other scales.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from scs_eval.analyses.attribution.perturbation import versions_at_once
from scs_eval.analyses.core.parallel import shared_map
from scs_eval.errors import InputError

BLUR = 1 / 8  # standard deviation of the blurred baseline, as a share of the image's shorter side


class ChannelRule(NamedTuple):
    """How a value per pixel comes from the channels, and how a caption says it."""

    function: Callable[[Tensor], Tensor]
    words: str


ORDERS = {
    "signed": ChannelRule(lambda maps: maps.sum(1), "sum over the channels, most positive first"),
    "magnitude": ChannelRule(lambda maps: maps.abs().amax(1), "largest |value| of the channels first"),
}
BASELINES = {"black": "black", "mean": "the image's mean colour", "blur": "the blurred image"}


class Curves(NamedTuple):
    """Probability of the class (N, steps + 1) as ever more pixels are replaced, or put in."""

    deletion: Tensor
    insertion: Tensor


def baseline_of(images: Tensor, name: str) -> Tensor:
    """What stands in for a pixel that is not there, (N, 3, H, W)."""
    if name == "black":
        return torch.zeros_like(images)
    if name == "mean":
        return images.mean((2, 3), keepdim=True).expand_as(images)
    from torchvision.transforms.functional import gaussian_blur

    sigma = BLUR * min(images.shape[2:])
    return gaussian_blur(images, [2 * round(3 * sigma) + 1] * 2, [sigma, sigma])


def ranks_of(values: Tensor, *, seed: int) -> Tensor:
    """(N, H, W) the place of every pixel, 0 for the largest value; ties are settled by lot, not by where a pixel is."""
    flat = values.detach().cpu().double().flatten(1)
    lot = torch.randperm(flat.shape[1], generator=torch.Generator().manual_seed(seed))
    order = lot[flat[:, lot].argsort(dim=1, descending=True, stable=True)]
    return torch.argsort(order, dim=1).view(values.shape)


def counts_of(pixels: int, steps: int) -> Tensor:
    """(steps + 1,) how many pixels are gone at each step: 0 … all, as evenly as whole pixels allow."""
    if not 1 <= steps <= pixels:
        raise InputError(f"expected from 1 to {pixels} steps (an image has {pixels} pixels), got {steps}")
    return (torch.arange(steps + 1, dtype=torch.float64) * pixels / steps).round().long()


def pixel_curves(
    model: nn.Module, images: Tensor, targets: Tensor, ranks: Tensor, *, baseline: Tensor, counts: Tensor
) -> Curves:
    """Both curves of each image."""
    deletion = replacement_curve(model, images, baseline, targets, ranks, counts=counts)
    return Curves(deletion, replacement_curve(model, baseline, images, targets, ranks, counts=counts))


@torch.no_grad()
def replacement_curve(
    model: nn.Module, start: Tensor, end: Tensor, targets: Tensor, ranks: Tensor, *, counts: Tensor
) -> Tensor:
    """(N, steps + 1) the probability of the class as the first pixels turn from `start` into `end`, both (N, 3, H, W).

    Versions of all images share the forward passes.
    """
    ranks, counts = ranks.to(start.device), counts.to(start.device)

    def probabilities(numbers: Tensor) -> Tensor:
        image, step = numbers // len(counts), numbers % len(counts)
        replaced = ranks[image] < counts[step][:, None, None]
        logits = model(torch.where(replaced[:, None], end[image], start[image])).cpu().double()
        return logits.softmax(1).gather(1, targets[image].cpu()[:, None])

    versions = torch.arange(len(start) * len(counts), device=start.device)
    return torch.cat(shared_map(probabilities, versions.split(versions_at_once(start)))).view(len(start), len(counts))


def rising_share(curves: np.ndarray) -> np.ndarray:
    """(…) of curves (…, steps + 1), least important pixels first, the share of steps at which they do not fall.

    Monotonicity (Arya et al. 2019) holds where it is 1: more evidence never makes the class less likely. As there, the
    step from the baseline itself does not count.
    """
    return np.asarray((np.diff(curves[..., 1:]) >= 0).mean(-1))


def area(curves: np.ndarray, fractions: np.ndarray) -> np.ndarray:
    """The area under curves (…, steps + 1) over the fraction of pixels, by trapezia."""
    from scipy.integrate import trapezoid

    return np.asarray(trapezoid(curves, fractions))
