"""Refuses to build where scs_eval/models and the others are not the links they should be; pyproject.toml has the rest.

A zip download, or git on Windows without symlinks, leaves a small text file with the link's target in place of each
link: the wheel would then hold neither models nor analyses, and nobody would be told.
"""

from pathlib import Path

from setuptools import setup

LINKED = ("models", "analyses", "benchmarks")
LOST = [name for name in LINKED if not (Path(__file__).parent / "scs_eval" / name / "__init__.py").is_file()]

if LOST:
    raise SystemExit(
        f"error: scs_eval/{LOST[0]} is no link to ../{LOST[0]}: this checkout lost its symlinks (a zip download, or "
        "Windows); clone it with `git -c core.symlinks=true clone`, or copy the top-level folder there"
    )
setup()
