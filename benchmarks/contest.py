"""Time contenders fairly: warm up, take turns, report medians and ratios, and say under which conditions."""

import csv
import platform
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch

Contender = Callable[[], object]


def contest(contenders: dict[str, Contender], *, rounds: int = 15, warmup: int = 3) -> dict[str, list[float]]:
    """Seconds of every round of every contender; within a round they take turns, so a busy moment hits all alike."""
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    for turn in range(warmup + rounds):
        for name, run in contenders.items():
            start = time.perf_counter()
            run()
            if turn >= warmup:
                seconds[name].append(time.perf_counter() - start)
    return seconds


def rows(task: str, seconds: dict[str, list[float]], reference: str) -> list[dict[str, object]]:
    """One row per contender: its median, and how its rounds compare with the reference's of the same round."""
    table = []
    for name, times in seconds.items():
        ratios = [a / b for a, b in zip(seconds[reference], times, strict=True)]
        low, middle, high = statistics.quantiles(ratios, n=4)
        table.append(
            {
                "task": task,
                "contender": name,
                "median_ms": round(1000 * statistics.median(times), 2),
                "speedup": round(middle, 2),
                "quartiles": f"{low:.2f}-{high:.2f}",
                "against": reference,
            }
        )
    return table


def conditions(rounds: int) -> dict[str, object]:
    """What a timing depends on."""
    return {
        "cpu": platform.processor() or platform.machine(),
        "threads": torch.get_num_threads(),
        "torch": torch.__version__.split("+")[0],
        "python": platform.python_version(),
        "rounds": rounds,
    }


def write(path: Path, table: list[dict[str, object]], about: dict[str, object]) -> None:
    """The rows as CSV, conditions repeated in each."""
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, [*table[0], *about])
        writer.writeheader()
        writer.writerows({**row, **about} for row in table)
