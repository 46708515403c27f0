"""Checkpoints of analyses: arrays in npz files, which the main process of several reads and writes for all."""

from collections.abc import Mapping
from typing import Any, BinaryIO

import numpy as np

from scs_eval.analyses.core.parallel import broadcast_from_main, is_main_process
from scs_eval.checkpoint import CheckpointFile


class Checkpoint(CheckpointFile):
    """Arrays by name."""

    def read(self) -> dict[str, np.ndarray]:
        """All arrays."""
        with np.load(self.path, allow_pickle=False) as stored:
            return dict(stored)

    def write(self, file: BinaryIO, content: dict[str, Any]) -> None:
        """As numpy writes them."""
        np.savez(file, allow_pickle=False, **content)

    def load(self) -> dict[str, np.ndarray]:
        """What is there; nothing if it is of other work, damaged or missing."""
        return broadcast_from_main(super().load)

    def save(self, content: Mapping[str, np.ndarray]) -> None:
        """Replace what is there, whole or not at all."""
        if is_main_process():
            super().save(content)

    def remove(self) -> None:
        """It is no longer needed."""
        if is_main_process():
            super().remove()
