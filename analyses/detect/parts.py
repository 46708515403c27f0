"""Which images fit the Gaussians, which train the regression, and which are tested: no image does two of these."""

import numpy as np
import torch
from torch import Tensor

FIT, TRAIN, TEST = 0, 1, 2


def roles(labels: Tensor, *, seed: int, fitted_elsewhere: bool) -> np.ndarray:
    """(n,) at random, evenly over the classes: half FIT, a quarter TRAIN, a quarter TEST; without FIT half and half."""
    rng = np.random.default_rng(seed)
    order = np.lexsort((rng.random(len(labels)), labels.cpu().numpy()))
    pattern = (TEST, TRAIN) if fitted_elsewhere else (FIT, TEST, FIT, TRAIN)
    result = np.empty(len(labels), dtype=np.int64)
    result[order] = np.resize(pattern, len(labels))
    return result


def halves(count: int, *, seed: int) -> np.ndarray:
    """(count,) TRAIN or TEST at random, as many of either (one more TEST if odd)."""
    return np.where(np.random.default_rng(seed).permutation(count) % 2, TRAIN, TEST)


def noise_images(count: int, shape: torch.Size, *, seed: int) -> Tensor:
    """(count, 3, H, W) of independent pixels, even in [0, 1]."""
    rng = np.random.default_rng((seed, count))
    return torch.from_numpy(rng.random((count, *shape), dtype=np.float32))
