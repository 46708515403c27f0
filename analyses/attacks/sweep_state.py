"""What a sweep knows so far, image by image, and the file that an interrupted one resumes from."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from scs_eval.analyses.core.checkpoint import Checkpoint

if TYPE_CHECKING:
    from scs_eval.analyses.attacks.eps_search import SearchResult

_ARRAYS = ("done", "min_eps", "eps_index", "eps_index_after", "is_adversarial", "attempts")


@dataclass(eq=False)
class SweepState:
    """The fields of `SearchResult` for all n images, and which are done (n,)."""

    file: Checkpoint | None
    done: np.ndarray
    min_eps: np.ndarray
    eps_index: np.ndarray
    eps_index_after: np.ndarray
    is_adversarial: np.ndarray
    attempts: np.ndarray
    images: Tensor

    @classmethod
    def begin(cls, path: Path | None, key: str, *, images: Tensor, shape: tuple[int, int]) -> "SweepState":
        """What the file holds, if it exists, else nothing done; shape: numbers of attacks and of ε."""
        n, (attacks, count) = len(images), shape
        integers = np.zeros(n, dtype=np.int64)
        new = cls(
            file=None if path is None else Checkpoint(path, key, own=True),
            done=np.zeros(n, dtype=bool),
            min_eps=np.zeros(n),
            eps_index=integers.copy(),
            eps_index_after=np.zeros((attacks, n), dtype=np.int64),
            is_adversarial=np.zeros((n, count), dtype=bool),
            attempts=integers.copy(),
            images=images.detach().clone(),
        )
        return new._resumed()

    def _resumed(self) -> "SweepState":
        if arrays := self.file.load() if self.file else {}:
            for name in _ARRAYS:
                setattr(self, name, arrays[name])
            self.images[torch.from_numpy(self._differ())] = torch.from_numpy(arrays["images"]).to(self.images)
        return self

    def put(self, rows: np.ndarray, search: "SearchResult") -> None:
        """Take over what was found for some images."""
        self.done[rows] = True
        self.min_eps[rows], self.eps_index[rows] = search.min_eps, search.eps_index
        self.attempts[rows] = search.attempts
        self.is_adversarial[rows] = search.is_adversarial
        self.eps_index_after[:, rows] = search.eps_index_after
        self.images[torch.from_numpy(rows)] = search.images

    def write(self) -> None:
        """Write the file, whole or not at all."""
        if self.file is not None:
            self.file.save({**{name: getattr(self, name) for name in _ARRAYS}, "images": self._changed()})

    def _changed(self) -> np.ndarray:
        """The images that differ from the clean ones: only they need be kept."""
        return self.images[torch.from_numpy(self._differ())].cpu().numpy()

    def _differ(self) -> np.ndarray:
        return self.done & (self.eps_index >= 0) & (self.eps_index < self.is_adversarial.shape[1])
