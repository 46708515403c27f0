"""Terminals, streams and disks that are not as one would wish."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hostile import without_privilege
from image_folders import training_folder
from PIL import Image
from stderr_lines import error_lines

import scs_eval

WORDS = ["accuracy", "rohrer25k_conv", "-n", "10"]


def run(
    words: list[str], *, prelude: str = "", env: dict[str, str] | None = None, **options: Any
) -> subprocess.CompletedProcess[bytes]:
    """`scs-eval WORDS` in a shell, after `prelude`."""
    quoted = " ".join(f"'{word}'" for word in words)
    text = f"{prelude} exec '{sys.executable}' -m scs_eval {quoted}"
    return subprocess.run(
        ["bash", "-c", text], env={**os.environ, **(env or {})}, capture_output=True, check=False, **options
    )


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_terminals_of_other_encodings(tmp_path: Path, encoding: str) -> None:
    ended = run([*WORDS, "--out", str(tmp_path / "o")], env={"PYTHONIOENCODING": encoding, "LC_ALL": "C"})
    assert ended.returncode == 0, ended.stderr
    assert (tmp_path / "o" / "table.csv").is_file()


@pytest.mark.parametrize("closing", ["1>&-", "2>&-", "1>&- 2>&-", "1>/dev/full", "0<&-"])
def test_closed_streams(tmp_path: Path, closing: str) -> None:
    ended = run([*WORDS, "--out", str(tmp_path / "o")], prelude=f"exec {closing};")
    assert b"Traceback" not in ended.stderr
    assert (tmp_path / "o" / "table.csv").is_file()


def test_files_that_may_not_grow(tmp_path: Path) -> None:
    """As on a full disk: one line; what could be written whole is there, nothing half-written stays behind."""
    ended = run([*WORDS, "--out", str(tmp_path / "o")], prelude="ulimit -f 4; trap '' XFSZ;")
    assert ended.returncode == 2, ended.stderr
    assert b"Traceback" not in ended.stderr
    assert len(error_lines(ended.stderr)) == 1, ended.stderr
    assert [path.name for path in tmp_path.iterdir()] in ([], ["o"])
    assert not list(tmp_path.rglob(".*"))


def test_the_files_of_an_earlier_result_survive_a_full_disk(tmp_path: Path) -> None:
    assert run([*WORDS, "--out", str(tmp_path / "o")]).returncode == 0
    before = {path.name: path.read_bytes() for path in (tmp_path / "o").iterdir()}
    ended = run([*WORDS, "--out", str(tmp_path / "o"), "--seed", "3"], prelude="ulimit -f 1; trap '' XFSZ;")
    assert ended.returncode == 2, ended.stderr
    assert {path.name: path.read_bytes() for path in (tmp_path / "o").iterdir()} == before


FULL = {
    "accuracy": [*WORDS, "--out", "SMALL/o"],
    "accuracy in the mount point": [*WORDS, "--out", "SMALL"],
    "compare": ["compare", "rohrer25k_conv", "--analyses", "accuracy", "-n", "10", "--out", "SMALL/o"],
    "convert": ["convert", "rohrer25k_conv", "--weights", "none", "--layer", "scs", "--out", "SMALL/a.safetensors"],
    "train": ["train", "rohrer25k_conv", "--data", "IMAGES", "--image-size", "32", "--eval-size", "32",
              "--eval-resize", "32", "--batch-size", "2", "--workers", "0", "--out", "SMALL/run"],
}  # fmt: skip


@pytest.mark.parametrize("words", FULL.values(), ids=FULL.keys())
def test_a_disk_of_60_kb(tmp_path: Path, words: list[str]) -> None:
    small = tmp_path / "small"
    small.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=60k", "none", str(small)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("may not mount here")
    try:
        images = training_folder(tmp_path / "images", train=2, val=1, size=(32, 32))
        ended = run([word.replace("SMALL", str(small)).replace("IMAGES", str(images)) for word in words])
        assert ended.returncode == 2, ended.stderr
        assert len(error_lines(ended.stderr)) == 1, ended.stderr
        assert not list(small.iterdir()), "nothing is left behind"
    finally:
        subprocess.run(["umount", str(small)], check=True)


def _checkpoint(path: Path) -> list[str]:
    path.write_bytes(b"x")
    return ["accuracy", str(path), "-n", "10"]


def _images(path: Path) -> list[str]:
    path.mkdir()
    return ["accuracy", "rohrer25k_conv", "--data", str(path)]


def _out(path: Path) -> list[str]:
    path.mkdir()
    return [*WORDS, "--out", str(path / "o")]


def _run_directory(path: Path) -> list[str]:
    path.mkdir()
    return ["dynamics", str(path)]


@pytest.mark.skipif(os.name == "nt", reason="has no modes")
@pytest.mark.parametrize("make", [_checkpoint, _images, _out, _run_directory])
def test_what_may_not_be_read_or_written(tmp_path: Path, make: Callable[[Path], list[str]]) -> None:
    path = tmp_path / "forbidden.safetensors"
    words = make(path)
    path.chmod(0)
    ended = run(words, preexec_fn=without_privilege)
    path.chmod(0o700)
    assert ended.returncode == 2, ended.stderr
    assert len(error_lines(ended.stderr)) == 1, ended.stderr
    assert not path.is_dir() or not list(path.iterdir())


NOT_UTF8 = {
    "out": ["accuracy", "rohrer25k_conv", "-n", "10", "--out", "bad\udcff"],
    "two models": ["accuracy", "rohrer25k_conv", "rohrer25k_scs", "-n", "10", "--out", "bad\udcff"],
    "folder of images": ["accuracy", "rohrer25k_conv", "--data", "images\udcff", "--out", "o"],
    "page": ["compare", "rohrer25k_conv", "--analyses", "accuracy", "-n", "10", "--out", "bad\udcff"],
}


@pytest.mark.parametrize("words", NOT_UTF8.values(), ids=NOT_UTF8.keys())
def test_paths_that_are_not_utf8(tmp_path: Path, words: list[str]) -> None:
    """Linux has them; no result is lost over one."""
    for number in range(10):
        folder = tmp_path / "images\udcff" / str(number)
        folder.mkdir(parents=True)
        Image.new("RGB", (32, 32)).save(folder / "a.png")
    ended = run(words, cwd=tmp_path)
    assert ended.returncode == 0, ended.stderr
    out = tmp_path / words[-1]
    assert scs_eval.load_result(out).label
    assert json.loads((out / "run.json").read_text())["command"]
