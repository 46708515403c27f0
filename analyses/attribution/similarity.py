"""How alike two maps of an image are: Spearman's rank correlation, and SSIM of the maps as they are drawn."""

import numpy as np
from numpy.typing import NDArray

from scs_eval.analyses.plotting.map_columns import unit_scaled

Floats = NDArray[np.float64]
MEASURES = ("spearman_absolute", "spearman_signed", "ssim")
WINDOW = 7  # pixels: scikit-image's default, and so the smallest image that has an SSIM


def spearman(first: np.ndarray, second: np.ndarray) -> Floats:
    """(N,) rank correlation of maps (N, H, W), ties at their mean rank; NaN where a map is constant or missing."""
    a, b = (_centred_ranks(maps.reshape(len(maps), -1)) for maps in (first, second))
    with np.errstate(invalid="ignore"):
        return np.clip((a * b).sum(1) / np.sqrt((a**2).sum(1) * (b**2).sum(1)), -1, 1)


def ssim(first: np.ndarray, second: np.ndarray) -> Floats:
    """(N,) scikit-image's SSIM of maps (N, H, W) ≥ 0, each scaled to its 99th percentile and cut there.

    That is how a figure shows them, so the number says how alike they look. NaN where a map is constant or missing.
    """
    from skimage.metrics import structural_similarity

    values = np.full(len(first), np.nan)
    for i, (a, b) in enumerate(zip(first.astype(float), second.astype(float), strict=True)):
        if np.ptp(a) > 0 and np.ptp(b) > 0:
            values[i] = structural_similarity(unit_scaled(a), unit_scaled(b), data_range=1.0, win_size=WINDOW)
    return values


def _centred_ranks(rows: np.ndarray) -> Floats:
    return np.stack([_ranks(row) - (len(row) - 1) / 2 for row in rows])


def _ranks(row: np.ndarray) -> Floats:
    """0, 1, … by size, equal values at the mean of their places; NaN if any value is."""
    from scipy.stats import rankdata

    return np.asarray(rankdata(row, nan_policy="propagate")) - 1
