"""What commands refuse, before the work: one line that says what to do, and nothing is written."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from scs_eval.cli.main import cli
from scs_eval.errors import InputError

OF_MAPS = [  # and of what images
    (("--class", "aeroplane"), "did you mean airplane"),
    (("--target", "brid"), "did you mean bird"),
    (("--method", "gard"), "did you mean grad"),
    (("--method", "guided-backprop"), "needs ReLU modules"),
    (("-n", "1001"), "at most 1000"),
    (("-n", "0"), "at least 1"),
    (("--data", "no/such/folder"), "no/such/folder"),
]
REFUSED = {
    "saliency": [
        *OF_MAPS,
        (("--indices", "123456"), "no image with index 123456"),
        (("--indices", "one"), "whole numbers"),
        (("--min-accuracy", "0.99"), "lower --min-accuracy"),
        (("--reduce", "median"), "expected reduce as one of max, mean"),
    ],
    "faithfulness": [
        *OF_MAPS,
        (("--steps", "0"), "from 1 to 1024 steps"),
        (("--sigma", "-1"), "sigma as a finite number above 0"),
    ],
}
CASES = [(command, arguments, message) for command, cases in REFUSED.items() for arguments, message in cases]


@pytest.mark.parametrize(("command", "arguments", "message"), CASES)
def test_bad_requests_leave_nothing(tmp_path, monkeypatch, command, arguments, message):
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(cli, [command, "rohrer100k_scs", *arguments])
    assert isinstance(done.exception, InputError), done.exception
    assert message in str(done.exception)
    assert not Path("results").exists()


NAMED = ["accuracy", "saliency", "contributions", "localisation", "pgd", "faithfulness", "compare", "doctor", "convert"]
NAMED += ["train", "models"]


@pytest.mark.parametrize("command", [*NAMED, "zoo train"])
def test_every_command_takes_a_bare_model_and_an_option(tmp_path, monkeypatch, command):
    """A name that does not exist reaches the same place either way, and its line is the same."""
    monkeypatch.chdir(tmp_path)
    more = ["--layer", "scs", "--out", "a.safetensors"] if command == "convert" else []
    lines = []
    for words in (["rohrer100k_scz"], ["--model", "rohrer100k_scz"]):
        done = CliRunner().invoke(cli, [*command.split(), *words, *more])
        assert done.exit_code != 0
        lines.append(str(done.exception) + done.output)
    assert lines[0] == lines[1]
    assert "rohrer100k_scs" in lines[0], "did you mean"


@pytest.mark.parametrize("command", ["accuracy", "compare"])
def test_both_forms_together(tmp_path, command):
    words = [command, "rohrer25k_conv", "--model", "other=rohrer25k_scs", "-n", "10", "--out", str(tmp_path / "out")]
    done = CliRunner().invoke(cli, [*words, *(["--analyses", "accuracy"] if command == "compare" else [])])
    assert done.exit_code == 0, done.output
    assert "rohrer25k_conv" in done.output
    assert "other" in done.output


@pytest.mark.parametrize("command", ["saliency", "compare", "doctor", "convert"])
def test_no_model_is_said(command):
    done = CliRunner().invoke(cli, [command])
    assert done.exit_code == 2
    assert ("Expected MODEL or --system" if command == "doctor" else "Missing") in done.output
