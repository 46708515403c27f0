"""How a result came about: enough to make it again."""

import hashlib
import platform
import shlex
import sys
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from importlib.metadata import version
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from scs_eval import __version__


def provenance(settings: Mapping[str, Any], *, command: Sequence[str]) -> dict[str, Any]:
    """The content of run.json.

    settings: what the result itself says it depends on: seed, data, hash of the indices, device, options.
    command: the words of the command line; empty if the result was made from Python.
    """
    return {
        "command": shlex.join(command),
        "settings": dict(settings),
        "versions": _versions(),
        "platform": f"{sys.platform} {platform.machine()}",
        "time": datetime.now(timezone.utc).isoformat(timespec="seconds"),
    }


def _versions() -> dict[str, str]:
    ours = {"python": platform.python_version(), "scs_eval": __version__}
    return ours | {name: version(name) for name in ("torch", "numpy")}


def fingerprint(indices: ArrayLike) -> str:
    """The sha256 of a list of whole numbers (as 8-byte little-endian): two runs saw the same images iff it is equal."""
    return hashlib.sha256(np.asarray(indices).astype("<i8").tobytes()).hexdigest()
