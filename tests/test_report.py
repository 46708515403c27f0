"""Results on disk, the Markdown of their tables, how they were made, and the paper's rows."""

import hashlib
import json
import struct
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure
from test_result import make

from scs_eval import __version__
from scs_eval.analyses.accuracy import AccuracyResult
from scs_eval.analyses.result import load_result
from scs_eval.errors import InputError
from scs_eval.report.markdown import markdown
from scs_eval.report.paper import paper_rows
from scs_eval.report.provenance import fingerprint
from scs_eval.report.write import check_target, write

FILES = {
    "arrays.npz", "classes.csv", "figure.pdf", "figure.png", "result.json", "run.json", "table.csv", "table.md",
}  # fmt: skip


@pytest.fixture(autouse=True)
def small_figures(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Figures that take no time, but for the test that looks at them."""
    if "real_figures" not in request.fixturenames:
        monkeypatch.setattr(AccuracyResult, "figures", lambda self: {"figure": Figure((0.5, 0.5))})


@pytest.fixture
def real_figures() -> None:
    """Asked for by name."""


def names(directory: Path) -> set[str]:
    return {path.name for path in directory.iterdir()}


def test_everything_is_written_and_can_be_loaded(tmp_path: Path) -> None:
    out = tmp_path / "results" / "accuracy" / "rohrer100k_scs"
    assert write(make(), out, command=["scs-eval", "accuracy", "a b"]) == out
    assert names(out) == FILES
    assert names(out.parent) == {out.name}, "nothing is left beside"
    assert (out / "figure.png").read_bytes().startswith(b"\x89PNG")
    assert (out / "figure.pdf").read_bytes().startswith(b"%PDF")
    assert pd.read_csv(out / "table.csv")["accuracy"].tolist() == [0.75]
    assert load_result(out).table().equals(make().table())


def test_run_json_says_how_it_was_made(tmp_path: Path) -> None:
    write(make(), tmp_path / "out", command=["scs-eval", "accuracy", "a b"])
    run = json.loads((tmp_path / "out" / "run.json").read_text())
    assert run["command"] == "scs-eval accuracy 'a b'"
    assert run["settings"]["seed"] == 0
    assert run["settings"]["device"] == "cpu"
    assert run["versions"]["scs_eval"] == __version__
    assert {"python", "torch"} <= run["versions"].keys()
    assert run["time"].endswith("+00:00")


@pytest.mark.usefixtures("real_figures")
def test_the_same_result_gives_the_same_files(tmp_path: Path) -> None:
    first, second = (write(make(), tmp_path / name) for name in "ab")
    for name in FILES - {"run.json", "arrays.npz"}:  # which hold the time
        assert (first / name).read_bytes() == (second / name).read_bytes(), name
    assert b"CreationDate" not in (first / "figure.pdf").read_bytes()  # both are of the same second


def test_an_earlier_result_is_replaced_whole(tmp_path: Path) -> None:
    out = write(make(hits=4), tmp_path / "out")
    run = json.loads((out / "run.json").read_text())
    (out / "extra.csv").write_text("from an earlier version")
    (out / "run.json").write_text(json.dumps(run | {"files": [*run["files"], "extra.csv"]}))
    write(make(hits=1), out)
    assert names(out) == FILES
    assert pd.read_csv(out / "table.csv")["accuracy"].tolist() == [0.25]


def fail_to_draw(self: AccuracyResult) -> None:
    raise RuntimeError("no figure")


def test_a_failure_leaves_the_earlier_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = write(make(hits=4), tmp_path / "out")
    monkeypatch.setattr(AccuracyResult, "figures", fail_to_draw)  # when the tables have been written
    with pytest.raises(RuntimeError, match="no figure"):
        write(make(hits=1), out)
    assert names(tmp_path) == {"out"}
    assert pd.read_csv(out / "table.csv")["accuracy"].tolist() == [1]


def test_a_failure_leaves_nothing_where_nothing_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(AccuracyResult, "figures", fail_to_draw)
    with pytest.raises(RuntimeError, match="no figure"):
        write(make(), tmp_path / "out")
    assert names(tmp_path) == set()


def test_a_failed_rename_puts_the_earlier_result_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = write(make(hits=4), tmp_path / "out")
    rename = Path.rename

    def fail_once(self: Path, target: Path) -> Path:
        if self.name.endswith(".new"):
            raise OSError(5, "Input/output error")
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", fail_once)
    with pytest.raises(OSError, match="Input/output"):
        write(make(hits=1), out)
    assert names(tmp_path) == {"out"}
    assert pd.read_csv(out / "table.csv")["accuracy"].tolist() == [1]


def test_other_peoples_files_are_never_replaced(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(InputError, match=r"thesis\.tex"):
        write(make(), tmp_path)
    out = write(make(), tmp_path / "out")
    (out / "notes.txt").write_text("mine")
    with pytest.raises(InputError, match=r"notes\.txt"):
        write(make(), out)
    assert names(out) == FILES | {"notes.txt"}


def test_an_empty_directory_may_be_used(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    assert names(write(make(), tmp_path / "out")) == FILES


def test_a_target_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    for out in (tmp_path / "file", tmp_path / "file" / "out", tmp_path / ("x" * 300)):
        with pytest.raises(InputError, match="choose another --out"):
            check_target(out)

    def deny(self: Path, *args: object, **options: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "mkdir", deny)
    with pytest.raises(InputError, match="Permission denied"):
        write(make(), tmp_path / "out")


def test_checking_a_target_leaves_nothing(tmp_path: Path) -> None:
    check_target(tmp_path / "a" / "b" / "c")
    assert names(tmp_path) == set()


def test_markdown_is_aligned_and_escaped() -> None:
    frame = pd.DataFrame({"model": ["a|b", "long name"], "n": ["1,000", "5"], "%": ["", "-3.5 [-4, -3]"]})
    assert markdown(frame).splitlines() == [
        "| model     |     n |             % |",
        "| --------- | ----: | ------------: |",
        "| a\\|b      | 1,000 |               |",
        "| long name |     5 | -3.5 [-4, -3] |",
    ]


def test_markdown_leaves_out_what_is_empty() -> None:
    frame = pd.DataFrame({"a": ["x"], "b": [""], "c": [1]})
    assert markdown(frame).splitlines()[0] == "| a   |   c |"


def test_fingerprint_is_the_sha256_of_the_numbers() -> None:
    """Order and value matter, the type of the numbers does not."""
    assert fingerprint([1, 2**40]) == hashlib.sha256(struct.pack("<2q", 1, 2**40)).hexdigest()
    assert fingerprint([1, 2]) == fingerprint(np.array([1, 2], dtype=np.int32)) != fingerprint([2, 1])


def test_the_paper_has_78_rows_under_72_names() -> None:
    rows = paper_rows()
    assert sum(map(len, rows.values())) == 78
    assert len(rows) == 72


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("rohrer100k_scs", [(6, 0.818), (1, 0.7761)]),
        ("rohrer100k_conv", [(6, 0.8347), (1, 0.8032)]),
        ("rohrer100k_conv_linear", [(1, 0.7301)]),
        ("rohrer100k_conv_linear_maxabspool", [(1, 0.4952)]),
        ("rohrer25k_conv_maxabspool", [(3, 0.1301)]),
        ("rohrer25k_scs_relu_maxpool", [(3, 0.7682)]),
        ("rohrer583k_ssdp_maxpool", [(7, 0.8585)]),
        ("resnet18_scs_relu_maxpool", [(2, 0.8241)]),
        ("resnet18_224_scs_nobn", [(8, 0.9006)]),
        ("resnet18_224_conv", [(8, 0.9255)]),
    ],
)
def test_rows_have_the_names_of_the_zoo(name: str, expected: list[tuple[int, float]]) -> None:
    assert [(row.table, row.accuracy) for row in paper_rows()[name]] == expected


def test_seconds_are_not_swapped() -> None:
    row = paper_rows()["rohrer47k_scs"][0]
    assert (row.train_seconds, row.eval_seconds) == (123.82, 8.564)


def test_every_row_is_a_canonical_name_of_the_zoo() -> None:
    from scs_eval.models.registry import canonical_name, list_models

    assert set(paper_rows()) <= set(list_models())
    for name in paper_rows():
        assert canonical_name(name) == name


def test_networks_of_one_table_differ() -> None:
    """Two rows of one table under one name would mean that the name lost a setting."""
    for rows in paper_rows().values():
        assert len({row.table for row in rows}) == len(rows)


def test_the_numbers_are_the_papers() -> None:
    """Their sums over the paper's 78 rows, against a slip in the copy."""
    rows = [row for rows in paper_rows().values() for row in rows]
    assert sum(row.accuracy for row in rows) == pytest.approx(59.6598, abs=1e-6)
    assert sum(row.train_seconds for row in rows) == pytest.approx(8946.422, abs=1e-6)
    assert sum(row.eval_seconds for row in rows) == pytest.approx(745.027, abs=1e-6)
