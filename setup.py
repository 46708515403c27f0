"""Compiles the fused passes of the layers; refuses to build without its links. pyproject.toml has the rest.

A zip download, or git on Windows without symlinks, leaves a small text file with the link's target in place of each
link: the wheel would then hold neither models nor analyses, and nobody would be told.
"""

from pathlib import Path

from setuptools import Extension, setup

LINKED = ("models", "analyses", "benchmarks")
LOST = [name for name in LINKED if not (Path(__file__).parent / "scs_eval" / name / "__init__.py").is_file()]

if LOST:
    raise SystemExit(
        f"error: scs_eval/{LOST[0]} is no link to ../{LOST[0]}: this checkout lost its symlinks (a zip download, or "
        "Windows); clone it with `git -c core.symlinks=true clone`, or copy the top-level folder there"
    )
# What waits for memory in the layers, fused. A library without Python in it, called through ctypes. Optional: where it
# does not compile (no compiler, no OpenMP, another dialect), the layers take torch's operations.
FLAGS = ["-O3", "-std=c++17", "-fopenmp", "-fno-math-errno", "-fno-trapping-math", "-fvisibility=hidden"]
fused = Extension(
    "scs_eval.models.layers.kernels._fused",
    sources=["models/layers/kernels/fused.cpp"],
    extra_compile_args=[
        "-O3",
        "-std=c++17",
        "-fopenmp",
        "-fno-math-errno",
        "-fno-trapping-math",
        "-fvisibility=hidden",
    ],
    extra_link_args=["-fopenmp"],
    optional=True,
)
setup(ext_modules=[fused])
