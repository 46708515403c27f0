"""The command line: fast where it must be, and clear where the request is wrong."""

import json
import os
import subprocess
import sys

import pytest
from click.testing import CliRunner

import scs_eval
from scs_eval.cli.commands.models import command as models_command
from scs_eval.cli.main import commands


def run(*arguments, **environment):
    return subprocess.run(
        [sys.executable, "-m", "scs_eval", *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
        timeout=120,
    )


def imported(*arguments, **environment):
    """The modules that `python -X importtime` names for a call of the command line."""
    timed = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "scs_eval", *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
        timeout=120,
    )
    lines = [line for line in timed.stderr.splitlines() if line.startswith("import time:")]
    assert len(lines) > 50, timed.stderr
    return {line.rpartition("|")[2].strip() for line in lines}, timed


HEAVY = {"torch", "numpy", "pandas", "matplotlib", "torchvision", "captum"}


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["models", "--help"], ["models"], ["data", "--help"]])
def test_help_and_listing_import_nothing_heavy(arguments):
    modules, timed = imported(*arguments)
    assert timed.returncode == 0
    assert not HEAVY & modules


@pytest.mark.parametrize(
    ("typed", "expected"), [("scs-eval mo", "models"), ("scs-eval models rohrer100k_s", "rohrer100k_scs")]
)
def test_tab_completion_imports_nothing_heavy(typed, expected):
    words = typed.split()
    modules, timed = imported(_SCS_EVAL_COMPLETE="bash_complete", COMP_WORDS=typed, COMP_CWORD=str(len(words) - 1))
    assert expected in timed.stdout.replace("plain,", "").split()
    assert not HEAVY & modules


@pytest.mark.parametrize("name", commands())
def test_every_command_has_help_without_torch(name):
    modules, timed = imported(name, "--help")
    assert timed.returncode == 0
    assert "Usage:" in timed.stdout
    assert "torch" not in modules


def test_importing_the_package_is_lazy():
    code = "import sys, scs_eval; dir(scs_eval); scs_eval.list_models(); assert 'torch' not in sys.modules"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
    assert all(getattr(scs_eval, name) is not None for name in scs_eval.__all__)
    with pytest.raises(AttributeError, match="load_modle"):
        scs_eval.load_modle  # noqa: B018


def test_models_with_a_seed_are_single_trainings(monkeypatch):
    index = {f"rohrer100k_scs{seed}": {"accuracy": share} for seed, share in (("", 0.8), ("@1", 0.82), ("@2", 0.84))}
    monkeypatch.setattr("scs_eval.models.loading.load.weights_index", lambda: index)

    def accuracies(pattern):
        shown = CliRunner().invoke(models_command, [pattern, "--json"], catch_exceptions=False)
        return [(row["name"], row["seeds"], row["accuracy"]) for row in json.loads(shown.stdout)]

    assert accuracies("rohrer100k_scs") == [("rohrer100k_scs", [0, 1, 2], pytest.approx(0.82))]
    assert accuracies("rohrer100k_scs@2") == [("rohrer100k_scs@2", [2], 0.84)]
    assert [name for name, *_ in accuracies("rohrer*@*")] == ["rohrer100k_scs", "rohrer100k_scs@1", "rohrer100k_scs@2"]


def test_models_as_json():
    rows = json.loads(run("models", "--json").stdout)
    assert len(rows) >= 150
    row = next(row for row in rows if row["name"] == "rohrer100k_scs")
    assert row["parameters"] == 113_741
    assert row["input_size"] == 32
    factors = {"layer", "activation", "pooling"}
    assert (
        set(row) == {"name", "parameters", "input_size", "trained", "seeds", "accuracy", "lowest", "highest"} | factors
    )
    assert (row["layer"], row["activation"], row["pooling"]) == ("scs", "linear", "maxabspool")


def test_models_for_people():
    shown = run("models", "rohrer25k_*", COLUMNS="100")
    assert "24,730" in shown.stdout
    assert len(shown.stdout.splitlines()) == 21
    assert "rohrer100k" not in shown.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["models", "rohrer100k_sc"], "did you mean rohrer100k_scs"),
        (["models", "zzz*"], "no model matches"),
        (["frobnicate"], "No such command"),
        (["models", "--nope"], "No such option"),
    ],
)
def test_wrong_requests_are_one_line_and_exit_2(arguments, message):
    failed = run(*arguments)
    assert failed.returncode == 2
    assert message in failed.stderr
    assert "Traceback" not in failed.stderr


def test_debug_shows_the_traceback():
    failed = run("--debug", "models", "rohrer100k_sc")
    assert "Traceback" in failed.stderr
    assert failed.returncode != 0


@pytest.mark.skipif(sys.platform != "linux", reason="speaks of glibc")
@pytest.mark.parametrize("keep", [False, True])
def test_commands_keep_freed_memory(keep):
    """Eight blocks of 16 MB, used and freed: by default given back to the system, kept by commands."""
    script = f"""
import ctypes
from pathlib import Path
from scs_eval.memory import keep_freed_memory
if {keep}: keep_freed_memory()
def resident(): return int(Path("/proc/self/statm").read_text().split()[1]) * 4096 / 2**20
libc, before = ctypes.CDLL(None), resident()
if hasattr(libc, "mallopt"):
    libc.malloc.restype, libc.free.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
    blocks = [libc.malloc(16 << 20) for _ in range(8)]
    for block in blocks: ctypes.memset(block, 1, 16 << 20)
    for block in blocks: libc.free(block)
    print(resident() - before)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    if not done.stdout:
        pytest.skip("not glibc")
    assert float(done.stdout) > 100 if keep else float(done.stdout) < 40
