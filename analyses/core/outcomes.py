"""What was found about images, image by image, kept as it comes, so that interrupted work goes on."""

import time
from collections.abc import Callable, Iterator

import numpy as np

from scs_eval.analyses.core.batching import map_with_backoff
from scs_eval.analyses.core.checkpoint import Checkpoint
from scs_eval.progress import Progress

QUICK, RARELY = 0.2, 20  # seconds of a save; one that takes longer is made again after so many times its seconds

Batches = Iterator[tuple[slice, np.ndarray]]  # where in the batch's source, and (…, b) what was found


class Outcomes:
    """Arrays (…, n) by name, kept in a checkpoint, if there is one, after every batch."""

    def __init__(self, kept: Checkpoint | None, progress: Progress | None) -> None:
        self.kept, self.progress = kept, progress
        self.parts = {name: [values] for name, values in (kept.load() if kept else {}).items()}
        self.next_save = 0.0

    def count(self, name: str) -> int:
        """How many images are done."""
        return sum(part.shape[-1] for part in self.parts.get(name, []))

    def values(self, name: str) -> np.ndarray:
        """(…, n) what was found of them."""
        self.parts[name] = [np.concatenate(self.parts[name], axis=-1)]
        return self.parts[name][0]

    def resume(self, name: str, *, weight: int = 1) -> None:
        """Tell what an earlier run has done; every image counts `weight` times."""
        self.tell(weight * self.count(name))

    def run(self, name: str, work_from: Callable[[int], Batches], *, weight: int = 1) -> np.ndarray:
        """(…, n) of all images: `work_from` is asked for the batches behind the images that are done."""
        for part, outcome in work_from(self.count(name)):
            self.parts.setdefault(name, []).append(outcome)
            self._save()
            self.tell(weight * (part.stop - part.start))
        return self.values(name)

    def tell(self, count: int) -> None:
        """So many more images are done."""
        if self.progress is not None and count:
            self.progress(count)

    def _save(self) -> None:
        start = time.monotonic()
        if self.kept is None or start < self.next_save:
            return
        self.kept.save({name: self.values(name) for name in self.parts})
        took = time.monotonic() - start
        self.next_save = time.monotonic() + (RARELY * took if took > QUICK else 0)


def in_slices(
    n: int, size: int, work: Callable[[slice], np.ndarray]
) -> Callable[[int], Iterator[tuple[slice, np.ndarray]]]:
    """For `Outcomes.run`: `work` on 0 … n in slices of `size`, from the first image that is not done."""

    def work_from(done: int) -> Batches:
        return map_with_backoff(n - done, size, lambda part: work(slice(part.start + done, part.stop + done)))

    return work_from
