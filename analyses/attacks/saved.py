"""What a sweep knows so far, image by image, and the file that an interrupted one resumes from."""

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from zipfile import BadZipFile

import numpy as np
import torch
from torch import Tensor, nn

from scs_eval.analyses.shards import from_first, leads
from scs_eval.errors import InputError

if TYPE_CHECKING:
    from scs_eval.analyses.attacks.search import Found

_ARRAYS = ("done", "place", "place_after", "broken", "attempts")


@dataclass(eq=False)
class Saved:
    """The fields of `Found` for all n images, and which are done (n,)."""

    path: Path | None
    key: str
    done: np.ndarray
    place: np.ndarray
    place_after: np.ndarray
    broken: np.ndarray
    attempts: np.ndarray
    images: Tensor

    @classmethod
    def begin(cls, path: Path | None, key: str, *, images: Tensor, shape: tuple[int, int]) -> "Saved":
        """What the file holds, if it exists, else nothing done; shape: numbers of attacks and of ε."""
        n, (attacks, count) = len(images), shape
        integers = np.zeros(n, dtype=np.int64)
        new = cls(
            path=path,
            key=key,
            done=np.zeros(n, dtype=bool),
            place=integers.copy(),
            place_after=np.zeros((attacks, n), dtype=np.int64),
            broken=np.zeros((n, count), dtype=bool),
            attempts=integers.copy(),
            images=images.detach().clone(),
        )
        return from_first(new._resumed)

    def _resumed(self) -> "Saved":
        if self.path is not None and self.path.exists():
            self._read(self.path)
        return self

    def put(self, rows: np.ndarray, search: "Found") -> None:
        """Take over what was found for some images."""
        self.done[rows] = True
        self.place[rows], self.attempts[rows], self.broken[rows] = search.place, search.attempts, search.broken
        self.place_after[:, rows] = search.place_after
        self.images[torch.from_numpy(rows)] = search.images

    def write(self) -> None:
        """Write the file, whole or not at all."""
        if self.path is None or not leads():
            return
        self.path.parent.mkdir(parents=True, exist_ok=True)
        beside = self.path.with_name(self.path.name + ".part")
        with beside.open("wb") as file:
            arrays = {name: getattr(self, name) for name in _ARRAYS}
            np.savez(file, allow_pickle=False, key=np.array(self.key), images=self._changed(), **arrays)
        beside.replace(self.path)

    def _changed(self) -> np.ndarray:
        """The images that differ from the clean ones: only they need be kept."""
        return self.images[torch.from_numpy(self._differ())].cpu().numpy()

    def _differ(self) -> np.ndarray:
        return self.done & (self.place >= 0) & (self.place < self.broken.shape[1])

    def _read(self, path: Path) -> None:
        try:
            with np.load(path, allow_pickle=False) as stored:
                key, arrays = str(stored["key"]), {name: stored[name] for name in (*_ARRAYS, "images")}
        except (OSError, ValueError, KeyError, BadZipFile, EOFError) as error:
            raise InputError(f"the checkpoint {path} is damaged ({type(error).__name__}); delete it") from error
        if key != self.key:
            raise InputError(
                f"the checkpoint {path} belongs to a sweep of another model, other images or settings; "
                "delete it or name another file"
            )
        for name in _ARRAYS:
            setattr(self, name, arrays[name])
        self.images[torch.from_numpy(self._differ())] = torch.from_numpy(arrays["images"]).to(self.images)


def fingerprint(model: nn.Module, tensors: tuple[Tensor, ...], settings: object) -> str:
    """A digest of everything that a sweep's result depends on: weights and structure, images, labels, settings."""
    digest = hashlib.sha256(f"{model!r}\n{settings!r}".encode())
    for name, value in (*model.state_dict().items(), *((str(i), tensor) for i, tensor in enumerate(tensors))):
        array = value.detach().cpu().contiguous()
        digest.update(f"{name} {array.dtype} {tuple(array.shape)}".encode())
        digest.update(array.view(-1).view(torch.uint8).numpy().tobytes() if array.numel() else b"")
    return digest.hexdigest()
