"""Finished results by the key of the work that made them, so that no work is done twice."""

from pathlib import Path
from typing import Any

import torch
from torch import nn

from scs_eval import __version__
from scs_eval.analyses.core.checkpoint import Checkpoint
from scs_eval.analyses.core.fingerprint import fingerprint
from scs_eval.analyses.core.model_state import device_of, evaluating
from scs_eval.analyses.core.result import Result
from scs_eval.analyses.core.storage import pack, unpack
from scs_eval.analyses.core.validation import count_logits
from scs_eval.images import Images

ASKED = 8  # images whose answers are part of the key


class ResultCache:
    """A folder of results. One that is damaged counts as missing; without `read`, all do, and are replaced."""

    def __init__(self, folder: Path, *, read: bool = True) -> None:
        self.folder, self.read = folder, read

    def get(self, key: str) -> Result | None:
        """The result of this work, if it is finished."""
        stored = self._finished(key).load() if self.read else {}
        try:
            result = unpack(stored)
        except (ValueError, KeyError, TypeError, AttributeError):
            return None
        Checkpoint(self.unfinished(key), key).remove()  # left by a kill at the end of `put`
        return result

    def put(self, key: str, result: Result) -> None:
        """Keep a result, whole or not at all; what was done of it before is no longer needed."""
        self._finished(key).save(pack(result))
        Checkpoint(self.unfinished(key), key).remove()

    def unfinished(self, key: str) -> Path:
        """Where an analysis may keep what it has done so far, and find it."""
        path = self.folder / f"{key}.unfinished.npz"
        if not self.read:
            Checkpoint(path, key).remove()
        return path

    def _finished(self, key: str) -> Checkpoint:
        return Checkpoint(self.folder / f"{key}.npz", key)


def key_of(analysis: str, model: nn.Module, tensors: tuple[Images, ...], settings: Any) -> str:
    """A name for a piece of work: everything its outcome depends on, the images first among the tensors.

    The model's answers to a few images are part of it: the code of a network may change while its weights and its
    modules stay the same.
    """
    images = tensors[0][:ASKED]
    with evaluating(model), torch.no_grad():
        count_logits(model, images[:1])
        answers = model(images.to(device_of(model))).cpu().half()  # coarse, so that rounding elsewhere does not matter
    return f"{analysis}-{fingerprint(model, (*tensors, answers), (__version__, settings))[:20]}"
