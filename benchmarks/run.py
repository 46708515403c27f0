"""Run the suites one after another under the same conditions."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import Any

import torch

from scs_eval.benchmarks.conditions import conditions
from scs_eval.benchmarks.contest import Growth, Say, Settings, Target
from scs_eval.benchmarks.result import BenchResult, progress_line

SUITES = (
    "layers", "epochs", "loading", "attacks", "autoattack", "strength", "faithfulness", "explanations", "together",
    "startup",
)  # fmt: skip


def bench(
    suites: Sequence[str] = SUITES,
    *,
    settings: Settings | None = None,
    say: Say = print,
    tell: Say = lambda line: None,
    growth: bool = True,
) -> BenchResult:
    """Measure the targets of each suite, and how its costs grow.

    Interrupted, or after a suite that failed, the result has what was measured. `say` hears what is skipped, and why,
    `tell` every line of the table as soon as it is known.
    """
    settings = settings or Settings()
    about, skipped = conditions(settings), []

    def hear(line: str) -> None:
        skipped.append(line)
        say(line)

    measurements: list[Target | Growth] = []
    failed: list[str] = []
    with _threads(settings.threads):
        for name in suites:
            try:
                for measured in _measured(name, settings, hear, growth):
                    measurements.append(measured)
                    tell(progress_line(measured))
            except KeyboardInterrupt:
                hear("interrupted: what follows was not measured")
                break
            except Exception as error:
                failed.append(name)
                hear(f"{name} failed, and the rest of it was not measured: {error}")
    targets = [measured for measured in measurements if isinstance(measured, Target)]
    growths = [measured for measured in measurements if isinstance(measured, Growth)]
    label = "+".join(suites)
    return BenchResult.of(targets, growths, skipped, failed=tuple(failed), label=label, settings=about)


def _measured(name: str, settings: Settings, hear: Say, growth: bool) -> Iterator[Target | Growth]:
    suite: Any = import_module(f"scs_eval.benchmarks.{name}")
    yield from suite.targets(settings, hear)
    if growth:
        yield from suite.growths(settings, hear)


@contextmanager
def _threads(count: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
