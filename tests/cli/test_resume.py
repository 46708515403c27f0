"""An interrupted command goes on from what it has."""

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from scs_eval.analyses.core.checkpoint import Checkpoint
from scs_eval.cli.main import cli


@pytest.mark.parametrize(
    "words",
    [
        ["corruptions", "rohrer25k_scs", "-n", "6", "--corruption", "contrast", "--batch-size", "3"],
        ["certify", "rohrer25k_scs", "-n", "2", "--samples", "20", "--draws", "1"],
    ],
    ids=["corruptions", "certify"],
)
def test_the_same_command_goes_on(words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save, load, loaded = Checkpoint.save, Checkpoint.load, []

    def save_and_stop(self: Checkpoint, content: Any) -> None:
        save(self, content)
        raise KeyboardInterrupt

    def seen(self: Checkpoint) -> Any:
        loaded.append(load(self))
        return loaded[-1]

    out, hidden = tmp_path / "there", tmp_path / ".there.partial"
    with monkeypatch.context() as patch:
        patch.setattr(Checkpoint, "save", save_and_stop)
        stopped = CliRunner().invoke(cli, [*words, "--out", str(out)])
    assert stopped.exit_code != 0
    assert "the same command goes on" in stopped.output
    assert hidden.is_dir()
    assert not out.exists()
    monkeypatch.setattr(Checkpoint, "load", seen)
    done = CliRunner().invoke(cli, [*words, "--out", str(out)])
    assert done.exit_code == 0, done.output
    assert any(loaded), "what was done is used"
    assert not hidden.exists()
    plain = CliRunner().invoke(cli, [*words, "--out", str(tmp_path / "plain")])
    assert plain.exit_code == 0, plain.output
    assert (out / "table.csv").read_text() == (tmp_path / "plain" / "table.csv").read_text()
