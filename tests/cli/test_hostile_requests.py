"""Wrong requests, unreadable files, closed streams, full disks: exit code 2 and one line, never a traceback."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner
from safetensors.torch import save_file
from stderr_lines import error_lines

from scs_eval import create_model
from scs_eval.cli.main import cli
from scs_eval.errors import InputError

ESCAPE = "\x1b[2J"


def run(*arguments: object, shell: str = "", **environment: str) -> "subprocess.CompletedProcess[str]":
    words = [sys.executable, "-m", "scs_eval", *map(str, arguments)]
    if shell:
        words = ["sh", "-c", f'exec "$@" {shell}', "sh", *words]
    return subprocess.run(words, capture_output=True, text=True, env={**os.environ, **environment}, timeout=120)


def refused(*arguments: object) -> str:
    """The one line that says why; the work is not begun."""
    done = CliRunner().invoke(cli, [str(word) for word in arguments])
    assert done.exit_code != 0, done.output
    assert isinstance(done.exception, InputError | SystemExit | OSError), done.exception
    line = done.output if isinstance(done.exception, SystemExit) else str(done.exception)
    assert len(line) < 500
    return line


MODEL = ("--model", "rohrer100k_scs")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("accuracy", *MODEL, "-n", "²"), "whole number"),
        (("accuracy", *MODEL, "-n", "٣"), "whole number"),
        (("accuracy", *MODEL, "-n", "9" * 5000), "whole number"),
        (("accuracy", *MODEL, "-n", "0"), "at least 1"),
        (("accuracy", *MODEL, "--batch-size", "²"), "whole number"),
        (("accuracy", *MODEL, "--seed", str(2**64)), "64 bits"),
        (("accuracy", *MODEL, "--seed", "-1"), "at least 0"),
        (("saliency", *MODEL, "--indices", "1,²"), "whole numbers such as 3,10"),
        (("saliency", *MODEL, "--min-accuracy", "nan"), "finite number"),
        (("faithfulness", *MODEL, "--sigma", "inf"), "finite number"),
        (("pgd", *MODEL, "--eps", "0.1:0.2:1000000000000"), "2 to 10,000 values"),
        (("pgd", *MODEL, "--eps", "9" * 5000), "expected values"),
        (("pgd", *MODEL, "--rel-step-size", "inf"), "finite number"),
        (("compare", *MODEL, "--images", "pgd=²"), "whole number"),
        (("localisation", *MODEL, "--batch-size", "²"), "whole number"),
        (("contributions", *MODEL, "--layer", "head", "--neuron", "²"), "whole number"),
        (("accuracy", *MODEL, "--data", "sample", "--size", "100000"), "expected"),
        (("data", "sample", "--size", "100000"), "expected"),
        (("accuracy", "torchvision:resnet18", "--weights", "none", "--normalize", "0.5,inf"), "got '0.5,inf'"),
        (("train", "rohrer25k_conv", "--lr", "inf"), "finite number"),
        (("train", "rohrer25k_conv", "--seed", str(2**70)), "64 bits"),
        (("zoo", "train", "rohrer25k_conv", "--seeds", "²"), "expected LO:HI"),
        (("zoo", "train", "rohrer25k_conv", "--seeds", "0:99999999999"), "expected LO:HI"),
        (("convert", "rohrer25k_conv", "--weights", "none", "--layer", "scs", "--b", "nan", "--out", "a.safetensors"),
         "finite number"),
        (("accuracy", "x" * 5000), "characters"),
        (("accuracy", f"{ESCAPE}=rohrer100k_scs"), "printable"),
    ],
)  # fmt: skip
def test_numbers_and_names_that_cannot_be_meant(tmp_path, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    assert message in refused(*arguments)
    assert not list(tmp_path.iterdir()), "nothing is written"


def test_a_name_that_no_file_can_have():
    failed = run("accuracy", "rohrer100k_scs", "--data", "x" * 5000 + "/y")
    assert failed.returncode == 2
    assert len(failed.stderr) < 700, "the name is cut"
    assert len(error_lines(failed.stderr)) == 1


def test_a_link_that_leads_to_itself(tmp_path):
    loop = tmp_path / "loop.safetensors"
    loop.symlink_to(loop)
    failed = run("accuracy", loop)
    assert failed.returncode == 2, failed.stderr
    assert len(error_lines(failed.stderr)) == 1


def test_convert_leaves_nothing_beside_a_directory(tmp_path):
    (tmp_path / "taken.safetensors").mkdir()
    line = refused(
        "convert", "rohrer25k_conv", "--weights", "none", "--layer", "scs", "--out", tmp_path / "taken.safetensors"
    )
    assert "is a directory" in line
    assert [path.name for path in tmp_path.iterdir()] == ["taken.safetensors"]


@pytest.mark.parametrize("shell", ["2>&-", ">&- 2>&-", "<&- >&- 2>&-"])
def test_closed_streams(tmp_path, shell):
    done = run("accuracy", "rohrer25k_conv", "-n", "10", "--out", tmp_path / "out", shell=shell)
    assert done.returncode == 0
    assert (tmp_path / "out" / "table.csv").exists()
    assert run("accuracy", "rohrer25k_cnov", shell=shell).returncode == 2


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_behind_stdout():
    failed = run("models", "--json", shell="> /dev/full")
    assert failed.returncode == 2
    assert "No space left on device" in failed.stderr
    assert len(error_lines(failed.stderr)) == 1


def test_a_terminal_that_knows_only_ascii(tmp_path):
    done = run("accuracy", "é=rohrer25k_conv", "-n", "10", "--out", tmp_path / "out", PYTHONIOENCODING="ascii")
    assert done.returncode == 0, done.stderr
    assert run("models", "rohrer25k_*", PYTHONIOENCODING="ascii").returncode == 0
    facts = run("doctor", "rohrer25k_conv", "--json", PYTHONIOENCODING="ascii")
    assert "W(x)" in json.loads(facts.stdout)["dynamic-linear"]


def test_names_in_files_do_not_reach_the_terminal_as_they_are(tmp_path):
    state = {f"{ESCAPE}{key}": value for key, value in create_model("rohrer25k_conv").state_dict().items()}
    save_file(state, tmp_path / "a.safetensors", {"author": f"{ESCAPE}me"})
    done = run("doctor", tmp_path / "a.safetensors")
    assert done.returncode == 1, "it does not load"
    assert "\x1b" not in done.stdout + done.stderr
    assert "x1b[2Jme" in done.stdout
    failed = run("accuracy", tmp_path / "a.safetensors")
    assert failed.returncode == 2
    assert "\x1b" not in failed.stderr


def test_doctor_says_what_to_try_and_not_to_ask_the_doctor(tmp_path):
    torch.save({"layer.weight": torch.rand(3, 3)}, tmp_path / "odd.pt")
    done = run("doctor", tmp_path / "odd.pt")
    assert done.returncode == 1
    assert "--arch file.py:Class" in done.stdout
    assert "scs-eval doctor" not in done.stdout
    (tmp_path / "own.py").write_text(
        "from torch import nn\n\nclass Net(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "        self.layer = nn.Linear(3, 3, bias=False)\n\n    def forward(self, x):\n"
        "        return self.layer(x.mean((2, 3)))\n"
    )
    found = run("doctor", tmp_path / "odd.pt", "--arch", f"{tmp_path}/own.py:Net")
    assert found.returncode == 0, found.stderr


def test_photographs_for_a_factory(tmp_path):
    """Its size is not known: --size says it, in every command that takes images."""
    from PIL import Image

    for name in ("cat", "dog"):
        (tmp_path / "photos" / name).mkdir(parents=True)
        for number, size in enumerate(((40, 30), (50, 60))):
            Image.new("RGB", size, "red").save(tmp_path / "photos" / name / f"{number}.png")
    (tmp_path / "own.py").write_text(
        "from torch import nn\ndef net():\n    return nn.Sequential("
        "nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(3, 2))\n"
    )
    words = ("accuracy", f"own={tmp_path}/own.py:net", "--data", tmp_path / "photos", "--out", tmp_path / "out")
    assert "--size" in run(*words).stderr
    assert run(*words, "--size", "24").returncode == 0
    assert run(*words, "--size", "24", "--resize", "32").returncode == 0
