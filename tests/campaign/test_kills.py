"""kill -9 at random moments: the same bytes in the end, no file left behind, no earlier result lost."""

import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from image_folders import training_folder
from safetensors.torch import load_file

from scs_eval.cli.commands.compare import STORE

pytestmark = pytest.mark.slow
MODEL = "rohrer25k_conv"
TRIALS = 6  # of each of the five commands
# Small: what is compared is whether an interruption shows, and the start of Python is a third of the time already.
ANALYSES = {
    "pgd": ["pgd", "--model", MODEL, "-n", "10", "--eps", "0.005,0.02", "--batch-size", "2"],
    "localisation": ["localisation", "--model", MODEL, "-n", "4", "--grid", "2", "--batch-size", "1"],
    "compare": ["compare", MODEL, "--analyses", "accuracy,saliency,pgd", "-n", "20", "--images", "pgd=10",
                "--eps", "0.005,0.02"],
}  # fmt: skip
TRAINING = ["--epochs", "20", "--batch-size", "8", "--workers", "0", "--image-size", "32", "--eval-resize", "32",
            "--eval-size", "32"]  # fmt: skip
TRAINED = {"train": ["train", "--model", MODEL], "zoo train": ["zoo", "train", MODEL]}
TIMES = "seconds", "time", "command", "train_seconds_per_epoch", "eval_seconds_per_epoch"
TIMES_OF_A_PAGE = re.compile(r'\d{4}-\d\d-\d\dT[\d:+]+|(?<=<dt>seconds</dt><dd>)[\d.]+|(?<="seconds":)[\d.]+')


@pytest.mark.parametrize("trial", range(TRIALS))
@pytest.mark.parametrize("name", ANALYSES)
def test_an_analysis_over_an_earlier_result(tmp_path_factory: Any, tmp_path: Path, name: str, trial: int) -> None:
    whole, seconds = _whole(tmp_path_factory, name)

    def begin(folder: Path) -> Path:
        shutil.copytree(whole, folder / "out")
        return folder / "out"

    out = _killed(ANALYSES[name], tmp_path, begin, after=_moment(name, trial) * seconds)
    assert _content(out) == _content(whole), "the earlier result, or the new one"
    assert _run(ANALYSES[name], out) == ""
    assert _content(out) == _content(whole)
    assert _names(out.parent) <= {"out", STORE}
    store = out.parent / STORE
    assert not list(store.glob(".*")) + list(store.glob("*.unfinished.*"))


@pytest.mark.parametrize("trial", range(TRIALS))
@pytest.mark.parametrize("name", TRAINED)
def test_a_training(tmp_path_factory: Any, tmp_path: Path, name: str, trial: int) -> None:
    whole, seconds = _whole(tmp_path_factory, name)
    words = [*TRAINED[name], "--data", str(whole.parent / "images"), *TRAINING]
    out = _killed(words, tmp_path, lambda folder: folder / "out", after=_moment(name, trial) * seconds)
    begun = name == "train" and (out / "run.json").exists()
    refusal = _run(["train", "--resume"] if begun else words, out)
    assert refusal == "" or (name == "train" and "holds a finished run" in refusal), "the kill came after the weights"
    assert _content(out) == _content(whole)
    assert _names(out.parent) == {"out"}


_DONE: dict[str, tuple[Path, float]] = {}


def _whole(factory: Any, name: str) -> tuple[Path, float]:
    """What the work gives when nobody kills it, and how long it takes."""
    if name not in _DONE:
        folder = factory.mktemp("whole")
        words = ANALYSES.get(name)
        if words is None:
            training_folder(folder / "images", train=40, val=4, size=(32, 32))
            words = [*TRAINED[name], "--data", str(folder / "images"), *TRAINING]
        start = time.monotonic()
        assert _run(words, folder / "out") == ""
        _DONE[name] = folder / "out", time.monotonic() - start
    return _DONE[name]


def _content(folder: Path) -> dict[str, Any]:
    """Every file's bytes, hidden ones too, without what the clock says."""
    return {path.relative_to(folder).as_posix(): _read(path) for path in sorted(folder.rglob("*")) if path.is_file()}


def _read(path: Path) -> Any:
    if path.suffix == ".json":
        return _timeless(json.loads(path.read_text()))
    if path.suffix == ".html":
        return TIMES_OF_A_PAGE.sub("", re.sub(r"--out \S+?/out\b", "--out", path.read_text()))
    if path.name == "records.csv":  # its last two columns are seconds
        return [line.split(",")[:-2] for line in path.read_text().splitlines()]
    if path.suffix == ".safetensors":  # its metadata has seconds
        return {key: value.numpy().tobytes() for key, value in load_file(path).items()}
    return path.read_bytes()


def _timeless(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _timeless(each) for key, each in value.items() if key not in TIMES}
    return [_timeless(each) for each in value] if isinstance(value, list) else value


def _names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def _start(words: list[str], out: Path) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(
        [sys.executable, "-m", "scs_eval", *words, "--out", str(out)],
        env={**os.environ, "OMP_NUM_THREADS": "1"}, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
    )  # fmt: skip


def _run(words: list[str], out: Path) -> str:
    """Run the command to its end; why it refused, or nothing."""
    process = _start(words, out)
    _, error = process.communicate()
    assert process.returncode in (0, 2), error.decode()
    return error.decode() if process.returncode else ""


def _moment(name: str, trial: int) -> float:
    """A share of the time that the work takes; before the first fifth Python has not even begun with it."""
    return random.Random(f"{name}{trial}").uniform(0.2, 1.0)


def _killed(words: list[str], folder: Path, begin: Any, *, after: float) -> Path:
    """The folder of a process that was killed in the midst; one that was quicker than that begins anew."""
    for attempt in range(10):
        (folder / str(attempt)).mkdir()
        out = begin(folder / str(attempt))
        process = _start(words, out)
        time.sleep(after * 0.8**attempt)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        if process.returncode == -signal.SIGKILL:
            return out
    raise AssertionError("never killed")
