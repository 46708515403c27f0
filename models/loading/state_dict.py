"""Tensors by name from a checkpoint file, whoever wrote it."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from torch import Tensor

from scs_eval.errors import InputError, printable
from scs_eval.models.loading.limits import LONGEST_NAME, check_file, check_tensors
from scs_eval.models.loading.torch_file import read_torch

CONTAINERS = ("state_dict", "model_state_dict", "model", "net", "network", "model_ema", "ema")
AVERAGED = "ema.module."  # where B-cos training checkpoints keep the weights that are evaluated
PREFIXES = ("module.", "_orig_mod.", "model.", "net.")
DEEPEST = 8  # containers within containers


class StateFile(NamedTuple):
    """The tensors by name, what the file says of itself, and the wrappings that were undone to get at them."""

    state: dict[str, Tensor]
    metadata: dict[str, str]
    undone: tuple[str, ...]


def read_state(path: Path) -> StateFile:
    """The tensors of a safetensors file or of a torch checkpoint; anything else is an error of one line."""
    check_file(path)
    metadata, content = _read_safetensors(path) if _is_safetensors(path) else ({}, read_torch(path))
    tensors, undone = _unwrapped(content)
    check_tensors(path, tensors)
    state, removed = _without_prefixes(tensors)
    if not state:
        kind = type(content).__name__ if not isinstance(content, Mapping) else ", ".join(map(str, list(content)[:5]))
        kind = kind[:LONGEST_NAME] or "nothing"
        raise InputError(f"{path.name} holds no tensors by name, only {kind}; expected a state dict")
    return StateFile(state, metadata, (*undone, *removed))


def metadata_of(path: Path) -> dict[str, str]:
    """What a safetensors file says of itself, printable; nothing of any other file."""
    if not path.is_file() or not _is_safetensors(path):
        return {}
    with _opened(path) as file:
        return _printable(file.metadata())


def _is_safetensors(path: Path) -> bool:
    """By its name, or by its beginning: eight bytes of length and a brace."""
    with path.open("rb") as file:
        return path.suffix == ".safetensors" or file.read(9)[8:] == b"{"


def _read_safetensors(path: Path) -> tuple[dict[str, str], dict[str, Tensor]]:
    with _opened(path) as file:
        return _printable(file.metadata()), {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    from safetensors import SafetensorError, safe_open

    check_file(path)
    try:
        with safe_open(path, framework="pt") as file:
            yield file
    except (SafetensorError, OSError) as error:
        raise InputError(f"{path.name} is not a whole safetensors file: {error}") from error


def _printable(metadata: dict[str, str] | None) -> dict[str, str]:
    return {printable(key): printable(value) for key, value in (metadata or {}).items()}


def _unwrapped(content: Any) -> tuple[dict[str, Tensor], tuple[str, ...]]:
    """The innermost tensors by (printable) name, and in words what was taken off on the way."""
    undone: list[str] = []
    while isinstance(content, Mapping) and (key := _container(content)) is not None and len(undone) < DEEPEST:
        if content[key] is content:
            break
        content = content[key]
        undone.append(f"took {key!r}")
    if not isinstance(content, Mapping):
        return {}, ()
    state = {printable(str(key)): value for key, value in content.items() if isinstance(value, Tensor)}
    if any(key.startswith(AVERAGED) for key in state):
        undone.append(f"took the averaged weights {AVERAGED!r}")
        state = {key.removeprefix(AVERAGED): value for key, value in state.items() if key.startswith(AVERAGED)}
    return state, tuple(undone)


def _without_prefixes(state: dict[str, Tensor]) -> tuple[dict[str, Tensor], tuple[str, ...]]:
    removed: list[str] = []
    while (prefix := _shared_prefix(state)) is not None:
        removed.append(f"removed {prefix!r}")
        state = {key.removeprefix(prefix): value for key, value in state.items()}
    return state, tuple(removed)


def _container(content: Mapping[str, Any]) -> str | None:
    """The key under which a training script put the weights, if these are not the weights themselves."""
    return next((key for key in CONTAINERS if isinstance(content.get(key), Mapping) and content[key]), None)


def _shared_prefix(state: Mapping[str, Tensor]) -> str | None:
    return next((prefix for prefix in PREFIXES if state and all(key.startswith(prefix) for key in state)), None)
