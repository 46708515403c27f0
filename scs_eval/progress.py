"""How work tells what it has done, and a bar on stderr with the time left, if somebody is watching."""

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from types import TracebackType
from typing import Any

Progress = Callable[[int], None]  # called with how many more are done; what is counted, the function says
WHOLE = 100  # per cent


class Advance:
    """Called with how much more is done, and optionally the name of what is being worked on."""

    def __init__(self, bar: Any = None) -> None:
        self._bar = bar

    def __call__(self, count: int, item: object = None) -> None:
        """Move the bar on."""
        if self._bar is not None:
            self._bar.update(count, item)

    def resume(self, count: int, seconds: float) -> None:
        """So much was done before, in so many seconds: the bar goes on as if it had seen that, and so does its pace."""
        if self._bar is not None:
            self._bar.start -= seconds
            self._bar.update(count)


@contextmanager
def progress(label: str, length: int) -> Iterator[Advance]:
    """Something to call with how much more is done."""
    if not sys.stderr.isatty():
        yield Advance()
        return
    import click

    from scs_eval.errors import printable

    bar = click.progressbar(
        length=length,
        label=printable(label),
        file=sys.stderr,
        show_pos=True,
        item_show_func=lambda item: item and printable(str(item)),
    )
    with bar:
        bar.render_progress()
        yield Advance(bar)


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
