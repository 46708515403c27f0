"""Terminals, streams and disks that are not as one would wish."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

WORDS = ["accuracy", "rohrer25k_conv", "-n", "10"]


def run(
    words: list[str], *, prelude: str = "", env: dict[str, str] | None = None
) -> subprocess.CompletedProcess[bytes]:
    """`scs-eval WORDS` in a shell, after `prelude`."""
    quoted = " ".join(f"'{word}'" for word in words)
    text = f"{prelude} exec '{sys.executable}' -m scs_eval {quoted}"
    return subprocess.run(["bash", "-c", text], env={**os.environ, **(env or {})}, capture_output=True, check=False)


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
    assert ended.returncode != 0
    assert b"Traceback" not in ended.stderr
    assert len(ended.stderr.strip().splitlines()) == 1, ended.stderr
    assert [path.name for path in tmp_path.iterdir()] in ([], ["o"])
    assert not list(tmp_path.rglob(".*"))


@pytest.mark.parametrize("name", ["checkpoint.safetensors", "folder"])
def test_what_may_not_be_read(tmp_path: Path, name: str) -> None:
    if os.getuid() == 0:
        pytest.skip("root may read everything")
    path = tmp_path / name
    path.write_bytes(b"x")
    path.chmod(0)
    ended = run(["accuracy", str(path), "-n", "10"])
    assert ended.returncode == 2
