"""What an interrupted run has done so far: one file of arrays, valid only for the very same work."""

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
import torch
from torch import Tensor, nn

from scs_eval.analyses.shards import from_first, leads

KEY = "key"


class Partial:
    """Arrays in an npz file without pickle, kept with the key of the work that they belong to."""

    def __init__(self, path: str | Path, key: str) -> None:
        self.path, self.key = Path(path), key

    def load(self) -> dict[str, np.ndarray]:
        """What is there; nothing if it is of other work, damaged or missing."""
        return from_first(self._load)

    def _load(self) -> dict[str, np.ndarray]:
        try:
            with np.load(self.path, allow_pickle=False) as stored:
                arrays = dict(stored)
        except (OSError, ValueError, EOFError, KeyError, BadZipFile):
            return {}
        return arrays if str(arrays.pop(KEY, "")) == self.key else {}

    def save(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Replace what is there, whole or not at all."""
        if not leads():
            return
        self.path.parent.mkdir(parents=True, exist_ok=True)
        new = self.path.with_name(f".{self.path.name}.{os.getpid()}.new")
        with new.open("wb") as file:
            np.savez(file, allow_pickle=False, **{KEY: np.array(self.key)}, **arrays)
        new.replace(self.path)


def work_key(model: nn.Module, images: Tensor, settings: Mapping[str, Any]) -> str:
    """A hash of everything that an outcome depends on: weights, images and settings as JSON values."""
    digest = hashlib.sha256(json.dumps(settings, sort_keys=True, default=str).encode())
    for name, tensor in model.state_dict().items():
        digest.update(name.encode())
        digest.update(_bytes(tensor))
    for image in images:  # one by one: a pool of images may be large, and is not to be there twice
        digest.update(_bytes(image))
    return digest.hexdigest()


def _bytes(tensor: Tensor) -> memoryview:
    """What a tensor holds, in place if it lies there in one piece."""
    return tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data
