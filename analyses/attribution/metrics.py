"""Numbers for saliency maps (N, H, W) ≥ 0: how sparse, how specific to the class, how steady. In float64.

None of them depends on a map's scale. A map that is 0 everywhere prefers no pixel and counts as uniform (Gini 0,
entropy 1, 5 % of the mass in 5 % of the pixels); it correlates with nothing (NaN).
"""

from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from scs_eval.errors import InputError

Floats = NDArray[np.float64]

TOP = 0.05


def gini(maps: ArrayLike) -> Floats:
    """(N,) Gini index: 0 for a uniform map, 1 − 1/P if one of P pixels has everything (Hurley and Rickard 2009).

    1 − 2 Σ_k (v_(k) / ‖v‖₁) (P − k + ½) / P, with v_(1) ≤ … ≤ v_(P).
    """
    shares = np.sort(_shares(maps), axis=1)
    pixels = shares.shape[1]
    return 1 - 2 * shares @ ((pixels - np.arange(1, pixels + 1) + 0.5) / pixels)


def entropy(maps: ArrayLike) -> Floats:
    """(N,) entropy of the mass over the pixels, divided by the log of their number: 1 uniform, 0 a single pixel."""
    shares = _shares(maps)
    logs = np.log(shares, where=shares > 0, out=np.zeros_like(shares))
    return np.maximum(0, -(shares * logs).sum(1)) / np.log(max(shares.shape[1], 2))


def top_mass(maps: ArrayLike, *, share: float = TOP) -> Floats:
    """(N,) share of the mass in the strongest `share` of the pixels; the last of them counts in part."""
    falling = -np.sort(-_shares(maps), axis=1)
    weight = np.clip(share * falling.shape[1] - np.arange(falling.shape[1]), 0, 1)
    return falling @ weight


def map_correlation(first: ArrayLike, second: ArrayLike) -> Floats:
    """(N,) Pearson correlation of two maps of each image; NaN where one of them is constant."""
    a, b = (_unit(_flat(maps)) for maps in (first, second))
    if a.shape != b.shape:
        raise InputError(f"expected maps of one shape, got {np.shape(first)} and {np.shape(second)}")
    return np.clip((a * b).sum(1), -1, 1)


def max_sensitivity(
    explain: Callable[[Tensor], Tensor],
    images: Tensor,
    maps: Tensor,
    *,
    radius: float,
    samples: int,
    seed: int = 0,
) -> Floats:
    """(N,) the largest ‖map(x + δ) − map(x)‖ / ‖map(x)‖ over random δ (Yeh et al. 2019): a lower bound of the maximum.

    δ is uniform in [−radius, radius] per value, x + δ is kept in [0, 1], and each image has the same δ. `explain` makes
    maps of images, `maps` are those of `images`. NaN where the map is 0 everywhere.
    """
    draw, flat = torch.Generator().manual_seed(seed), maps.cpu().double().flatten(1)
    worst = torch.zeros(len(images), dtype=torch.float64)
    for _ in range(samples):
        noise = torch.rand(images.shape[1:], generator=draw).to(images) * 2 - 1
        moved = explain((images + radius * noise).clamp(0, 1)).cpu().double().flatten(1)
        worst = torch.maximum(worst, (moved - flat).norm(dim=1))
    norm = flat.norm(dim=1)
    return torch.where(norm > 0, worst / norm, torch.nan).numpy()


def _flat(maps: ArrayLike) -> Floats:
    array = np.asarray(maps, dtype=np.float64)
    if array.ndim != 3 or array.size == 0:
        raise InputError(f"expected maps (n, H, W), got shape {array.shape}")
    if not (np.isfinite(array).all() and (array >= 0).all()):
        raise InputError("expected maps that are finite and nowhere negative; reduce the channels first")
    return array.reshape(len(array), -1)


def _shares(maps: ArrayLike) -> Floats:
    """(N, P) what part of its map's mass a pixel has."""
    flat = _flat(maps)
    scaled = flat / np.where(flat.max(axis=1) > 0, flat.max(axis=1), 1)[:, None]  # no overflow, no denormal sum
    total = scaled.sum(axis=1, keepdims=True)
    return np.where(total > 0, scaled / np.where(total > 0, total, 1), 1 / flat.shape[1])


def _unit(flat: Floats) -> Floats:
    """Centred rows of length 1; NaN for a constant row."""
    scaled = flat / np.where(flat.max(axis=1) > 0, flat.max(axis=1), 1)[:, None]
    centred = scaled - scaled.mean(axis=1, keepdims=True)
    length = np.sqrt((centred**2).sum(axis=1, keepdims=True))
    return np.where(length > 1e-12, centred / np.where(length > 1e-12, length, 1), np.nan)


def simplicity(maps: np.ndarray) -> dict[str, np.ndarray]:
    """How simple maps (…, H, W) are, each (…): the Gini index of |map|, and its entropy in nats."""
    sizes = np.abs(maps.reshape(-1, *maps.shape[-2:]).astype(float))
    complexity = entropy(sizes) * np.log(sizes[0].size)
    return {"sparseness": gini(sizes).reshape(maps.shape[:-2]), "complexity": complexity.reshape(maps.shape[:-2])}
