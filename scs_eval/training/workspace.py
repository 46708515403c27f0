"""The output directory of a run: what is in it, whether it may be used, and whether it can be written."""

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from scs_eval.errors import InputError
from scs_eval.training.records import write_atomically

FILES = "checkpoint.pt", "run.json", "records.csv", "layers.csv", "norms.csv"


class Workspace:
    """The files of the run of one model."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    @property
    def finished(self) -> bool:
        """Whether final weights are there: they are the last thing a run writes."""
        return any(self.directory.glob("*.safetensors"))

    @property
    def begun(self) -> bool:
        """Whether a run started here."""
        return (self.directory / "run.json").exists()

    @contextmanager
    def held(self, *, resume: bool, overwrite: bool) -> Iterator[None]:
        """Keep the directory for this process, or say why it cannot be used."""
        self._try_writing()
        with _locked(self.directory):
            if not overwrite:
                self._refuse_occupied(resume=resume)
            yield

    def check_space(self, *, needed: int) -> None:
        """Raise if the disk cannot hold the run."""
        free = shutil.disk_usage(self.directory).free
        if free < needed:
            raise InputError(f"{self.directory} needs {needed / 1e6:,.0f} MB free, there are {free / 1e6:,.0f} MB")

    def clear(self) -> None:
        """Remove the files of an earlier run, and no others."""
        for path in (*(self.directory / name for name in FILES), *self.directory.glob("*.safetensors")):
            path.unlink(missing_ok=True)

    def _refuse_occupied(self, *, resume: bool) -> None:
        if self.finished:
            raise InputError(f"{self.directory} holds a finished run; choose another --out, or --overwrite")
        if not self.begun:
            return
        if not resume:
            raise InputError(f"{self.directory} holds an unfinished run; --resume goes on, --overwrite begins again")
        if read_run(self.directory).get("finished") and not (self.directory / "checkpoint.pt").exists():
            raise InputError(f"{self.directory} holds a finished run but not its weights; --overwrite trains anew")

    def _try_writing(self) -> None:
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            probe = self.directory / f"probe-{os.getpid()}"
            write_atomically(probe, b"x")
            probe.unlink()
        except OSError as error:
            raise InputError(f"{self.directory} cannot be written: {error.strerror}; choose another --out") from error


@contextmanager
def _locked(directory: Path) -> Iterator[None]:
    """Hold the directory's lock, which ends with the process and those it started; where there are no locks, go on."""
    try:
        import fcntl
    except ImportError:  # Windows
        yield
        return
    handle = os.open(directory, os.O_RDONLY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise InputError(f"another process is training in {directory}; choose another --out, or wait") from error
        except OSError:  # a file system without locks
            pass
        yield
    finally:
        os.close(handle)


def read_run(directory: Path) -> dict[str, Any]:
    """What `run.json` recorded about the run in a directory."""
    try:
        return json.loads((directory / "run.json").read_text())
    except (OSError, ValueError) as error:
        raise InputError(f"{directory} holds no readable run.json; begin again with --overwrite") from error
