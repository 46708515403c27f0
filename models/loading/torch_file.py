"""A file of torch.save, whoever wrote it, as data: nothing in it is ever run."""

import argparse
import pickle
import re
import warnings
from pathlib import Path
from typing import Any
from zipfile import BadZipFile, is_zipfile

import numpy as np
import torch

from scs_eval.errors import InputError
from scs_eval.models.loading.limits import check_archive, check_file

PICKLE = b"\x80"  # how every pickle since protocol 2 begins
# What training scripts keep beside the weights and torch's loader does not know: options, and numpy's numbers.
NUMBERS = [np.dtype, *(type(np.dtype(kind)) for kind in ("f4", "f8", "i8")), np.float64(0).__reduce__()[0]]
HARMLESS: list[Any] = [argparse.Namespace, *NUMBERS]
# What torch's loader raises on a damaged file, and the unpickler on one that was made to break it.
DAMAGE = (RuntimeError, EOFError, BadZipFile, ValueError, LookupError, OSError, TypeError, AttributeError, MemoryError)


def read_torch(path: Path) -> Any:
    """What the file holds, on the CPU, if that is tensors, numbers and text; anything else is an error of one line."""
    check_file(path)
    check_archive(path)
    try:
        with warnings.catch_warnings(), torch.serialization.safe_globals(HARMLESS):
            warnings.simplefilter("ignore", UserWarning)  # about pickle protocols, before an error that we word
            return torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise InputError(f"{path.name} {_refusal(path, str(error))}") from error
    except (*DAMAGE, RecursionError) as error:
        text = re.sub(r"^\[.*?\] \. ", "", str(error).strip()) or type(error).__name__
        reason = re.split(r"\.\s|\n", text)[0]  # not what torch advises: to load it anyway
        reason = reason if " " in reason else type(error).__name__  # the unpickler's are mere numbers
        raise InputError(f"{path.name} is not a torch checkpoint or is damaged: {reason}") from error


def _refusal(path: Path, error: str) -> str:
    """Why torch's loader of mere tensors did not take the file."""
    with path.open("rb") as file:
        if not (is_zipfile(path) or file.read(1) == PICKLE):
            return "is not a torch checkpoint or is damaged"
    wanted = re.search(r"GLOBAL (\S+)", error)
    return (
        f"holds more than tensors and could run code when it is loaded{f' ({wanted[1]})' if wanted else ''}: refused; "
        "save its state dict, best as safetensors"
    )
