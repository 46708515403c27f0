"""A checkout that lost its symlinks does not build, and says why in one line."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FILES = ("setup.py", "pyproject.toml", "README.md", "LICENSE")


def build(checkout: Path) -> "subprocess.CompletedProcess[str]":
    """What pip and build call first: the metadata of the wheel, by the backend of pyproject.toml."""
    code = "from setuptools import build_meta; build_meta.prepare_metadata_for_build_wheel('out')"
    (checkout / "out").mkdir()
    return subprocess.run([sys.executable, "-c", code], cwd=checkout, capture_output=True, text=True, timeout=120)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    for name in FILES:
        shutil.copy(ROOT / name, tmp_path / name)
    (tmp_path / "scs_eval").mkdir()
    shutil.copy(ROOT / "scs_eval" / "__init__.py", tmp_path / "scs_eval")
    for name in ("models", "analyses", "benchmarks"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").touch()
        (tmp_path / "scs_eval" / name).symlink_to(f"../{name}")
    return tmp_path


def test_a_checkout_with_its_links_builds(checkout):
    done = build(checkout)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("lost", ["text file", "nothing"])
def test_a_checkout_without_links_is_refused(checkout, lost):
    link = checkout / "scs_eval" / "analyses"
    link.unlink()
    if lost == "text file":
        link.write_text("../analyses")  # what a zip download leaves
    failed = build(checkout)
    assert failed.returncode != 0
    assert failed.stderr.count("\n") == 1, failed.stderr
    assert "scs_eval/analyses is no link to ../analyses: this checkout lost its symlinks" in failed.stderr
