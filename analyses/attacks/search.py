"""The search for each image's critical position on a grid of ε: guess, gallop, bisect."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from scs_eval.analyses.attacks.geometry import dual_norm
from scs_eval.analyses.attacks.losses import margin
from scs_eval.analyses.attacks.problem import Backward, Problem
from scs_eval.analyses.attacks.run import attack
from scs_eval.analyses.attacks.settings import Attack
from scs_eval.analyses.inputs import count_logits

Progress = Callable[[int], None]


class Found(NamedTuple):
    """What a search found for its n images.

    place: (n,) position of the smallest ε that broke the image; −1 if it is wrong when clean, E if nothing broke it.
    place_after: (A, n) `place` after each of the attacks. broken: (n, E) at which ε an attack succeeded.
    attempts: (n,) attacks made. images: (n, 3, H, W) the misclassified image at `place`.
    """

    place: np.ndarray
    place_after: np.ndarray
    broken: np.ndarray
    attempts: np.ndarray
    images: Tensor


class Search:
    """n images under way together; what happens to one does not depend on the others. Its fields: see `Found`."""

    def __init__(
        self,
        model: nn.Module,
        images: Tensor,
        labels: Tensor,
        ids: Tensor,
        grid: np.ndarray,
        *,
        seed: int = 0,
        backward: Backward | None = None,
        progress: Progress | None = None,
    ) -> None:
        self.model, self.clean, self.labels, self.ids, self.grid = model, images, labels, ids, grid
        self.seed, self.backward, self.progress = seed, backward, progress
        n = len(images)
        self.place, self.attempts = np.full(n, len(grid)), np.zeros(n, dtype=np.int64)
        self.broken = np.zeros((n, len(grid)), dtype=bool)
        self.place_after = np.empty((0, n), dtype=np.int64)
        self.images, self.last = images.clone(), images.clone()
        self.last_eps = np.zeros(n)
        self.undecided = n

    def run(self, attacks: Sequence[Attack], *, independent: bool) -> Found:
        """Let every attack lower the critical ε that those before it left, or attack every ε afresh."""
        guess = self._look_at_clean(attacks[0].norm)
        for number, settings in enumerate(attacks):
            final = number == len(attacks) - 1
            if independent:
                self._attack_every_eps(settings)
            else:
                first = np.searchsorted(self.grid, guess) if number == 0 else self.place - 1
                self._search(settings, first, final=final)
            self.place_after = np.concatenate([self.place_after, self.place[None]])
        if not independent:
            self.broken = np.arange(len(self.grid)) >= self.place[:, None]
        self._decided(0)
        return Found(self.place, self.place_after, self.broken, self.attempts, self.images)

    def _look_at_clean(self, norm: str) -> np.ndarray:
        """(n,) the ε that would break a linear model: its margin over the dual norm of the margin's gradient."""
        device = self.clean.device
        classes = count_logits(self.model, self.clean[:1])
        seen = Problem(self.model, classes, margin, self.labels.to(device)).look(self.clean, gradient=True)
        assert seen.gradient is not None
        wrong = seen.broken.cpu().numpy()
        self.place[wrong], self.broken[wrong] = -1, True
        guess = -seen.loss.double() / dual_norm(seen.gradient, norm)
        return guess.nan_to_num(nan=0.0, posinf=np.inf).cpu().numpy()

    def _search(self, settings: Attack, first: np.ndarray, *, final: bool) -> None:
        """Attack at `first`, gallop away from it until both sides are known, then close in."""
        self.last_eps[:] = 0
        low, tries = np.full(len(self.place), -1), np.zeros(len(self.place), dtype=np.int64)
        while True:
            rows = ((self.place >= 0) & (self.place - low > 1)).nonzero()[0]
            if final:
                self._decided(len(rows))
            if len(rows) == 0:
                return
            target = _next(low[rows], self.place[rows], first[rows], tries[rows], len(self.grid))
            tries[rows] += 1
            broken = self._attempt(settings, rows, target, warm=True)
            low[rows[~broken]] = target[~broken]

    def _attack_every_eps(self, settings: Attack) -> None:
        for position in range(len(self.grid)):
            rows = (~self.broken[:, position]).nonzero()[0]
            if len(rows):
                self._attempt(settings, rows, np.full(len(rows), position), warm=False)

    def _attempt(self, settings: Attack, rows: np.ndarray, positions: np.ndarray, *, warm: bool) -> np.ndarray:
        """Attack some images, each at its own ε; (m,) which of them broke."""
        at, eps = torch.from_numpy(rows), self.grid[positions]
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
        broken = result.broken.cpu().numpy()
        self._note(rows[broken], positions[broken], result.images[result.broken])
        return broken

    def _note(self, rows: np.ndarray, positions: np.ndarray, images: Tensor) -> None:
        """These images broke at these positions."""
        self.broken[rows, positions] = True
        lower = positions < self.place[rows]
        self.place[rows[lower]] = positions[lower]
        self.images[torch.from_numpy(rows[lower])] = images[torch.from_numpy(lower)]

    def _warm_start(self, at: Tensor, eps: np.ndarray) -> Tensor:
        """Where the last attempt ended, scaled to the new ε; NaN, for a random start, where there was none.

        Its direction is known to be good: on our trained networks a fifth fewer gradients, and a stronger attack.
        """
        before = self.last_eps[at.numpy()]
        scale = np.divide(eps, before, out=np.full(len(eps), np.nan), where=before > 0)
        change = self.last[at].double() - self.clean[at].double()
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
