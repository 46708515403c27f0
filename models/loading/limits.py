"""What a file may ask for: limits on what its header says, checked before anything of that size is allocated."""

import errno
from collections.abc import Mapping
from pathlib import Path
from zipfile import BadZipFile, ZipFile, is_zipfile

import torch
from torch import Tensor

from scs_eval.errors import InputError

LONGEST_NAME = 1000  # characters; those of the deepest networks have about 100
EXPANSION, ALLOWANCE = 8, 16 << 20  # a file may hold this many times its own size, and this many bytes in any case


def check_file(path: Path) -> None:
    """Raise unless the path is a file with something in it that can be read."""
    try:
        if not path.stat().st_size and path.is_file():
            raise InputError(f"{path.name} is empty")
        if not path.is_file():
            raise InputError(f"expected a file of weights, got {path}, which is none")
        with path.open("rb"):
            pass
    except FileNotFoundError as error:
        raise InputError(f"no such file: {path}") from error
    except OSError as error:
        reason = "its symbolic links run in a circle" if error.errno == errno.ELOOP else error.strerror
        raise InputError(f"{str(path)[:LONGEST_NAME]} cannot be read: {reason}") from error


def check_archive(path: Path) -> None:
    """Raise if a zip archive, as torch writes them, would inflate to far more than its size."""
    if not is_zipfile(path):
        return
    try:
        with ZipFile(path) as archive:
            inflated = sum(entry.file_size for entry in archive.infolist())
    except (BadZipFile, ValueError, OSError, NotImplementedError) as error:
        raise InputError(f"{path.name} is not a torch checkpoint or is damaged: {error}") from error
    _check_size(path, inflated)


def check_tensors(path: Path, state: Mapping[str, Tensor]) -> None:
    """Raise for tensors that no file of weights has: of overlong names, without memory, larger than the file."""
    if (longest := max(map(len, state), default=0)) > LONGEST_NAME:
        raise InputError(f"{path.name} holds a tensor whose name has {longest:,} characters; expected a state dict")
    for name, value in state.items():
        if value.layout != torch.strided or value.device.type == "meta":
            raise InputError(f"{path.name} holds a tensor without numbers of its own: {name}; save dense tensors")
    _check_size(path, sum(value.numel() * value.element_size() for value in state.values()))


def _check_size(path: Path, claimed: int) -> None:
    size = path.stat().st_size
    if claimed > EXPANSION * size + ALLOWANCE:
        raise InputError(
            f"{path.name} has {size:,} bytes and claims to hold {claimed:,}; save its state dict again, with torch.save"
        )
