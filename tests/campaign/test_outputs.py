"""Where results go: nobody else's file is touched, nothing is lost, nothing stays behind."""

from pathlib import Path

import pytest
from hostile import assert_refused, command, few_images
from stderr_lines import error_lines

from scs_eval.data import cifar10

MODEL = "rohrer25k_conv"


@pytest.fixture(autouse=True)
def _few_images(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a network a failed download would pass for a refusal."""
    monkeypatch.setattr(cifar10, "read_cifar10", few_images)


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


CIRCLES = [
    ["accuracy", "LOOP.safetensors"], [*ACCURACY, "--weights", "LOOP.pt"], [*ACCURACY, "--data", "LOOP"],
    [*ACCURACY, "--data", "LOOP/cats"], [*ACCURACY, "--data", "LOOP.npz"], [*ACCURACY, "--out", "LOOP"],
    [*ACCURACY, "--out", "LOOP/inside"], [*ACCURACY, "--indices", "LOOP"], [*ACCURACY, "--plugin", "LOOP.py"],
    ["accuracy", "LOOP.py:net"], ["localisation", MODEL, "--grids", "LOOP.csv"],
    ["corruptions", MODEL, "--files", "LOOP"], ["dynamics", "LOOP"],
    ["dynamics", "a", "--out", "LOOP"], ["doctor", "LOOP.pt"], ["compare", MODEL, "--out", "LOOP"],
    ["export", MODEL, "--out", "LOOP.onnx"], ["train", MODEL, "--out", "LOOP"], ["train", MODEL, "--data", "LOOP"],
    ["train", MODEL, "--init-from", "LOOP.safetensors"], ["study", "LOOP.toml"],
]  # fmt: skip


@pytest.mark.parametrize("words", CIRCLES, ids=" ".join)
def test_links_that_run_in_a_circle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str]) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SCS_EVAL_DATA", str(tmp_path))
    for suffix in ("", ".pt", ".safetensors", ".npz", ".csv", ".py", ".onnx", ".toml"):
        (tmp_path / f"LOOP{suffix}").symlink_to(f"LOOP{suffix}")
    before = set(tmp_path.iterdir())
    assert_refused(command(*words))
    assert set(tmp_path.iterdir()) == before


def test_many_trainings_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    run = command("zoo", "train", MODEL, "--out", str(tmp_path / "loop"), "--data-dir", str(tmp_path))
    assert run.code == 2
    assert run.stderr.startswith(f"{MODEL}: failed: ")
    assert len(error_lines(run.stderr)) == 1


TRAINED = [
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
    words = ["train", "--model", MODEL, "--out", str(run), "--epochs", "1", "--batch-size", "20"]
    refused = command(*words, *(["--overwrite"] if overwrite else []))
    assert_refused(refused)
    assert f"holds {name}, which no run wrote" in refused.stderr
    assert (run / name).read_bytes() == b"mine"


@pytest.mark.parametrize("overwrite", [False, True])
def test_training_beside_weights_of_others(tmp_path: Path, overwrite: bool) -> None:
    """They are no finished run: only what the run's own manifest names is."""
    run = tmp_path / "run"
    run.mkdir()
    (run / "model.safetensors").write_bytes(b"mine")
    words = ["train", "--model", MODEL, "--out", str(run), "--epochs", "1", "--batch-size", "20"]
    done = command(*words, *(["--overwrite"] if overwrite else []))
    assert done.code == 0, done.stderr
    assert (run / f"{MODEL}.safetensors").is_file()
    assert (run / "model.safetensors").read_bytes() == b"mine"


@pytest.mark.parametrize("name", ["nothing.safetensors", "empty.pt"])
def test_weights_to_begin_with_are_looked_at_before_the_images(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(cifar10, "read_cifar10", lambda *_, **__: pytest.fail("reads images"))
    (tmp_path / "empty.pt").touch()
    words = ["train", "--model", MODEL, "--out", str(tmp_path / "run"), "--init-from", str(tmp_path / name)]
    assert_refused(command(*words))
    assert not (tmp_path / "run").exists()
