"""Files are replaced whole or not at all; what a killed process left is removed; one process holds a lock."""

import os
import platform
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from scs_eval.errors import InputError, did_you_mean
from scs_eval.files import exchange, locked, remove_leftovers, replacing_file, temporary_path, write_atomically


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def test_a_file_is_replaced_when_it_is_complete(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("old")
    with replacing_file(path) as beside:
        beside.write_text("new")
        assert path.read_text() == "old"
    assert path.read_text() == "new"
    assert names(tmp_path) == ["file"]


def test_after_an_exception_the_old_file_is_there_and_no_other(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("old")
    with pytest.raises(RuntimeError), replacing_file(path) as beside:  # noqa: PT012
        beside.write_text("half")
        raise RuntimeError
    assert path.read_text() == "old"
    assert names(tmp_path) == ["file"]


def test_a_file_is_on_the_disk_before_it_is_renamed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a crash of the machine may leave an empty file under the final name."""
    order: list[str] = []
    fsync, replace = os.fsync, Path.replace
    monkeypatch.setattr(os, "fsync", lambda handle: (order.append("fsync"), fsync(handle))[1])
    monkeypatch.setattr(Path, "replace", lambda self, to: (order.append("rename"), replace(self, to))[1])
    write_atomically(tmp_path / "file", b"x")
    assert order == ["fsync", "rename", "fsync"]  # the last one is the directory's


def test_names_may_be_as_long_as_the_file_system_allows(tmp_path: Path) -> None:
    write_atomically(tmp_path / ("x" * 255), b"x")
    assert names(tmp_path) == ["x" * 255]


CHILD = """
import sys, time
from pathlib import Path
from scs_eval.files import replacing_file, temporary_path, locked
path = Path(sys.argv[1])
with locked(path.parent, busy="busy"), replacing_file(path) as beside:
    beside.write_text("half")
    folder = temporary_path(path); folder.mkdir(); (folder / "inside").write_text("x")
    print("ready", flush=True)
    time.sleep(60)
"""


def test_what_a_killed_process_left_is_removed_and_its_lock_is_free(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("old")
    child = subprocess.Popen([sys.executable, "-c", CHILD, str(path)], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    assert child.stdout.readline() == "ready\n"
    with pytest.raises(InputError, match="somebody else"), locked(tmp_path, busy="somebody else"):
        pass
    remove_leftovers(tmp_path)
    assert len(names(tmp_path)) == 4, "a process that lives keeps its files"
    child.send_signal(signal.SIGKILL)
    child.wait()
    child.stdout.close()
    with locked(tmp_path, busy="somebody else"):
        write_atomically(path, b"new")
    assert names(tmp_path) == ["file"]
    assert path.read_text() == "new"


@pytest.mark.skipif(platform.system() != "Linux", reason="elsewhere a process is known by its number alone")
def test_what_an_earlier_process_of_the_same_number_left_is_removed(tmp_path: Path) -> None:
    """In a container that is started again, the command has the number that it had when it was killed."""
    ours = temporary_path(tmp_path / "file")
    process, start = ours.name.split(".")[-2].split("-")
    assert int(process) == os.getpid()
    earlier = tmp_path / ours.name.replace(f".{process}-{start}.", f".{process}-{int(start) + 1}.")
    for path in (ours, earlier):
        path.write_text("half")
    remove_leftovers(tmp_path)
    assert names(tmp_path) == [ours.name]


def test_files_that_only_look_alike_stay(tmp_path: Path) -> None:
    others = [".scs-eval-notes", ".out.99999.new", f".scs-eval-{'a' * 12}.other-machine.999999999-1.0"]
    for name in others:
        (tmp_path / name).write_text("mine")
    remove_leftovers(tmp_path)
    assert names(tmp_path) == sorted(others)


def test_two_folders_are_swapped_in_one_step(tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    for folder in (one, other):
        folder.mkdir()
        (folder / "name").write_text(folder.name)
    if not exchange(one, other):
        pytest.skip("this system or file system cannot swap two names")
    assert (one / "name").read_text() == "other"
    assert (other / "name").read_text() == "one"
    assert not exchange(one, tmp_path / "missing")


def test_temporary_names_differ(tmp_path: Path) -> None:
    assert temporary_path(tmp_path / "a") != temporary_path(tmp_path / "a")


def test_the_nearest_names_are_suggested() -> None:
    assert did_you_mean("gard", ["grad", "ixg"], otherwise="no") == "did you mean grad?"
    assert did_you_mean("xyz", ["grad", "ixg"], otherwise="choose one") == "choose one"
