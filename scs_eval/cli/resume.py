"""Work that an interrupted command leaves behind, for the same command to go on from."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from scs_eval.cli.output import say
from scs_eval.cli.request import Request


@contextmanager
def resumable(request: Request) -> Iterator[Path]:
    """A hidden folder beside the output, gone once all is done; after Ctrl-C, say how to go on."""
    folder = request.out.with_name(f".{request.out.name}.partial")
    try:
        yield folder
    except KeyboardInterrupt:
        if folder.is_dir() and any(folder.iterdir()):
            say(f"What is done so far is kept in {folder}; the same command goes on from there.", err=True)
        raise
    if request.only is None:
        shutil.rmtree(folder, ignore_errors=True)
