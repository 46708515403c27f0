"""What a timing depends on besides the code."""

import os
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from scs_eval.benchmarks.contest import Settings
from scs_eval.models.layers.kernels import fused

PACKAGES = ("torch", "torchvision", "captum", "torchattacks", "foolbox", "quantus", "bcos")


def conditions(settings: Settings) -> dict[str, Any]:
    """Processor, threads, versions, rounds, precision, how layers are computed, and how busy the machine just was."""
    versions = {name: _version(name) for name in PACKAGES}
    return {
        "cpu": _processor(),
        "cores": os.cpu_count(),
        "threads": settings.threads,
        "rounds": settings.rounds,
        "batch": settings.batch,
        "precision": "float32",
        "layers": "torch's operations" if fused.LIBRARY is None else "compiled passes",
        "python": platform.python_version(),
        "versions": {name: number for name, number in versions.items() if number is not None},
        "load": round(load(), 2),
    }


def load() -> float:
    """Processes that wanted to run during the last minute; 0 where the system does not tell."""
    return os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()
