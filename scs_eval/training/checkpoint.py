"""Saving and loading the state of a run."""

import io
from pathlib import Path
from typing import Any

import torch

from scs_eval.training.records import write_atomically

FILE = "checkpoint.pt"


def save_checkpoint(directory: Path, state: dict[str, Any]) -> None:
    """Replace the checkpoint by this state, which holds only tensors and plain values."""
    buffer = io.BytesIO()
    torch.save(state, buffer)
    write_atomically(directory / FILE, buffer.getvalue())


def load_checkpoint(directory: Path) -> dict[str, Any] | None:
    """The state last saved, on the CPU; None if there is none."""
    path = directory / FILE
    return torch.load(path, map_location="cpu", weights_only=True) if path.exists() else None
