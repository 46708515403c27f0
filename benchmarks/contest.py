"""Time contenders fairly: warm up, take turns, keep every round."""

import gc
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

Contender = Callable[[], object]
Say = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class Measured:
    """What was measured, in which suite; unit: of its numbers, seconds, megabytes or points."""

    suite: str
    what: str
    unit: str = "s"


@dataclass(frozen=True, kw_only=True)
class Target(Measured):
    """One line of the table: ours against theirs, round by round, and what the ratio should be.

    faster: the ratio is theirs/ours and should be at least `goal`; else it is ours/theirs, at most `goal`.
    ours, theirs: seconds, megabytes or points (`unit`), one number per round.
    why: what stands in the way, for the table where the target is missed.
    """

    against: str
    goal: float
    faster: bool
    ours: tuple[float, ...]
    theirs: tuple[float, ...]
    why: str = ""

    @property
    def ratios(self) -> np.ndarray:
        """One per round: a busy moment hits the contenders of a round alike."""
        ours, theirs = np.asarray(self.ours), np.asarray(self.theirs)
        return theirs / ours if self.faster else ours / theirs

    @property
    def reached(self) -> float:
        """The median of the ratios."""
        return float(np.median(self.ratios))

    @property
    def met(self) -> bool:
        """Whether the median is where it should be."""
        return self.reached >= self.goal if self.faster else self.reached <= self.goal


@dataclass(frozen=True, kw_only=True)
class Growth(Measured):
    """How a cost grows: `cost` (seconds or megabytes, medians) at each `size`, and what is counted."""

    counted: str
    sizes: tuple[float, ...]
    cost: tuple[float, ...]

    @property
    def exponent(self) -> float:
        """The slope of log cost over log size: 1 is proportional, 0 is flat."""
        return float(np.polyfit(np.log(self.sizes), np.log(self.cost), 1)[0])


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What the caller decides: rounds per contender, threads, images of the attack and of the memory curve."""

    rounds: int = 9
    threads: int = 2
    batch: int = 128
    images: int = 500
    most_images: int = 10_000


def contest(contenders: Mapping[str, Contender], *, rounds: int, warmup: int = 2) -> dict[str, tuple[float, ...]]:
    """Seconds of every round of every contender; within a round they take turns, each time in another order."""
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    names = list(contenders)
    with _no_collector():
        for turn in range(warmup + rounds):
            first = turn % len(names)
            for name in names[first:] + names[:first]:
                took = _timed(contenders[name])
                if turn >= warmup:
                    seconds[name].append(took)
    return {name: tuple(times) for name, times in seconds.items()}


def _timed(run: Contender) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


@contextmanager
def _no_collector() -> Iterator[None]:
    """Python's garbage collector would strike one contender and not the other."""
    enabled = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def grow(suite: str, what: str, counted: str, work: Mapping[int, Contender], *, rounds: int) -> Growth:
    """The median seconds of `work` at each size; sizes take turns, too."""
    seconds = contest({str(size): run for size, run in work.items()}, rounds=rounds, warmup=1)
    medians = tuple(float(np.median(seconds[str(size)])) for size in work)
    return Growth(suite=suite, what=what, counted=counted, sizes=tuple(map(float, work)), cost=medians)
