"""Progress over steps that cost very different amounts of time."""

from contextlib import ExitStack
from types import TracebackType

import click

from scs_eval.cli.progress import Advance, progress

WHOLE = 100


class CostBar:
    """A bar in per cent of the expected cost of all steps; it starts when that is known, and says what is done."""

    def __init__(self, label: str) -> None:
        self._label, self._cost, self._done = label, 0.0, 0.0
        self._open = ExitStack()
        self._update: Advance | None = None

    def __enter__(self) -> "CostBar":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._open.__exit__(kind, error, trace)

    def begin(self, cost: float, finished: int) -> None:
        """The steps to do cost so much; so many others are finished already."""
        if finished:
            click.echo(f"{finished} results are there already", err=True)
        self._cost = cost
        self._update = self._open.enter_context(progress(self._label, WHOLE))

    def advance(self, cost: float, what: str) -> None:
        """So much more is done, and this is being worked on."""
        before, self._done = self._shown(), self._done + cost
        if self._update is not None:
            self._update(self._shown() - before, what)

    def _shown(self) -> int:
        """In whole per cent; costs are sums of floats, so the last one may be short by a rounding."""
        return int(WHOLE * self._done / self._cost + 1e-6) if self._cost else WHOLE
