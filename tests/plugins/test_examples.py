"""The files of examples/ are what CONTRIBUTING says: whole, short, and they run by the command they name."""

import re
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner

import scs_eval
from scs_eval.analyses.catalogue import ENTRIES
from scs_eval.cli.main import cli

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
FEWER = {
    "pgd": ["-n", "4", "--eps", "0.05,0.2", "--no-scorecard"],
    "saliency": ["-n", "4"],
    "faithfulness": ["-n", "4"],
}


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_runs_as_it_says(path, tmp_path, monkeypatch):
    source = path.read_text()
    assert len([line for line in source.splitlines() if line.strip()]) < 25, "lines of code"
    command = re.search(r"scs-eval (.*?--plugin \S+\.py)", source)
    assert command is not None
    contributing = (ROOT / "CONTRIBUTING.md").read_text()
    assert f"`scs-eval {command[1]}`" in contributing
    words = shlex.split(command[1].replace("examples/", f"{ROOT}/examples/").replace("rohrer100k", "rohrer25k"))
    monkeypatch.chdir(tmp_path)
    words += FEWER.get(words[0], ["-n", "4"])
    try:
        done = CliRunner().invoke(cli, [*words, "--out", "out"], catch_exceptions=False)
        assert done.exit_code == 0, done.output
        assert scs_eval.load_result("out").table().shape[0] >= 1
    finally:
        ENTRIES.pop("confidence", None)


def test_all_four_are_there():
    assert [path.stem for path in EXAMPLES] == ["analysis", "attack", "method", "metric"]
