"""ROAD: remove and debias (Rong et al. 2022). Is the class still recognised when the map's first pixels are imputed?

A pixel that turns black tells the network that something was removed, and from the shape of the hole what. Noisy linear
imputation leaves neither: every removed pixel is the weighted mean of its eight neighbours (1/6 beside it, 1/12 across
the corner), those that are removed too included: one sparse linear system for an image, and a little noise on top.
"""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from scs_eval.analyses.core.parallel import shared_map

SHARES = (0.1, 0.2, 0.3, 0.4, 0.5, 0.7, 0.9)  # of the pixels, as in the paper
NOISE = 0.01  # standard deviation, as in the published code
NEIGHBOURS = {
    (0, 1): 1 / 6, (0, -1): 1 / 6, (1, 0): 1 / 6, (-1, 0): 1 / 6,
    (1, 1): 1 / 12, (1, -1): 1 / 12, (-1, 1): 1 / 12, (-1, -1): 1 / 12,
}  # fmt: skip

Floats = NDArray[np.float64]


@torch.no_grad()
def road(
    model: nn.Module,
    images: Tensor,
    targets: Tensor,
    ranks: Tensor,
    *,
    shares: tuple[float, ...] = SHARES,
    noise: float = NOISE,
    seed: int = 0,
) -> Tensor:
    """(N, len(shares)) whether the class is still the most likely without the first pixels of `ranks` (N, H, W)."""
    pixels = ranks.shape[1] * ranks.shape[2]

    def still_right(number: int) -> Tensor:
        image, rank = images[number].cpu().double().numpy(), ranks[number].cpu().numpy()
        draw = np.random.default_rng(seed)  # the same noise for every image: a value does not depend on its neighbours
        versions = [imputed(image, rank < int(pixels * share), noise=noise, draw=draw) for share in shares]
        logits = model(torch.from_numpy(np.stack(versions)).to(images))
        return (logits.argmax(1) == targets[number])[None].cpu()

    return torch.cat(shared_map(still_right, range(len(images))))


def imputed(image: Floats, removed: NDArray[np.bool_], *, noise: float, draw: np.random.Generator) -> Floats:
    """The image (C, H, W) with the removed pixels (H, W) as noisy weighted means of their neighbours."""
    from scipy.sparse.linalg import spsolve

    if not removed.any():
        return image
    system, known = _equations(image, removed)
    values = spsolve(system, known).reshape(-1, len(image))
    filled = image.copy()
    filled[:, removed] = values.T + noise * draw.standard_normal(values.T.shape)
    return filled


def _equations(image: Floats, removed: NDArray[np.bool_]) -> tuple[NDArray[np.object_], Floats]:
    """A and b of A v = b for the values v (removed, C): Σ_neighbours w (v − v_neighbour) = 0 at every removed pixel."""
    from scipy.sparse import csc_matrix

    height, width = removed.shape
    rows, columns = np.nonzero(removed)
    number = np.zeros(removed.shape, dtype=int)
    number[removed] = np.arange(len(rows))
    total, known = np.zeros(len(rows)), np.zeros((len(rows), len(image)))
    entries: list[tuple[NDArray[np.int_], NDArray[np.int_], Floats]] = []
    for (down, right), weight in NEIGHBOURS.items():
        y, x = rows + down, columns + right
        inside = np.flatnonzero((y >= 0) & (y < height) & (x >= 0) & (x < width))
        y, x = y[inside], x[inside]
        total[inside] += weight
        unknown = removed[y, x]
        known[inside[~unknown]] += weight * image[:, y[~unknown], x[~unknown]].T
        entries.append((inside[unknown], number[y[unknown], x[unknown]], np.full(unknown.sum(), -weight)))
    entries.append((np.arange(len(rows)), np.arange(len(rows)), total))
    where, which, values = (np.concatenate(parts) for parts in zip(*entries, strict=True))
    return csc_matrix((values, (where, which)), shape=(len(rows), len(rows))), known
