"""An upper bound beside the proven lower one: points that the smoothed classifier demonstrably gets wrong."""

from functools import partial

import numpy as np
import torch
from scipy.special import bdtrc
from torch import Tensor, nn

from scs_eval.analyses.attacks.config import Attack
from scs_eval.analyses.attacks.sweep import sweep
from scs_eval.analyses.certify.smoothing import Smoothed, votes
from scs_eval.progress import Progress

ATTACK = Attack(norm="l2", steps=10)
DISTANCES = tuple(np.geomspace(0.02, 4, 24).tolist())  # in L2, to begin with; the search goes on between them
BEYOND = (0.0, 0.25, 0.5, 1.0, 2.0)  # in units of σ: where the search ends, two classes are about equally likely
ATTEMPTS = 3
BATCH = 32


def attack_smoothed(
    model: nn.Module, images: Tensor, labels: Tensor, *, sigma: float, draws: int, seed: int, ids: Tensor,
    progress: Progress | None = None,
) -> Tensor:  # fmt: skip
    """(n, 3, H, W) images that an estimate of the smoothed classifier gets wrong; where none was found, the image.

    An image that the estimate gets wrong already tells no direction: it is asked again with other noise.
    """
    moved, rows = images.clone(), torch.arange(len(images))
    for attempt in range(ATTEMPTS):
        smoothed = Smoothed(model, sigma=sigma, draws=draws, shape=images.shape[1:], seed=seed + attempt)
        moved[rows] = sweep(
            smoothed, images[rows], labels[rows], DISTANCES, attacks=[ATTACK], seed=seed, ids=ids[rows],
            batch_size=BATCH, progress=progress if attempt == 0 else None,
        ).images  # fmt: skip
        rows = (moved == images).flatten(1).all(1).nonzero()[:, 0]
        if not len(rows):
            break
    return moved


def counted_distance(
    model: nn.Module, image: Tensor, label: int, moved: Tensor, *, sigma: float, guesses: int, samples: int,
    alpha: float, rng: np.random.Generator, classes: int,
) -> float:  # fmt: skip
    """The L2 distance of a point in the direction of `moved`, there or beyond, that counts as wrong; inf without one.

    Its other class is chosen by some noisy copies; then other copies must give it more often than the label, by a
    binomial test. All tests together are wrong with probability at most alpha.
    """
    change = moved - image
    length = float(torch.linalg.vector_norm(change))
    if not length:
        return float("inf")
    draw = partial(votes, model, sigma=sigma, rng=rng, classes=classes)
    for beyond in BEYOND:
        point = (image + (1 + beyond * sigma / length) * change).clamp(0, 1)
        first = draw(point, n=guesses)
        if int(first.argmax()) == label:
            continue
        counts = draw(point, n=samples)
        wrong, right = int(counts[first.argmax()]), int(counts[label])
        if bdtrc(wrong - 1, wrong + right, 0.5) <= alpha / len(BEYOND):  # P(X ≥ wrong), X ~ B(wrong + right, ½)
            return float(torch.linalg.vector_norm((point - image).double()))
    return float("inf")
