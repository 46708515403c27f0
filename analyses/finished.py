"""Finished results by the key of the work that made them, so that no work is done twice."""

import os
import shutil
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from scs_eval import __version__
from scs_eval.analyses.attacks.saved import fingerprint
from scs_eval.analyses.inputs import count_logits
from scs_eval.analyses.result import Result, load_result
from scs_eval.analyses.shards import from_first, leads
from scs_eval.analyses.state import device_of, evaluating
from scs_eval.errors import InputError

ASKED = 8  # images whose answers are part of the key


class Finished:
    """A folder of results. One that is damaged counts as missing; without `read`, all do, and are replaced."""

    def __init__(self, folder: Path, *, read: bool = True) -> None:
        self.folder, self.read = folder, read

    def get(self, key: str) -> Result | None:
        """The result of this work, if it is finished."""
        if not self.read:
            return None
        return from_first(lambda: self._load(key))

    def _load(self, key: str) -> Result | None:
        try:
            return load_result(self.folder / key)
        except InputError:
            return None

    def put(self, key: str, result: Result) -> None:
        """Keep a result, whole or not at all."""
        if not leads():
            return
        new, target = self.folder / f".{key}.{os.getpid()}", self.folder / key
        shutil.rmtree(new, ignore_errors=True)
        new.mkdir(parents=True)
        try:
            result.save(new)
            shutil.rmtree(target, ignore_errors=True)
            new.rename(target)
        finally:
            shutil.rmtree(new, ignore_errors=True)
        self.unfinished(key).unlink(missing_ok=True)

    def unfinished(self, key: str) -> Path:
        """Where an analysis may keep what it has done so far, and find it."""
        if not self.read:
            (self.folder / f"{key}.npz").unlink(missing_ok=True)
        return self.folder / f"{key}.npz"


def key_of(analysis: str, model: nn.Module, tensors: tuple[Tensor, ...], settings: Any) -> str:
    """A name for a piece of work: everything its outcome depends on, the images first among the tensors.

    The model's answers to a few images are part of it: the code of a network may change while its weights and its
    modules stay the same.
    """
    images = tensors[0][:ASKED]
    with evaluating(model), torch.no_grad():
        count_logits(model, images[:1])
        answers = model(images.to(device_of(model))).cpu().half()  # coarse, so that rounding elsewhere does not matter
    return f"{analysis}-{fingerprint(model, (*tensors, answers), (__version__, settings))[:20]}"
