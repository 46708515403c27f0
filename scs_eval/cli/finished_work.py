"""Finished work of commands that take long: kept, found again, and mentioned when they are interrupted."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from scs_eval.cli.output import say

STORE = ".scs-eval-finished"  # a folder beside those of the results


@contextmanager
def keeping(folder: Path, *, afresh: bool) -> Iterator[Any]:
    """The store of finished work; after Ctrl-C, a line that says so."""
    from scs_eval.analyses.core.cache import ResultCache

    try:
        yield ResultCache(folder, read=not afresh)
    except KeyboardInterrupt:
        if folder.is_dir() and any(folder.iterdir()):
            say(f"What is finished is kept in {folder}; the same command goes on from there.", err=True)
        raise
