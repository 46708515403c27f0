"""The output directory of a run: what is in it, whether it may be used, and whether it can be written."""

import json
import shutil
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

    def prepare(self, *, resume: bool, overwrite: bool) -> None:
        """Make the directory ready, or say why it cannot be used."""
        if overwrite:
            self._clear()
        elif self.finished:
            raise InputError(f"{self.directory} holds a finished run; choose another --out, or --overwrite")
        elif self.begun and not resume:
            raise InputError(f"{self.directory} holds an unfinished run; --resume goes on, --overwrite begins again")
        self._try_writing()

    def check_space(self, *, needed: int) -> None:
        """Raise if the disk cannot hold the run."""
        free = shutil.disk_usage(self.directory).free
        if free < needed:
            raise InputError(f"{self.directory} needs {needed / 1e6:,.0f} MB free, there are {free / 1e6:,.0f} MB")

    def _clear(self) -> None:
        for path in (*(self.directory / name for name in FILES), *self.directory.glob("*.safetensors")):
            path.unlink(missing_ok=True)

    def _try_writing(self) -> None:
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            probe = self.directory / "probe"
            write_atomically(probe, b"x")
            probe.unlink()
        except OSError as error:
            raise InputError(f"{self.directory} cannot be written: {error.strerror}; choose another --out") from error


def read_run(directory: Path) -> dict[str, Any]:
    """What `run.json` recorded about the run in a directory."""
    try:
        return json.loads((directory / "run.json").read_text())
    except (OSError, ValueError) as error:
        raise InputError(f"{directory} holds no readable run.json; begin again with --overwrite") from error
