"""What a user sees while a model trains: a live bar on a terminal, otherwise one line per epoch."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

REFRESH_SECONDS = 0.5  # reading the loss makes a GPU wait for its queue, so not at every batch


class Reporter(Protocol):
    """Told about every batch and every epoch."""

    def batch(self, epoch: int, step: int, read: Callable[[], tuple[float, float]]) -> None:
        """`step` batches of the run are done; `read` fetches the epoch's loss and accuracy so far."""

    def epoch(self, line: str) -> None:
        """An epoch is complete."""


class SilentReporter:
    """For all processes but the first."""

    def batch(self, epoch: int, step: int, read: Callable[[], tuple[float, float]]) -> None:
        """Say nothing."""

    def epoch(self, line: str) -> None:
        """Say nothing."""


class LineReporter(SilentReporter):
    """For log files: one line per epoch."""

    def epoch(self, line: str) -> None:
        """Print the line at once, so that it can be followed."""
        print(line, flush=True)


class BarReporter:
    """For terminals: one bar over the whole run, finished epochs above it."""

    def __init__(self, progress: Progress, task: TaskID, *, batch_size: int) -> None:
        self.progress, self.task, self.batch_size = progress, task, batch_size
        self.time, self.batches = time.monotonic(), 0

    def batch(self, epoch: int, step: int, read: Callable[[], tuple[float, float]]) -> None:
        """Move the bar; now and then fetch the numbers."""
        self.progress.update(self.task, completed=step)
        self.batches += 1
        passed = time.monotonic() - self.time
        if passed < REFRESH_SECONDS:
            return
        loss, accuracy = read()
        speed = self.batches * self.batch_size / passed
        numbers = f"epoch {epoch}  loss {loss:.3f}  accuracy {accuracy:.1%}  {speed:,.0f} images/s"
        self.progress.update(self.task, numbers=numbers)
        self.time, self.batches = time.monotonic(), 0

    def epoch(self, line: str) -> None:
        """Print above the bar; the evaluation does not count as training time."""
        self.progress.console.print(line, highlight=False)
        self.time, self.batches = time.monotonic(), 0


@contextmanager
def report_progress(*, name: str, steps: int, step: int, batch_size: int, quiet: bool) -> Iterator[Reporter]:
    """The reporter that suits where the output goes; `step` of `steps` batches are done already."""
    console = Console()
    if quiet or not console.is_terminal:
        yield SilentReporter() if quiet else LineReporter()
        return
    console.print(f"{name}: {steps:,} batches of {batch_size}", highlight=False)  # beside the bar there is no room
    columns = (
        BarColumn(),
        TextColumn("{task.fields[numbers]}"),
        TimeRemainingColumn(elapsed_when_finished=True),
    )
    with Progress(*columns, console=console, refresh_per_second=4) as progress:
        task = progress.add_task(name, total=steps, completed=step, numbers="")
        yield BarReporter(progress, task, batch_size=batch_size)
