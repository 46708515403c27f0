"""The search for each image's smallest ε among given values: guess, gallop, bisect.

With a polish (`polish.py`) it is mostly not needed: the polish looks for the nearest point itself, beside the image,
and only where it finds none are the given ε searched.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from scs_eval.analyses.attacks.attack import attack
from scs_eval.analyses.attacks.config import Attack
from scs_eval.analyses.attacks.losses import margin
from scs_eval.analyses.attacks.objective import Backward, Objective
from scs_eval.analyses.attacks.polish import linear_step, polish
from scs_eval.analyses.core.model_state import device_of
from scs_eval.analyses.core.precision import wide, widest
from scs_eval.analyses.core.validation import count_logits
from scs_eval.progress import Progress

POLISHED = ("pgd", "apgd")  # attacks that follow gradients for as long as it takes
FARTHEST = 5.0  # times the guess: a point that the polish finds beyond is not trusted


class EpsSearchResult(NamedTuple):
    """What a search found for its n images.

    min_eps: (n,) the smallest ε found; 0 if the clean image is wrong already, inf if nothing fooled the model.
    eps_index: (n,) of the smallest given ε that fooled the model; −1 and E as 0 and inf.
    eps_index_after: (A, n) `eps_index` after each attack. is_adversarial: (n, E) at which ε an attack succeeded.
    attempts: (n,) attacks made. images: (n, 3, H, W) the misclassified image within min_eps.
    """

    min_eps: np.ndarray
    eps_index: np.ndarray
    eps_index_after: np.ndarray
    is_adversarial: np.ndarray
    attempts: np.ndarray
    images: Tensor


class Search:
    """n images under way together, independent of each other; its fields: see `EpsSearchResult`."""

    def __init__(
        self,
        model: nn.Module,
        images: Tensor,
        labels: Tensor,
        ids: Tensor,
        eps_values: np.ndarray,
        *,
        seed: int = 0,
        backward: Backward | None = None,
        progress: Progress | None = None,
    ) -> None:
        images, labels = images.to(device_of(model)), labels.to(device_of(model))
        self.model, self.clean, self.labels, self.ids, self.eps_values = model, images, labels, ids, eps_values
        self.seed, self.backward, self.progress = seed, backward, progress
        n = len(images)
        self.eps_index, self.attempts = np.full(n, len(eps_values)), np.zeros(n, dtype=np.int64)
        self.min_eps, self.polished_index = np.full(n, np.inf), np.full(n, len(eps_values))
        self.is_adversarial = np.zeros((n, len(eps_values)), dtype=bool)
        self.eps_index_after = np.empty((0, n), dtype=np.int64)
        self.images, self.last = images.clone(), images.clone()
        self.last_eps = np.zeros(n)
        self.undecided = n

    def run(self, attacks: Sequence[Attack], *, independent: bool, polished: bool) -> EpsSearchResult:
        """Let every attack lower the smallest ε that those before it left, or attack every ε afresh."""
        norm = attacks[0].norm
        self._look_at_clean(norm)
        to_polish = next((settings for settings in attacks if settings.name in POLISHED), None) if polished else None
        for number, settings in enumerate(attacks):
            if independent:
                self._attack_every_eps(settings)
            else:
                low = self._polish_beside(norm) if settings is to_polish else np.full(len(self.eps_index), -1)
                first = np.searchsorted(self.eps_values, self.guess) if number == 0 else self.eps_index - 1
                self._search(settings, first, low, final=number == len(attacks) - 1)
            self.eps_index_after = np.concatenate([self.eps_index_after, self.eps_index[None]])
        if to_polish is not None:
            self._polish_found(norm)
        if not independent:
            self.is_adversarial = self.eps_values >= self.min_eps[:, None]
        self._decided(0)
        return EpsSearchResult(
            self.min_eps, self.eps_index, self.eps_index_after, self.is_adversarial, self.attempts, self.images.cpu()
        )

    def _polish_beside(self, norm: str) -> np.ndarray:
        """Polish from beside the images; (n,) the position below which there is nothing to search.

        Where it found a point it is trusted; where it did not, the gradient may be of no use.
        """
        rows = (self.eps_index >= 0).nonzero()[0]
        within = np.minimum(self.min_eps, np.minimum(FARTHEST * self.guess, self.eps_values[-1]))
        reached = rows[self._polish(rows, within[rows], self.start, norm)]
        low = np.full(len(self.eps_index), -1)
        low[reached] = self.eps_index[reached] - 1
        return low

    def _polish_found(self, norm: str) -> None:
        """Polish what the search found, from there."""
        rows = ((self.eps_index >= 0) & (self.eps_index < self.polished_index)).nonzero()[0]
        self._polish(rows, self.min_eps[rows], self.images, norm)

    def _polish(self, rows: np.ndarray, within: np.ndarray, start: Tensor, norm: str) -> np.ndarray:
        """Lower min_eps of some images where there is a misclassified point nearer than `within`; (m,) of which."""
        if len(rows) == 0:
            return np.zeros(0, dtype=bool)
        at, device = torch.from_numpy(rows), self.clean.device
        images, best, begin = (part[at] for part in (self.clean, self.images, start))
        reach, radius = (
            torch.from_numpy(values).to(widest(device)).to(device) for values in (self.guess[rows], within)
        )
        points, nearest = polish(self._margin().of(at), images, best, begin, reach, radius, norm)
        nearer = (nearest < radius).cpu().numpy()
        self.images[at[nearer]] = points[nearer]
        self.min_eps[rows[nearer]] = nearest.cpu().numpy()[nearer]
        self.eps_index[rows] = np.minimum(self.eps_index[rows], np.searchsorted(self.eps_values, self.min_eps[rows]))
        self.polished_index[rows] = self.eps_index[rows]
        return nearer

    def _margin(self) -> Objective:
        """The margin of all images: below 0 where the model is right."""
        classes = count_logits(self.model, self.clean[:1])
        return Objective(self.model, classes, margin, self.labels, None, self.backward)

    def _look_at_clean(self, norm: str) -> None:
        """Which images are wrong already, and `guess` (n,), the ε that would fool a linear model, and its point."""
        evaluation = replace(self._margin(), backward=None).evaluate(self.clean, gradient=True)
        assert evaluation.gradient is not None
        wrong = evaluation.is_adversarial.cpu().numpy()
        self.eps_index[wrong], self.min_eps[wrong], self.is_adversarial[wrong] = -1, 0, True
        guess, self.start = linear_step(self.clean, evaluation.loss, evaluation.gradient, norm, self.eps_values[-1])
        self.guess = guess.cpu().numpy()

    def _search(self, settings: Attack, first: np.ndarray, low: np.ndarray, *, final: bool) -> None:
        """Attack at `first`, gallop away from it until both sides are known, close in on `low`, where it failed."""
        self.last_eps[:] = 0
        tries = np.zeros(len(self.eps_index), dtype=np.int64)
        while True:
            rows = ((self.eps_index >= 0) & (self.eps_index - low > 1)).nonzero()[0]
            if final:
                self._decided(len(rows))
            if len(rows) == 0:
                return
            target = _next(low[rows], self.eps_index[rows], first[rows], tries[rows], len(self.eps_values))
            tries[rows] += 1
            is_adversarial = self._attempt(settings, rows, target, warm=True)
            low[rows[~is_adversarial]] = target[~is_adversarial]

    def _attack_every_eps(self, settings: Attack) -> None:
        for position in range(len(self.eps_values)):
            rows = (~self.is_adversarial[:, position]).nonzero()[0]
            if len(rows):
                self._attempt(settings, rows, np.full(len(rows), position), warm=False)

    def _attempt(self, settings: Attack, rows: np.ndarray, positions: np.ndarray, *, warm: bool) -> np.ndarray:
        """Attack some images, each at its own ε; (m,) which of them are misclassified."""
        at, eps = torch.from_numpy(rows), self.eps_values[positions]
        result = attack(
            self.model,
            self.clean[at],
            self.labels[at],
            torch.from_numpy(eps),
            settings=settings,
            seed=self.seed,
            ids=self.ids[at],
            draw=torch.from_numpy(positions),
            start=self._warm_start(at, eps) if warm and settings.name in ("pgd", "apgd") else None,
            backward=self.backward,
        )
        self.last[at], self.last_eps[rows] = result.images, eps
        self.attempts[rows] += 1
        is_adversarial = result.is_adversarial.cpu().numpy()
        self._note(rows[is_adversarial], positions[is_adversarial], result.images[result.is_adversarial])
        return is_adversarial

    def _note(self, rows: np.ndarray, positions: np.ndarray, images: Tensor) -> None:
        """These images are misclassified at these positions."""
        self.is_adversarial[rows, positions] = True
        lower = positions < self.eps_index[rows]
        self.eps_index[rows[lower]], self.min_eps[rows[lower]] = positions[lower], self.eps_values[positions[lower]]
        self.images[torch.from_numpy(rows[lower])] = images[torch.from_numpy(lower)]

    def _warm_start(self, at: Tensor, eps: np.ndarray) -> Tensor:
        """Where the last attempt ended, scaled to the new ε; NaN, for a random start, where there was none.

        Its direction is known to be good: on our trained networks a fifth fewer gradients, and a stronger attack.
        """
        before = self.last_eps[at.numpy()]
        scale = np.divide(eps, before, out=np.full(len(eps), np.nan), where=before > 0)
        change = wide(self.last[at]) - wide(self.clean[at])
        return (self.clean[at] + change * torch.from_numpy(scale).to(change).view(-1, 1, 1, 1)).to(self.clean)

    def _decided(self, undecided: int) -> None:
        if self.progress is not None and undecided < self.undecided:
            self.progress(self.undecided - undecided)
        self.undecided = undecided


def _next(low: np.ndarray, high: np.ndarray, first: np.ndarray, tries: np.ndarray, count: int) -> np.ndarray:
    """The position to attack next, between `low`, where it failed (or −1), and `high`, where it succeeded (or E).

    A success ends after a step or two, a failure takes all steps: so upwards strides double at once, downwards at every
    second try, and a bracket is cut at a quarter of its width from above.
    """
    up, down = 2 ** np.maximum(tries - 1, 0), 2 ** (np.maximum(tries - 1, 0) // 2)
    target = high - np.where(low == -1, down, np.maximum(1, (high - low) // 4))
    target = np.where(high == count, low + up, target)
    return np.clip(np.where(tries == 0, first, target), low + 1, high - 1)
