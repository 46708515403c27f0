"""The output directory of a run: what is in it, whether it may be used, how files are replaced. Imports no torch."""

import io
import json
import re
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

from scs_eval.checkpoint import KEY, CheckpointFile
from scs_eval.errors import InputError
from scs_eval.files import locked, temporary_path, write_atomically

RUN, CHECKPOINT = "run.json", "checkpoint.pt"
EPOCH = re.compile(r"-epoch\d+(\.safetensors)$")
FILES = CHECKPOINT, RUN, "records.csv", "layers.csv", "norms.csv"


def files_of(weights: str, epochs: Iterable[int] = ()) -> list[str]:
    """The manifest of a run: every file that it may write; `epochs` are those that keep their weights."""
    return [*FILES, weights, *(epoch_file(weights, epoch) for epoch in epochs)]


def epoch_file(weights: str, epoch: int) -> str:
    """The weights after an epoch, beside the final ones."""
    return f"{weights.removesuffix('.safetensors')}-epoch{epoch}.safetensors"


class StateCheckpoint(CheckpointFile):
    """The state of a run, tensors and plain values, as torch writes it."""

    keys = frozenset({"epoch", "batch", "model", "optimizer", "schedule", "metrics"})

    def read(self) -> dict[str, Any]:
        """The state, on the CPU."""
        from scs_eval.models.loading.torch_file import read_torch

        if not self.path.exists():
            raise FileNotFoundError(self.path)
        state = read_torch(self.path)
        if not isinstance(state, dict) or not state.keys() >= self.keys:
            raise InputError(f"{self.path} is not the checkpoint of a training run; --overwrite begins again")
        return {KEY: self.key, **state}  # 0.1 wrote none: such a run is known by its run.json

    def write(self, file: BinaryIO, content: dict[str, Any]) -> None:
        """By way of memory: torch does not say when a disk is full."""
        import torch

        buffer = io.BytesIO()
        torch.save(content, buffer)
        file.write(buffer.getvalue())


class RunDirectory:
    """The files of the run of one model."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    @property
    def owned(self) -> set[str]:
        """The files that a run's own manifest names: only they are ours, whatever else is called the same."""
        try:
            run = json.loads((self.directory / RUN).read_text(encoding="utf-8"))
            if "recipe" not in run:
                return set()  # an analysis has a run.json too
            named = run.get("files") or files_of(f"{run['model']}.safetensors")  # 0.1 had no manifests
            return {name for name in named if name == Path(name).name}
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return set()

    @property
    def finished(self) -> bool:
        """Whether final weights are there: they are the last thing a run writes."""
        owned = self.owned
        final = (
            name for name in owned if name.endswith(".safetensors") and EPOCH.sub(r"\1", name) not in owned - {name}
        )
        return any((self.directory / name).exists() for name in final)

    @property
    def begun(self) -> bool:
        """Whether a run started here."""
        return bool(self.owned)

    @contextmanager
    def held(self, *, weights: str, resume: bool, overwrite: bool) -> Iterator[None]:
        """Keep the directory for this process and its files, or say why it cannot be used."""
        missing = [path for path in (self.directory, *self.directory.parents) if not path.exists()]
        self._try_writing()
        busy = f"another process is training in {self.directory}; choose another --out, or wait"
        try:
            with locked(self.directory, busy=busy):
                self._refuse_foreign(files_of(weights))
                if not overwrite:
                    self._refuse_occupied(resume=resume)
                yield
        finally:
            for path in missing:  # a request that is refused leaves nothing behind; what is not empty stays
                with suppress(OSError):
                    path.rmdir()

    def check_space(self, *, needed: int) -> None:
        """Raise if the disk cannot hold the run."""
        free = shutil.disk_usage(self.directory).free
        if free < needed:
            raise InputError(f"{self.directory} needs {needed / 1e6:,.0f} MB free, there are {free / 1e6:,.0f} MB")

    def clear(self) -> None:
        """Remove the files of an earlier run, and no others."""
        for name in sorted(self.owned, key=lambda name: name == RUN):  # the manifest last
            (self.directory / name).unlink(missing_ok=True)

    def _refuse_foreign(self, files: list[str]) -> None:
        """Raise if the run would write over a file that no run wrote."""
        for name in files:
            if name not in self.owned and (self.directory / name).exists():
                raise InputError(f"{self.directory} holds {name}, which no run wrote there; choose another --out")

    def _refuse_occupied(self, *, resume: bool) -> None:
        if self.finished:
            raise InputError(f"{self.directory} holds a finished run; choose another --out, or --overwrite")
        if not self.begun:
            return
        if not resume:
            raise InputError(f"{self.directory} holds an unfinished run; --resume goes on, --overwrite begins again")
        if read_run(self.directory).get("finished") and not (self.directory / CHECKPOINT).exists():
            raise InputError(f"{self.directory} holds a finished run but not its weights; --overwrite trains anew")

    def _try_writing(self) -> None:
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            probe = temporary_path(self.directory / "probe")  # which the next run removes after a kill
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


def write_json(path: Path, content: dict[str, Any]) -> None:
    """A readable JSON file, replaced whole."""
    write_atomically(path, (json.dumps(content, indent=2) + "\n").encode())
