"""What a sweep knows so far, image by image, and the file that an interrupted one resumes from."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from scs_eval.analyses.core.checkpoint import Checkpoint

if TYPE_CHECKING:
    from scs_eval.analyses.attacks.eps_search import EpsSearchResult

_ARRAYS = ("done", "min_eps", "eps_index", "eps_index_after", "is_adversarial", "attempts")
_SUMMARY = "summary/"


@dataclass(eq=False)
class SweepState:
    """The fields of `EpsSearchResult` for all n images, and which are done (n,).

    keep: which adversarial images to keep, by min_eps (n,), all of them if None. images: those that are kept, by
    position. summaries: name → (n,), numbers about adversarial images.
    """

    file: Checkpoint | None
    keep: Callable[[np.ndarray], np.ndarray] | None
    done: np.ndarray
    min_eps: np.ndarray
    eps_index: np.ndarray
    eps_index_after: np.ndarray
    is_adversarial: np.ndarray
    attempts: np.ndarray
    images: dict[int, Tensor] = field(default_factory=dict)
    summaries: dict[str, np.ndarray] = field(default_factory=dict)

    @classmethod
    def begin(
        cls,
        path: Path | None,
        key: str,
        *,
        n: int,
        shape: tuple[int, int],
        keep: Callable[[np.ndarray], np.ndarray] | None = None,
    ) -> "SweepState":
        """What the file holds, if it exists, else nothing done; shape: numbers of attacks and of ε."""
        attacks, count = shape
        integers = np.zeros(n, dtype=np.int64)
        new = cls(
            file=None if path is None else Checkpoint(path, key, own=True),
            keep=keep,
            done=np.zeros(n, dtype=bool),
            min_eps=np.zeros(n),
            eps_index=integers.copy(),
            eps_index_after=np.zeros((attacks, n), dtype=np.int64),
            is_adversarial=np.zeros((n, count), dtype=bool),
            attempts=integers.copy(),
        )
        return new._resumed()

    def _resumed(self) -> "SweepState":
        if arrays := self.file.load() if self.file else {}:
            for name in _ARRAYS:
                setattr(self, name, arrays[name])
            images = torch.from_numpy(arrays["images"])
            self.images = dict(zip(arrays["positions"].tolist(), images, strict=True))
            names = [name for name in arrays if name.startswith(_SUMMARY)]
            self.summaries = {name.removeprefix(_SUMMARY): arrays[name] for name in names}
        return self

    def put(self, rows: np.ndarray, search: "EpsSearchResult", summary: dict[str, np.ndarray]) -> None:
        """Take over what was found for some images."""
        self.done[rows] = True
        self.min_eps[rows], self.eps_index[rows] = search.min_eps, search.eps_index
        self.attempts[rows] = search.attempts
        self.is_adversarial[rows] = search.is_adversarial
        self.eps_index_after[:, rows] = search.eps_index_after
        for name, values in summary.items():
            self.summaries.setdefault(name, np.zeros(len(self.done), dtype=values.dtype))[rows] = values

    @property
    def positions(self) -> np.ndarray:
        """(k,) whose adversarial images are kept, as far as they are known; in the order in which they are wanted."""
        if self.keep is None:
            return np.flatnonzero(self.done)
        return self.keep(np.where(self.done, self.min_eps, np.nan))

    def newly_wanted(self) -> list[int]:
        """Positions whose images are wanted and not there yet."""
        return [row for row in self.positions.tolist() if row not in self.images]

    def keep_images(self, new: dict[int, Tensor]) -> None:
        """Take over some images, and drop those that are no longer wanted."""
        self.images |= new
        if self.keep is not None:
            self.images = {row: self.images[row] for row in self.positions.tolist()}

    def kept_images(self) -> Tensor:
        """(k, 3, H, W), in the order of `positions`."""
        images = [self.images[row] for row in self.positions.tolist()]
        return torch.stack(images) if images else torch.empty(0, 3, 1, 1)

    def write(self) -> None:
        """Write the file, whole or not at all."""
        if self.file is not None:
            own = {f"{_SUMMARY}{name}": values for name, values in self.summaries.items()}
            images = {"positions": np.array(list(self.images), dtype=np.int64), "images": self._stacked()}
            self.file.save({**{name: getattr(self, name) for name in _ARRAYS}, **own, **images})

    def _stacked(self) -> np.ndarray:
        images = list(self.images.values())
        return torch.stack(images).numpy() if images else np.empty((0, 3, 1, 1), dtype=np.float32)
