"""Where downloaded data are looked for."""

import os
from dataclasses import dataclass
from pathlib import Path

from scs_eval.errors import InputError

VARIABLE = "SCS_EVAL_DATA"


@dataclass(frozen=True)
class Place:
    """A folder to look in, and who named it ("--data-dir", "$SCS_EVAL_DATA" or "user cache")."""

    named_by: str
    path: Path


def cache_dir() -> Path:
    """`scs-eval` in $XDG_CACHE_HOME or ~/.cache; it need not exist."""
    base = Path(os.environ.get("XDG_CACHE_HOME", ""))
    # The XDG specification says to ignore a relative path.
    return (base if base.is_absolute() else Path.home() / ".cache") / "scs-eval"


def places(data_dir: str | Path | None = None) -> list[Place]:
    """The folders to look in, first to last: `data_dir`, $SCS_EVAL_DATA, the user cache."""
    locations = []
    if data_dir is not None:
        locations.append(Place("--data-dir", _existing(data_dir)))
    if os.environ.get(VARIABLE):
        locations.append(Place(f"${VARIABLE}", Path(os.environ[VARIABLE]).expanduser()))
    return [*locations, Place("user cache", cache_dir())]


def _existing(data_dir: str | Path) -> Path:
    path = Path(data_dir).expanduser()
    if not path.is_dir():
        raise InputError(f"expected a folder as --data-dir, got {str(data_dir)!r}; there is no such folder")
    return path
