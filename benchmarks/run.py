"""Run the suites one after another under the same conditions."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import Any

import torch

from scs_eval.benchmarks.conditions import conditions
from scs_eval.benchmarks.contest import Growth, Say, Settings, Target
from scs_eval.benchmarks.result import BenchResult

SUITES = ("layers", "attacks", "explanations", "startup")


def bench(
    suites: Sequence[str] = SUITES, *, settings: Settings | None = None, say: Say = print, growth: bool = True
) -> BenchResult:
    """Measure the targets of each suite, and how its costs grow. `say` hears what is skipped, and why."""
    settings = settings or Settings()
    about, skipped = conditions(settings), []

    def hear(line: str) -> None:
        skipped.append(line)
        say(line)

    targets: list[Target] = []
    growths: list[Growth] = []
    with _threads(settings.threads):
        for name in suites:
            suite: Any = import_module(f"scs_eval.benchmarks.{name}")
            targets += suite.targets(settings, hear)
            growths += suite.growths(settings, hear) if growth else []
    return BenchResult.of(targets, growths, skipped, label="+".join(suites), settings=about)


@contextmanager
def _threads(count: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
