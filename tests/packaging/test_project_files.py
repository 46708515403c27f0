"""What a project promises about itself: one version, annotations that a program can rely on, oldest dependencies."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from packaging.requirements import Requirement

import scs_eval

try:
    import tomllib
except ImportError:  # Python 3.10
    import tomli as tomllib

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def test_the_version_has_one_source() -> None:
    assert PROJECT["project"]["dynamic"] == ["version"]
    assert PROJECT["tool"]["setuptools"]["dynamic"]["version"] == {"attr": "scs_eval.__version__"}
    citation = (ROOT / "CITATION.cff").read_text()
    assert re.search(r"^version: (.+)$", citation, re.MULTILINE)[1] == scs_eval.__version__


def test_the_oldest_dependencies_are_those_that_are_declared() -> None:
    lines = [line for line in (ROOT / ".ci" / "oldest.txt").read_text().splitlines() if line and line[0] != "#"]
    pinned = {name: version for name, _, version in (line.partition("==") for line in lines)}
    for text in PROJECT["project"]["dependencies"]:
        wanted = Requirement(text)
        if wanted.marker is not None and not wanted.marker.evaluate({"python_version": "3.11"}):
            continue
        (least,) = [part.version for part in wanted.specifier if part.operator == ">="]
        assert (pinned[wanted.name] + ".0.0").startswith(least), f"{wanted.name}: {least} is declared"


def test_the_matrix_has_every_python_that_is_declared() -> None:
    workflow = (ROOT / ".github" / "workflows" / "ci.yml").read_text()
    assert PROJECT["project"]["requires-python"] == ">=3.10"
    for minor in range(10, 14):
        assert f'"3.{minor}"' in workflow


@pytest.mark.slow
def test_a_typed_program_passes_mypy(tmp_path: Path) -> None:
    """A minute: mypy reads torch's annotations. `.ci/run` checks the same file beside the installed wheel."""
    example = Path(__file__).with_name("typed_example.py")
    words = [sys.executable, "-m", "mypy", "--cache-dir", str(tmp_path), str(example)]  # strict by pyproject.toml
    done = subprocess.run(words, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stdout
