"""A bar on stderr, with the time left, if somebody is watching."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import click


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
    bar = click.progressbar(
        length=length, label=label, file=sys.stderr, show_pos=True, item_show_func=lambda item: item and str(item)
    )
    with bar:
        bar.render_progress()
        yield Advance(bar)
