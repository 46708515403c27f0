"""How a result came about: enough to make it again."""

import platform
import shlex
import sys
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from scs_eval import __version__
from scs_eval.analyses.core.provenance import described_images

if TYPE_CHECKING:
    import pandas as pd


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


def with_provenance(table: "pd.DataFrame", settings: Mapping[str, Any]) -> "pd.DataFrame":
    """The table with the data, which of them (the beginning of their indices' sha256) and the seed behind its columns.

    So a table that left its folder still says what it is about. What a result does not know is left out.
    """
    known = described_images(settings)
    return table.assign(**{name: value for name, value in known.items() if name not in table})


def _versions() -> dict[str, str]:
    ours = {"python": platform.python_version(), "scs_eval": __version__}
    return ours | {name: version(name) for name in ("torch", "numpy")}
