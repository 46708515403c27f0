"""How work tells what it has done: a bar with the time left on a terminal, elsewhere a line now and then."""

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from types import TracebackType
from typing import TextIO

Progress = Callable[[int], None]  # called with how many more are done; what is counted, the function says
WHOLE = 100  # per cent
# Seconds: a log should show soon that work goes on, and not be full of it. A second less than the five and the thirty
# that are promised, for a machine may be busy.
FIRST_LINE, EVERY_LINE, LOOK = 3.0, 28.0, 0.5


class Advance:
    """Called with how much more is done, and optionally the name of what is being worked on. This one is silent."""

    def __call__(self, count: int, item: object = None) -> None:
        """So much more is done."""

    def resume(self, count: int) -> None:
        """So much was done before, by a run that was interrupted."""


@contextmanager
def progress(label: str, length: int) -> Iterator[Advance]:
    """Something to call with how much more is done of `length`; it shows on stderr."""
    from scs_eval.errors import printable

    with _bar(printable(label), length) if sys.stderr.isatty() else _lines(printable(label), length) as advance:
        yield advance


@contextmanager
def _bar(label: str, length: int) -> Iterator[Advance]:
    from rich.console import Console
    from rich.markup import escape
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as RichProgress

    from scs_eval.errors import printable

    columns = (
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(),
        TimeRemainingColumn(elapsed_when_finished=True), TextColumn("{task.fields[item]}"),
    )  # fmt: skip
    printed = sys.stdout.isatty()  # then what is printed stands above the bar; a pipe gets it as it is
    with RichProgress(*columns, console=Console(file=sys.stderr), redirect_stdout=printed) as bar:
        task = bar.add_task(escape(label), total=length, item="")

        class Bar(Advance):
            def __call__(self, count: int, item: object = None) -> None:
                if item is not None:
                    bar.update(task, item=escape(printable(str(item))))
                bar.advance(task, count)

            def resume(self, count: int) -> None:
                done = bar.tasks[task].completed
                bar.reset(task, completed=int(done) + count)  # the time left is at the pace of what follows

        yield Bar()


class _Lines(Advance):
    """Counts; `describe` is the line for a log."""

    def __init__(self, label: str, length: int) -> None:
        self.label, self.length, self.done, self.resumed, self.start = label, length, 0, 0, time.monotonic()

    def __call__(self, count: int, item: object = None) -> None:
        self.done += count

    def resume(self, count: int) -> None:
        self.done, self.resumed, self.start = self.done + count, self.done + count, time.monotonic()

    def describe(self) -> str:
        """How much is done, and how long the rest takes at the pace so far."""
        passed, new = time.monotonic() - self.start, self.done - self.resumed
        left = f", about {passed / new * (self.length - self.done):,.0f} s left" if new else ""
        return f"{self.label}: {self.done:,} of {self.length:,}{left}"


class _Log:
    """Writes what is being done, by a thread of its own, since a single step may take longer than a reader waits."""

    open: "_Log | None" = None  # the one of the command that runs, if any

    def __init__(self, describe: Callable[[], str], file: TextIO) -> None:
        self.file, self.over = file, threading.Event()
        self.follow(describe)
        self.thread = threading.Thread(target=self._tell, daemon=True)
        self.thread.start()

    def follow(self, describe: Callable[[], str]) -> None:
        """From now on tell of this, soon at first."""
        self.describe, self.due = describe, time.monotonic() + FIRST_LINE

    def close(self) -> None:
        """Write no more."""
        self.over.set()
        self.thread.join()

    def _tell(self) -> None:
        while not self.over.wait(min(LOOK, FIRST_LINE)):
            if time.monotonic() < self.due:
                continue
            self.due = time.monotonic() + EVERY_LINE
            try:
                print(self.describe(), file=self.file, flush=True)
            except (OSError, ValueError):  # closed: nobody reads
                return


@contextmanager
def log_lines(label: str) -> Iterator[None]:
    """Off a terminal, a line now and then also while nothing is counted: files are listed, figures drawn."""
    if sys.stderr.isatty() or os.environ.get("RANK", "0") != "0":  # of torchrun's processes the first one talks
        yield
        return
    start = time.monotonic()
    with _opened(lambda: f"{label}: working for {time.monotonic() - start:.0f} s") as _Log.open:
        try:
            yield
        finally:
            _Log.open = None


@contextmanager
def _opened(describe: Callable[[], str]) -> Iterator[_Log]:
    log = _Log(describe, sys.stderr)
    try:
        yield log
    finally:
        log.close()


@contextmanager
def _lines(label: str, length: int) -> Iterator[Advance]:
    """Counts, in the log of the command if it has one."""
    lines = _Lines(label, length)
    if (log := _Log.open) is None:
        with _opened(lines.describe):
            yield lines
        return
    before = log.describe
    log.follow(lines.describe)
    try:
        yield lines
    finally:
        log.follow(before)


class CostProgress:
    """A bar in per cent of the expected cost of steps that cost very different amounts of time.

    It starts when the whole cost is known; `finished` is how many steps were done by an earlier run.
    """

    def __init__(self, label: str) -> None:
        self.finished = 0
        self._label, self._cost, self._done = label, 0.0, 0.0
        self._open = ExitStack()
        self._update: Advance | None = None

    def __enter__(self) -> "CostProgress":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._open.__exit__(kind, error, trace)

    def begin(self, cost: float, finished: int) -> None:
        """The steps to do cost so much; so many others are finished already."""
        if finished:
            print(f"{finished} results are there already", file=sys.stderr)
        self._cost, self.finished = cost, finished
        self._update = self._open.enter_context(progress(self._label, WHOLE))

    def advance(self, cost: float, what: str) -> None:
        """So much more is done, and this is being worked on."""
        before, self._done = self._shown(), self._done + cost
        if self._update is not None:
            self._update(self._shown() - before, what)

    def _shown(self) -> int:
        """In whole per cent; costs are sums of floats, so the last one may be short by a rounding."""
        return int(WHOLE * self._done / self._cost + 1e-6) if self._cost else WHOLE
