"""Which software a run used."""

import platform
from importlib.metadata import version

import torch

from scs_eval import __version__


def versions() -> dict[str, str]:
    """Version by package name."""
    ours = {"scs_eval": __version__, "python": platform.python_version()}
    return {**ours, "torch": torch.__version__, "torchvision": version("torchvision"), "numpy": version("numpy")}
