"""Tensors from a checkpoint file, whoever wrote it. A file is data: nothing in it is ever run."""

import argparse
import pickle
import re
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple
from zipfile import BadZipFile, is_zipfile

import numpy as np
import torch
from torch import Tensor

from scs_eval.errors import InputError

CONTAINERS = ("state_dict", "model_state_dict", "model", "net", "network", "model_ema", "ema")
AVERAGED = "ema.module."  # where B-cos training checkpoints keep the weights that are evaluated
PICKLE = b"\x80"  # how every pickle since protocol 2 begins
PREFIXES = ("module.", "_orig_mod.", "model.", "net.")
# What training scripts keep beside the weights and torch's loader does not know: options, and numpy's numbers.
NUMBERS = [np.dtype, *(type(np.dtype(kind)) for kind in ("f4", "f8", "i8")), np.float64(0).__reduce__()[0]]
HARMLESS: list[Any] = [argparse.Namespace, *NUMBERS]


class StateFile(NamedTuple):
    """The tensors by name, what the file says of itself, and the wrappings that were undone to get at them."""

    state: dict[str, Tensor]
    metadata: dict[str, str]
    undone: tuple[str, ...]


def read_state(path: Path) -> StateFile:
    """The tensors of a safetensors file or of a torch checkpoint; anything else is an error of one line."""
    if not path.is_file():
        raise InputError(f"no such file: {path}")
    if path.stat().st_size == 0:
        raise InputError(f"{path.name} is empty")
    metadata, content = _read_safetensors(path) if _is_safetensors(path) else ({}, _read_torch(path))
    state, undone = _unwrapped(content)
    if not state:
        kind = type(content).__name__ if not isinstance(content, Mapping) else ", ".join(map(str, list(content)[:5]))
        raise InputError(f"{path.name} holds no tensors by name, only {kind or 'nothing'}; expected a state dict")
    return StateFile(state, metadata, undone)


def metadata_of(path: Path) -> dict[str, str]:
    """What a safetensors file says of itself; nothing of any other file."""
    return _read_safetensors(path)[0] if path.is_file() and _is_safetensors(path) else {}


def _is_safetensors(path: Path) -> bool:
    """By its name, or by its beginning: eight bytes of length and a brace."""
    with path.open("rb") as file:
        return path.suffix == ".safetensors" or file.read(9)[8:] == b"{"


def _read_safetensors(path: Path) -> tuple[dict[str, str], dict[str, Tensor]]:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="pt") as file:
            return file.metadata() or {}, {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
    except SafetensorError as error:
        raise InputError(f"{path.name} is not a whole safetensors file: {error}") from error


def _read_torch(path: Path) -> Any:
    try:
        with warnings.catch_warnings(), torch.serialization.safe_globals(HARMLESS):
            warnings.simplefilter("ignore", UserWarning)  # about pickle protocols, before an error that we word
            return torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise InputError(f"{path.name} {_refusal(path, str(error))}") from error
    except (RuntimeError, EOFError, BadZipFile, ValueError, KeyError, OSError) as error:
        text = re.sub(r"^\[.*?\] \. ", "", str(error).strip()) or type(error).__name__
        reason = re.split(r"\.\s", text)[0]  # not what torch advises: to load it anyway
        raise InputError(f"{path.name} is not a torch checkpoint or is damaged: {reason}") from error


def _refusal(path: Path, error: str) -> str:
    """Why torch's loader of mere tensors did not take the file."""
    if not (is_zipfile(path) or path.read_bytes()[:1] == PICKLE):
        return "is not a torch checkpoint or is damaged"
    wanted = re.search(r"GLOBAL (\S+)", error)
    return (
        f"holds more than tensors and could run code when it is loaded{f' ({wanted[1]})' if wanted else ''}: refused; "
        "save its state dict, best as safetensors"
    )


def _unwrapped(content: Any) -> tuple[dict[str, Tensor], tuple[str, ...]]:
    """The innermost tensors by name, and in words what was taken off on the way."""
    undone: list[str] = []
    while isinstance(content, Mapping) and (key := _container(content)) is not None:
        content = content[key]
        undone.append(f"took {key!r}")
    if not isinstance(content, Mapping):
        return {}, ()
    state = {str(key): value for key, value in content.items() if isinstance(value, Tensor)}
    if any(key.startswith(AVERAGED) for key in state):
        undone.append(f"took the averaged weights {AVERAGED!r}")
        state = {key.removeprefix(AVERAGED): value for key, value in state.items() if key.startswith(AVERAGED)}
    while (prefix := _shared_prefix(state)) is not None:
        undone.append(f"removed {prefix!r}")
        state = {key.removeprefix(prefix): value for key, value in state.items()}
    return state, tuple(undone)


def _container(content: Mapping[str, Any]) -> str | None:
    """The key under which a training script put the weights, if these are not the weights themselves."""
    return next((key for key in CONTAINERS if isinstance(content.get(key), Mapping) and content[key]), None)


def _shared_prefix(state: Mapping[str, Tensor]) -> str | None:
    return next((prefix for prefix in PREFIXES if state and all(key.startswith(prefix) for key in state)), None)
