"""Arrays in a file, valid only for the very same work: what an interrupted run has done, or a finished result."""

from collections.abc import Mapping
from pathlib import Path
from zipfile import BadZipFile

import numpy as np

from scs_eval.analyses.core.parallel import broadcast_from_main, is_main_process
from scs_eval.errors import InputError
from scs_eval.files import replacing_file

KEY = "key"


class Checkpoint:
    """Arrays in an npz file without pickle, kept with the key of the work that they belong to.

    own: whether the file is this work's alone, as one that the user named: then a file of other work, or a damaged
    one, is an error; else it counts as missing and is replaced.
    """

    def __init__(self, path: str | Path, key: str, *, own: bool = False) -> None:
        self.path, self.key, self.own = Path(path), key, own

    def load(self) -> dict[str, np.ndarray]:
        """What is there; nothing if it is of other work, damaged or missing."""
        return broadcast_from_main(self._load)

    def _load(self) -> dict[str, np.ndarray]:
        try:
            with np.load(self.path, allow_pickle=False) as stored:
                arrays = dict(stored)
            key = str(arrays.pop(KEY))
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, EOFError, KeyError, TypeError, BadZipFile) as error:
            return self._refused(f"is damaged ({type(error).__name__}); delete it", error)
        if key != self.key:
            return self._refused("belongs to another model, other images or settings; delete it or name another file")
        return arrays

    def _refused(self, why: str, cause: Exception | None = None) -> dict[str, np.ndarray]:
        if self.own:
            raise InputError(f"the checkpoint {self.path} {why}") from cause
        return {}

    def save(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Replace what is there, whole or not at all."""
        if not is_main_process():
            return
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with replacing_file(self.path) as beside, beside.open("wb") as file:
            np.savez(file, allow_pickle=False, **{KEY: np.array(self.key)}, **arrays)

    def remove(self) -> None:
        """It is no longer needed."""
        if is_main_process():
            self.path.unlink(missing_ok=True)
