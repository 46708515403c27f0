"""Where results go: nobody else's file is touched, nothing is lost, nothing stays behind."""

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from hostile import assert_refused, command
from image_folders import training_folder
from safetensors.torch import load_file

MODEL = "rohrer25k_conv"
ACCURACY = ["accuracy", MODEL, "-n", "10"]


def _file(out: Path) -> None:
    out.write_text("a file")


def _foreign(out: Path) -> None:
    out.mkdir()
    (out / "notes.txt").write_text("mine")


def _hidden(out: Path) -> None:
    out.mkdir()
    (out / ".notes").write_text("mine")


def _fake_manifest(out: Path) -> None:
    out.mkdir()
    (out / "run.json").write_text('{"files": ["run.json", "../../precious"]}')
    (out.parent / "precious").write_text("mine")
    (out / "notes.txt").write_text("mine")


def _loop(out: Path) -> None:
    out.symlink_to(out)


def _dangling(out: Path) -> None:
    out.symlink_to(out.parent / "nowhere" / "else")


def _table(out: Path) -> None:
    out.mkdir()
    (out / "table.csv").write_text("a,b\n1,2\n")


TRAPS = {"a file": _file, "foreign file": _foreign, "hidden file": _hidden, "manifest that lies": _fake_manifest,
         "link to itself": _loop, "a table of one's own": _table}  # fmt: skip


@pytest.mark.parametrize("trap", TRAPS.values(), ids=TRAPS.keys())
def test_what_is_there_is_left_alone(tmp_path: Path, trap) -> None:
    out = tmp_path / "out"
    trap(out)
    before = _snapshot(tmp_path)
    assert_refused(command(*ACCURACY, "--out", str(out)))
    assert _snapshot(tmp_path) == before


def _snapshot(folder: Path) -> dict[str, bytes | None]:
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None
        for path in sorted(folder.rglob("*"))
    }


def test_a_link_to_a_folder_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "out").symlink_to(tmp_path / "real")
    assert command(*ACCURACY, "--out", str(tmp_path / "out")).code == 0
    assert (tmp_path / "out").is_symlink()
    assert (tmp_path / "real" / "table.csv").is_file()


@pytest.mark.parametrize("out", ["/proc/nothing", "/dev/null/x", "a" * 300, "x/" * 3000, "/"])
def test_places_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, out: str) -> None:
    monkeypatch.chdir(tmp_path)
    assert_refused(command(*ACCURACY, "--out", out))


def test_the_same_result_twice_is_the_same_bytes(tmp_path: Path) -> None:
    tables = []
    for name in ("a", "b"):
        assert command(*ACCURACY, "--out", str(tmp_path / name)).code == 0
        tables.append((tmp_path / name / "table.csv").read_bytes())
    assert tables[0] == tables[1]


def test_a_note_beside_a_part_is_never_deleted(tmp_path: Path) -> None:
    words = ["compare", MODEL, "--analyses", "accuracy", "-n", "10", "--out", str(tmp_path / "o")]
    assert command(*words).code == 0
    (tmp_path / "o" / "accuracy" / "note.txt").write_text("mine")
    command(*words)
    assert (tmp_path / "o" / "accuracy" / "note.txt").read_text() == "mine"


TRAINED = [
    "model.safetensors",
    "records.csv",
    "layers.csv",
    "norms.csv",
    "checkpoint.pt",
    "run.json",
    f"{MODEL}.safetensors",
]


@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize("name", TRAINED)
def test_training_leaves_strangers_files_alone(tmp_path: Path, name: str, overwrite: bool) -> None:
    run = tmp_path / "run"
    run.mkdir()
    (run / name).write_bytes(b"mine")
    words = ["train", "--model", MODEL, "--out", str(run), "--data-dir", str(tmp_path)]
    assert_refused(command(*words, *(["--overwrite"] if overwrite else [])))
    assert (run / name).read_bytes() == b"mine"


COMMANDS = {
    "pgd": ["pgd", "--model", MODEL, "-n", "40", "--eps", "0.005,0.02"],
    "localisation": ["localisation", "--model", MODEL, "-n", "4", "--grid", "2", "--batch-size", "1"],
    "compare": ["compare", MODEL, "--analyses", "accuracy,saliency", "-n", "20"],
}


@pytest.mark.slow
@pytest.mark.parametrize("name", COMMANDS)
def test_kill_at_any_moment(tmp_path: Path, name: str) -> None:
    """Ten times each: an earlier result survives, the next run ends with the same tables, no file is left behind."""
    whole = tmp_path / "whole"
    seconds = _run(COMMANDS[name], whole)
    rng = random.Random(0)
    for trial in range(10):
        folder = tmp_path / str(trial)
        folder.mkdir()
        shutil.copytree(whole, folder / "out")
        _run(COMMANDS[name], folder / "out", kill_after=rng.uniform(0.3, 1.0) * seconds)
        assert (folder / "out" / "table.csv").is_file(), trial
        _run(COMMANDS[name], folder / "out")
        for table in whole.rglob("*.csv"):
            assert (folder / "out" / table.relative_to(whole)).read_bytes() == table.read_bytes(), (trial, table)
        left = [path.name for path in folder.iterdir() if path.name != "out" and not path.name.startswith(".scs-eval")]
        assert not left, (trial, left)


TRAINING = ["--data", "DATA", "--epochs", "3", "--batch-size", "8", "--workers", "0", "--image-size", "32",
            "--eval-resize", "32", "--eval-size", "32"]  # fmt: skip
JOBS = {
    "train": (["train", "--model", MODEL], ["train", "--resume"], f"{MODEL}.safetensors"),
    "zoo train": (["zoo", "train", MODEL], ["zoo", "train", MODEL], f"{MODEL}/{MODEL}.safetensors"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", JOBS)
def test_kill_training_at_any_moment(tmp_path: Path, name: str) -> None:
    """Six times each: what goes on from there ends with the same weights, and no file is left behind."""
    begin, resume, weights = JOBS[name]
    training_folder(tmp_path / "images", train=20, val=4, size=(32, 32))
    settings = [str(tmp_path / "images") if word == "DATA" else word for word in TRAINING]
    seconds = _run([*begin, *settings], tmp_path / "whole")
    expected, files = load_file(tmp_path / "whole" / weights), _names(tmp_path / "whole")
    rng = random.Random(0)
    for trial in range(6):
        out = tmp_path / str(trial)
        _run([*begin, *settings], out, kill_after=rng.uniform(0.3, 1.0) * seconds)
        again = resume if (out / "run.json").exists() and name == "train" else begin
        _run([*again, *(settings if again is begin else [])], out)
        found = load_file(out / weights)
        assert all(torch.equal(found[key], value) for key, value in expected.items()), trial
        assert _names(out) == files, trial


def _names(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def _run(words: list[str], out: Path, *, kill_after: float | None = None) -> float:
    start = time.monotonic()
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(
        [sys.executable, "-m", "scs_eval", *words, "--out", str(out)],
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    if kill_after is not None:
        time.sleep(kill_after)
        process.send_signal(signal.SIGKILL)
        process.wait()
        return 0.0
    _, error = process.communicate()
    assert process.returncode == 0, error.decode()
    return time.monotonic() - start
