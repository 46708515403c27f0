"""Work that goes on after an interruption: one kind of file for all of it, whole or not at all. No torch here."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO
from zipfile import BadZipFile

from scs_eval.errors import InputError
from scs_eval.files import replacing_file

KEY = "key"


class CheckpointFile:
    """What a run has done so far, or its finished result, kept with the key of the work that it belongs to.

    own: whether the file is this work's alone, as one that the user named: then a file of other work, or a damaged
    one, is an error; else it counts as missing and is replaced. Formats differ in `read` and `write`.
    """

    def __init__(self, path: str | Path, key: str, *, own: bool = False) -> None:
        self.path, self.key, self.own = Path(path), key, own

    def read(self) -> dict[str, Any]:
        """Everything in the file, without unpickling."""
        raise NotImplementedError

    def write(self, file: BinaryIO, content: dict[str, Any]) -> None:
        """Put everything into an open file."""
        raise NotImplementedError

    def load(self) -> dict[str, Any]:
        """What is there; nothing if it is of other work, damaged or missing."""
        try:
            content = self.read()
            key = str(content.pop(KEY))
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, EOFError, KeyError, TypeError, BadZipFile) as error:
            return self._refused(f"is damaged ({type(error).__name__}); delete it", error)
        if key != self.key:
            return self._refused("belongs to another model, other images or settings; delete it or name another file")
        return content

    def _refused(self, why: str, cause: Exception | None = None) -> dict[str, Any]:
        if self.own:
            raise InputError(f"the checkpoint {self.path} {why}") from cause
        return {}

    def save(self, content: Mapping[str, Any]) -> None:
        """Replace what is there, whole or not at all."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with replacing_file(self.path) as beside, beside.open("wb") as file:
            self.write(file, {KEY: self.key, **content})

    def remove(self) -> None:
        """It is no longer needed."""
        self.path.unlink(missing_ok=True)
