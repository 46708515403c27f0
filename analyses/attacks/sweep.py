"""The ε-sweep: for each image the smallest ε at which some attack changes the prediction.

Balls nest: an image misclassified at ε is so at every larger ε. So each image is searched for its own smallest ε
instead of being attacked at all of them (`eps_search.py`); images at different ε share a batch, and leave it when
misclassified. A minimum-norm polish (`polish.py`) brings a search's point nearer, to an ε between the given ones.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from scs_eval.analyses.attacks.config import Attack
from scs_eval.analyses.attacks.eps_search import POLISHED, EpsSearchResult, Search
from scs_eval.analyses.attacks.objective import Backward
from scs_eval.analyses.attacks.sweep_state import SweepState
from scs_eval.analyses.core.batching import CHUNK, images_at_once
from scs_eval.analyses.core.fingerprint import fingerprint
from scs_eval.analyses.core.model_state import evaluating
from scs_eval.analyses.core.parallel import gather_dicts, processes, share_size, shared_map
from scs_eval.analyses.core.validation import check_images, check_labels, count_logits
from scs_eval.errors import InputError, several
from scs_eval.images import Images
from scs_eval.progress import Progress


@dataclass(frozen=True, eq=False, kw_only=True)
class Sweep:
    """What a sweep over E values of ε found for n images.

    eps: (E,) rising. attacks: the A attacks, cheapest first.
    min_eps: (n,) the smallest ε that fooled the model, between the given ones once polished; 0 where the clean image is
        wrong already, inf where no given ε did.
    min_eps_after: (A, n) the first given ε that is no smaller, after the first attack, after the first two ….
    is_adversarial: (n, E) whether some attack succeeded at ε; only after an independent sweep may a row fall again.
    images: (k, 3, H, W) misclassified and within min_eps, the clean image where there is no such ε; of the images at
        `positions` (k,), all n unless the sweep was told which to keep.
    attempts: (n,) how many attacks at one ε were made.
    summaries: name → (n,), what `summarise` made of the adversarial images.
    """

    eps: np.ndarray
    attacks: tuple[Attack, ...]
    min_eps: np.ndarray
    min_eps_after: np.ndarray
    is_adversarial: np.ndarray
    images: Tensor
    positions: np.ndarray
    attempts: np.ndarray
    summaries: dict[str, np.ndarray]

    @property
    def robust_accuracy(self) -> np.ndarray:
        """(E,) the share of images that no attack fooled."""
        return 1 - self.is_adversarial.mean(0)


# From positions (b,), clean images (b, 3, H, W) and what the search found for them to numbers (b,) by name.
Summarise = Callable[[Tensor, Tensor, EpsSearchResult], dict[str, np.ndarray]]
Keep = Callable[[np.ndarray], np.ndarray]  # from min_eps (n,), NaN where not yet known, to positions (k,)


def sweep(
    model: nn.Module,
    images: Images,
    labels: Tensor,
    eps: Sequence[float],
    *,
    attacks: Sequence[Attack],
    seed: int = 0,
    ids: Tensor | None = None,
    batch_size: int = 512,
    independent: bool = False,
    polished: bool = True,
    backward: Backward | None = None,
    progress: Progress | None = None,
    checkpoint: Path | None = None,
    checkpoint_every: int = 1,
    summarise: Summarise | None = None,
    keep: Keep | None = None,
) -> Sweep:
    """Search the smallest ε of images (n, 3, H, W) in [0, 1] with labels (n,) on rising values of ε.

    attacks: the worst counts; each, the cheapest first, only tries to go below what those before it found.
    ids: (n,) what random numbers of an image follow from besides the seed; 0, 1 … by default.
    batch_size: images under way together; a matter of memory and of speed (more is faster), not of the result.
    independent: attack every ε afresh, as loops around torchattacks do; nothing is polished.
    polished: with pgd and apgd, go below the given value; other attacks (fgsm, square …) are what they are, and at a
        single ε the question is only whether they succeed.
    progress: is told how many more images are decided.
    checkpoint: a file to resume from and to write after every `checkpoint_every` batches; for this sweep alone.
    summarise: what is to be known of adversarial images that are not kept, asked batch by batch where they are found.
    keep: which adversarial images to keep, by min_eps; it is asked again after every batch and may drop some of those
        it wanted, but not want one of an earlier batch that it did not. Without it all are kept.
    """
    eps_values, attacks = check_eps_values(eps), check_attacks(attacks)
    check_images(images)
    ids = torch.arange(len(images)) if ids is None else ids
    polished = (
        polished and not independent and len(eps_values) > 1 and any(settings.name in POLISHED for settings in attacks)
    )
    if batch_size < 1 or checkpoint_every < 1:
        raise InputError(f"expected batches of at least 1, got batch size {batch_size}, every {checkpoint_every}")
    with evaluating(model):
        check_labels(labels, images=images, classes=[""] * count_logits(model, images[:1]))
        settings = (eps_values.tolist(), attacks, seed, independent, polished, backward)
        key = fingerprint(model, (images, labels, ids), (*settings, *filter(None, [summarise and "summaries"])))
        state = SweepState.begin(checkpoint, key, n=len(images), shape=(len(attacks), len(eps_values)), keep=keep)
        if progress is not None and state.done.any():
            progress(int(state.done.sum()))
        alone = processes() == 1
        own_progress = progress if alone else None  # of several processes, each sees only its own images
        adversarial: dict[int, Tensor] = {}  # of this process's last batch, until it is known which are kept

        def search(rows: np.ndarray) -> tuple[EpsSearchResult, dict[str, np.ndarray]]:
            at = torch.from_numpy(rows)
            clean = images[at]
            under_way = Search(
                model, clean, labels[at], ids[at], eps_values, seed=seed, backward=backward, progress=own_progress
            )
            searched = under_way.run(attacks, independent=independent, polished=polished)
            adversarial.update(zip(rows.tolist(), searched.images, strict=True))
            return searched._replace(images=searched.images[:0]), summarise(at, clean, searched) if summarise else {}

        size = share_size(len(images), images_at_once(images, batch_size), multiple=CHUNK)
        batches = _batches(state.done, size)
        for number in range(0, len(batches), processes()):
            together = batches[number : number + processes()]
            for rows, (outcome, summary) in zip(together, shared_map(search, together), strict=True):
                state.put(rows, outcome, summary)
                if progress is not None and not alone:
                    progress(len(rows))
            wanted = state.newly_wanted()
            state.keep_images(gather_dicts({row: adversarial[row].clone() for row in wanted if row in adversarial}))
            adversarial.clear()
            if (number // processes() + 1) % checkpoint_every == 0:
                state.write()
    return _result(eps_values, attacks, state)


def check_eps_values(eps: Sequence[float]) -> np.ndarray:
    """(E,) the values, if they are finite, not negative and rising."""
    values = several(eps=eps)
    try:
        eps_values = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"expected eps as a list of numbers, got {eps!r:.60}") from error
    if eps_values.ndim != 1 or len(eps_values) == 0:
        raise InputError("expected eps with at least one ε, got none")
    if not (np.isfinite(eps_values).all() and (eps_values >= 0).all()):
        raise InputError(
            f"expected every ε of eps finite and at least 0, got {eps_values.min():g} to {eps_values.max():g}"
        )
    if (np.diff(eps_values) <= 0).any():
        raise InputError(
            f"expected eps as rising values of ε, got {eps_values[0]:g} … {eps_values[-1]:g}; put the smallest first"
        )
    return eps_values


def check_attacks(attacks: Sequence[Attack]) -> tuple[Attack, ...]:
    """The attacks, cheapest first, if they share one norm."""
    norms = sorted({settings.norm for settings in attacks})
    if len(norms) != 1:
        raise InputError(f"expected attacks of one norm in a sweep, got {' and '.join(norms) or 'none'}")
    return tuple(sorted(attacks, key=lambda settings: settings.cost))


def _batches(done: np.ndarray, batch_size: int) -> list[np.ndarray]:
    """Positions still to do, in whole blocks of CHUNK so that images of a block always stay together."""
    size = -(-batch_size // CHUNK) * CHUNK
    parts = (np.arange(first, min(first + size, len(done))) for first in range(0, len(done), size))
    return [part[~done[part]] for part in parts if not done[part].all()]


def _result(eps_values: np.ndarray, attacks: tuple[Attack, ...], state: SweepState) -> Sweep:
    values = np.concatenate([eps_values, [np.inf, 0.0]])  # position E: never; position −1: wrong when clean
    return Sweep(
        eps=eps_values,
        attacks=attacks,
        min_eps=state.min_eps,
        min_eps_after=values[state.eps_index_after],
        is_adversarial=state.is_adversarial,
        images=state.kept_images(),
        positions=state.positions,
        attempts=state.attempts,
        summaries=state.summaries,
    )
