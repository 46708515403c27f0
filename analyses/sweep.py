"""The ε-sweep: for each image the smallest ε of a grid at which some attack changes the answer.

Balls nest: an image broken at ε is broken at every larger ε. So each image is searched for its own critical ε instead
of being attacked at all of them (`attacks/search.py`); images at different ε share a batch, and leave it when broken.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from scs_eval.analyses.attacks.problem import CHUNK, Backward
from scs_eval.analyses.attacks.saved import Saved, fingerprint
from scs_eval.analyses.attacks.search import Found, Progress, Search
from scs_eval.analyses.attacks.settings import Attack
from scs_eval.analyses.inputs import check_images, check_labels, count_logits
from scs_eval.analyses.shards import processes, share_size, shared_map
from scs_eval.analyses.state import evaluating
from scs_eval.errors import InputError


@dataclass(frozen=True, eq=False, kw_only=True)
class Sweep:
    """What a sweep over E values of ε found for n images.

    eps: (E,) rising. attacks: the A attacks, cheapest first.
    critical: (n,) the smallest ε that broke the image; 0 where the clean image is wrong already, inf where none did.
    critical_after: (A, n) the same after the first attack, after the first two … after all.
    broken: (n, E) whether some attack changed the answer at ε; only after an independent sweep may a row fall again.
    images: (n, 3, H, W) misclassified and within the critical ε; the clean image where there is no such ε.
    attempts: (n,) how many attacks at one ε were made.
    """

    eps: np.ndarray
    attacks: tuple[Attack, ...]
    critical: np.ndarray
    critical_after: np.ndarray
    broken: np.ndarray
    images: Tensor
    attempts: np.ndarray

    @property
    def robust_accuracy(self) -> np.ndarray:
        """(E,) the share of images that no attack broke."""
        return 1 - self.broken.mean(0)


def sweep(
    model: nn.Module,
    images: Tensor,
    labels: Tensor,
    eps: Sequence[float],
    *,
    attacks: Sequence[Attack],
    seed: int = 0,
    ids: Tensor | None = None,
    batch_size: int = 512,
    independent: bool = False,
    backward: Backward | None = None,
    progress: Progress | None = None,
    checkpoint: Path | None = None,
    checkpoint_every: int = 1,
) -> Sweep:
    """Search the critical ε of images (n, 3, H, W) in [0, 1] with labels (n,) on a rising grid.

    attacks: the worst counts; each, the cheapest first, only tries to go below what those before it found.
    ids: (n,) what random numbers of an image follow from besides the seed; 0, 1 … by default.
    batch_size: images under way together; a matter of memory and of speed (more is faster), not of the result.
    independent: attack every ε afresh, as loops around torchattacks do.
    progress: is told how many more images are decided.
    checkpoint: a file to resume from and to write after every `checkpoint_every` batches; for this sweep alone.
    """
    grid, attacks = check_grid(eps), check_attacks(attacks)
    check_images(images)
    ids = torch.arange(len(images)) if ids is None else ids
    if batch_size < 1 or checkpoint_every < 1:
        raise InputError(f"expected batches of at least 1, got batch size {batch_size}, every {checkpoint_every}")
    with evaluating(model):
        check_labels(labels, images=images, classes=[""] * count_logits(model, images[:1]))
        key = fingerprint(model, (images, labels, ids), (grid.tolist(), attacks, seed, independent, backward))
        saved = Saved.begin(checkpoint, key, images=images, shape=(len(attacks), len(grid)))
        if progress is not None and saved.done.any():
            progress(int(saved.done.sum()))
        alone = processes() == 1
        watched = progress if alone else None  # of several processes, each sees only its own images

        def search(rows: np.ndarray) -> Found:
            at = torch.from_numpy(rows)
            under_way = Search(
                model, images[at], labels[at], ids[at], grid, seed=seed, backward=backward, progress=watched
            )
            return under_way.run(attacks, independent=independent)

        batches = _batches(saved.done, share_size(len(images), batch_size, multiple=CHUNK))
        for number in range(0, len(batches), processes()):
            together = batches[number : number + processes()]
            for rows, found in zip(together, shared_map(search, together), strict=True):
                saved.put(rows, found)
                if progress is not None and not alone:
                    progress(len(rows))
            if (number // processes() + 1) % checkpoint_every == 0:
                saved.write()
    return _result(grid, attacks, saved)


def check_grid(eps: Sequence[float]) -> np.ndarray:
    """(E,) the grid, if it is finite, not negative and rising."""
    grid = np.asarray(list(eps), dtype=np.float64)
    if grid.ndim != 1 or len(grid) == 0:
        raise InputError("expected at least one ε, got none")
    if not (np.isfinite(grid).all() and (grid >= 0).all()):
        raise InputError(f"expected every ε finite and at least 0, got {grid.min():g} to {grid.max():g}")
    if (np.diff(grid) <= 0).any():
        raise InputError(f"expected rising values of ε, got {grid[0]:g} … {grid[-1]:g}; put the smallest first")
    return grid


def check_attacks(attacks: Sequence[Attack]) -> tuple[Attack, ...]:
    """The attacks, cheapest first, if they share one norm."""
    norms = sorted({each.norm for each in attacks})
    if len(norms) != 1:
        raise InputError(f"expected attacks of one norm in a sweep, got {' and '.join(norms) or 'none'}")
    return tuple(sorted(attacks, key=lambda each: each.cost))


def _batches(done: np.ndarray, batch_size: int) -> list[np.ndarray]:
    """Positions still to do, in whole blocks of CHUNK so that images of a block always stay together."""
    size = -(-batch_size // CHUNK) * CHUNK
    parts = (np.arange(first, min(first + size, len(done))) for first in range(0, len(done), size))
    return [part[~done[part]] for part in parts if not done[part].all()]


def _result(grid: np.ndarray, attacks: tuple[Attack, ...], saved: Saved) -> Sweep:
    values = np.concatenate([grid, [np.inf, 0.0]])  # position E: never; position −1: wrong when clean
    return Sweep(
        eps=grid,
        attacks=attacks,
        critical=values[saved.place],
        critical_after=values[saved.place_after],
        broken=saved.broken,
        images=saved.images,
        attempts=saved.attempts,
    )
