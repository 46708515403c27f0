"""A bar on stderr, with the time left, if somebody is watching."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import click

Advance = Callable[..., None]


@contextmanager
def progress(label: str, length: int) -> Iterator[Advance]:
    """Something to call with how much more is done, and optionally the name of what is being worked on."""
    if not sys.stderr.isatty():
        yield lambda count, item=None: None
        return
    bar = click.progressbar(
        length=length, label=label, file=sys.stderr, show_pos=True, item_show_func=lambda item: item and str(item)
    )
    with bar:
        bar.render_progress()
        yield bar.update
