"""SaCo, the salience-guided faithfulness coefficient (Wu et al. 2024): do pixels that a map ranks higher matter more?

The pixels fall into K groups of falling salience; without a group (its pixels in the image's mean colour) the
probability of the class falls by ∇. Every two groups vote: with the difference of their salience if the more salient
one matters at least as much, else against it. From −1, everything the wrong way round, to 1.
"""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from scs_eval.analyses.core.parallel import shared_map

GROUPS = 10  # as in the paper

Floats = NDArray[np.float64]


@torch.no_grad()
def saco(
    model: nn.Module, images: Tensor, targets: Tensor, values: Tensor, ranks: Tensor, *, groups: int = GROUPS
) -> Floats:
    """(N,) of maps `values` (N, H, W) whose pixels have `ranks` (N, H, W), 0 for the most salient."""
    group = (ranks * groups // (ranks.shape[1] * ranks.shape[2])).to(images.device)
    means = images.mean((2, 3), keepdim=True)

    def falls(number: int) -> Tensor:
        hidden = group[number] == torch.arange(groups, device=images.device)[:, None, None]
        versions = torch.where(hidden[:, None], means[number], images[number])
        logits = model(torch.cat([images[number : number + 1], versions])).cpu().double()
        probabilities = logits.softmax(1)[:, int(targets[number])]
        return (probabilities[0] - probabilities[1:])[None]

    changes = torch.cat(shared_map(falls, range(len(images)))).numpy()
    flat, member = values.detach().cpu().double().flatten(1), group.cpu().flatten(1)
    salience = torch.zeros(len(images), groups, dtype=torch.float64).scatter_add_(1, member, flat).numpy()
    return coefficient(salience, changes)


def coefficient(salience: Floats, changes: Floats) -> Floats:
    """(N,) from the groups' salience and what the probability falls by without them, both (N, K), first group first.

    Σ_{i<j} ±(s_i − s_j) / Σ_{i<j} |s_i − s_j|, + where ∇_i ≥ ∇_j; NaN where all groups are alike.
    """
    first, second = np.triu_indices(salience.shape[1], k=1)
    weight = salience[:, first] - salience[:, second]
    signed = np.where(changes[:, first] >= changes[:, second], weight, -weight)
    whole = np.abs(weight).sum(1)
    return np.divide(signed.sum(1), whole, out=np.full(len(whole), np.nan), where=whole > 0)
