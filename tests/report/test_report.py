"""Results on disk, the Markdown of their tables, how they were made, and the paper's rows."""

import contextlib
import errno
import hashlib
import json
import os
import shutil
import struct
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure
from matplotlib.text import Text
from results import make

import scs_eval
from scs_eval import __version__, load_data, load_model
from scs_eval.analyses.accuracy import AccuracyComparison, AccuracyResult
from scs_eval.analyses.core.result import load_result
from scs_eval.errors import InputError, check_name
from scs_eval.files import newest
from scs_eval.images import indices_digest
from scs_eval.reference.scs_paper import paper_figures, paper_rows
from scs_eval.report import folder
from scs_eval.report.factors import with_factors
from scs_eval.report.folder import available_target, check_target, foreign_file, replacing
from scs_eval.report.markdown import markdown
from scs_eval.report.write import FigureError, write_result

FILES = {
    "arrays.npz", "classes.csv", "figure.pdf", "figure.png", "figure.svg", "result.json", "run.json", "table.csv",
    "table.md",
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


def test_tables_of_zoo_networks_have_their_factors():
    table = pd.DataFrame({"model": ["rohrer100k_scs_relu@3", "mine.pt", "resnet20_conv"], "accuracy": [0.8, 0.7, 0.9]})
    found = with_factors(table)
    assert list(found) == ["model", "accuracy", "layer", "activation", "pooling", "seed"]
    assert found.iloc[0].tolist() == ["rohrer100k_scs_relu@3", 0.8, "scs", "relu", "maxabspool", 3]
    assert found["layer"].tolist()[2] == "conv"
    assert found.iloc[1].isna().sum() == 4
    for other in (table.assign(layer="conv1"), table.iloc[[1]], table[["accuracy"]]):
        assert with_factors(other) is other


def test_the_cosine_networks_of_the_text_are_there():
    """Section 4.2: 56.58 % without and 76.04 % with ReLU."""
    from scs_eval.models.zoo.registry import list_models

    figures = paper_figures()
    assert [row.accuracy for row in figures["rohrer100k_cos"] + figures["rohrer100k_cos_relu"]] == [0.5658, 0.7604]
    assert figures["rohrer100k_scs"] == paper_rows()["rohrer100k_scs"]
    assert set(figures) - set(paper_rows()) <= set(list_models())


def test_everything_is_written_and_can_be_loaded(tmp_path: Path) -> None:
    out = tmp_path / "results" / "accuracy" / "rohrer100k_scs"
    assert write_result(make(), out, command=["scs-eval", "accuracy", "a b"]) == out
    assert names(out) == FILES
    assert names(out.parent) == {out.name}, "nothing is left beside"
    assert (out / "figure.png").read_bytes().startswith(b"\x89PNG")
    assert (out / "figure.pdf").read_bytes().startswith(b"%PDF")
    assert pd.read_csv(out / "table.csv")["accuracy"].tolist() == [0.75]
    assert load_result(out).table().equals(make().table())


def test_run_json_says_how_it_was_made(tmp_path: Path) -> None:
    write_result(make(), tmp_path / "out", command=["scs-eval", "accuracy", "a b"])
    run = json.loads((tmp_path / "out" / "run.json").read_text())
    assert run["command"] == "scs-eval accuracy 'a b'"
    assert run["settings"]["seed"] == 0
    assert run["settings"]["device"] == "cpu"
    assert run["versions"]["scs_eval"] == __version__
    assert {"python", "torch"} <= run["versions"].keys()
    assert run["time"].endswith("+00:00")


@pytest.mark.usefixtures("real_figures")
def test_the_same_result_gives_the_same_files(tmp_path: Path) -> None:
    first, second = (write_result(make(), tmp_path / name) for name in "ab")
    for name in FILES - {"run.json", "arrays.npz"}:  # which hold the time
        assert (first / name).read_bytes() == (second / name).read_bytes(), name
    assert b"CreationDate" not in (first / "figure.pdf").read_bytes()  # both are of the same second


def test_an_earlier_result_is_replaced_whole(tmp_path: Path) -> None:
    out = write_result(make(hits=4), tmp_path / "out")
    run = json.loads((out / "run.json").read_text())
    (out / "extra.csv").write_text("from an earlier version")
    (out / "run.json").write_text(json.dumps(run | {"files": [*run["files"], "extra.csv"]}))
    write_result(make(hits=1), out)
    assert names(out) == FILES
    assert pd.read_csv(out / "table.csv")["accuracy"].tolist() == [0.25]


def fail_to_draw(self: AccuracyResult) -> None:
    raise RuntimeError("no figure")


def fail_to_save(self: AccuracyResult, directory: Path) -> None:
    (directory / "half").write_text("")
    raise OSError(28, "No space left on device")


def test_a_failure_leaves_the_earlier_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = write_result(make(hits=4), tmp_path / "out")
    monkeypatch.setattr(AccuracyResult, "save", fail_to_save)
    with pytest.raises(OSError, match="No space"):
        write_result(make(hits=1), out)
    assert names(tmp_path) == {"out"}
    assert pd.read_csv(out / "table.csv")["accuracy"].tolist() == [1]


def test_a_failure_leaves_nothing_where_nothing_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(AccuracyResult, "save", fail_to_save)
    with pytest.raises(OSError, match="No space"):
        write_result(make(), tmp_path / "out")
    assert names(tmp_path) == set()


def test_a_figure_that_fails_costs_no_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(AccuracyResult, "figures", fail_to_draw)
    with pytest.raises(FigureError, match=r"accuracy could not be drawn .*no figure.*everything else is in"):
        write_result(make(hits=1), tmp_path / "out")
    assert names(tmp_path / "out") == FILES - {"figure.png", "figure.pdf", "figure.svg"}
    assert pd.read_csv(tmp_path / "out" / "table.csv")["accuracy"].tolist() == [0.25]
    write_result(make(hits=1), tmp_path / "out", failures=(failures := []))
    assert len(failures) == 1
    monkeypatch.undo()
    assert names(write_result(make(), tmp_path / "out")) == FILES, "what is there is ours"


def test_a_figure_that_fails_costs_no_comparison(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = load_data("sample", n=10)
    result = scs_eval.compare(
        {"a": load_model("rohrer25k_conv")}, data.images, data.labels, classes=data.classes, analyses=["accuracy"]
    )
    monkeypatch.setattr(AccuracyComparison, "figures", fail_to_draw)
    with pytest.raises(FigureError, match="everything else is in"):
        scs_eval.write_comparison(result, tmp_path / "out")
    assert {"report.html", "table.csv", "figure.png"} <= names(tmp_path / "out")
    assert names(tmp_path / "out" / "accuracy") == FILES - {"figure.png", "figure.pdf", "figure.svg"}


def test_no_room_for_figures_costs_no_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And no half of a figure stays."""

    def fill_disk(self: Figure, path: Path, **options: object) -> None:
        path.write_bytes(b"half")
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Figure, "savefig", fill_disk)
    with pytest.raises(InputError, match=r"no room.*everything else is in"):
        write_result(make(hits=1), tmp_path / "out")
    assert names(tmp_path / "out") == FILES - {"figure.png", "figure.pdf", "figure.svg"}


def test_other_peoples_files_are_never_replaced(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(InputError, match=r"thesis\.tex"):
        write_result(make(), tmp_path)
    out = write_result(make(), tmp_path / "out")
    (out / "notes.txt").write_text("mine")
    with pytest.raises(InputError, match=r"notes\.txt"):
        write_result(make(), out)
    assert names(out) == FILES | {"notes.txt"}


def test_a_note_is_found_at_every_level(tmp_path: Path) -> None:
    """A comparison has a folder for each analysis, and a user may put a note there."""

    def beside(folder: Path, run: object) -> None:
        write_result(make("part"), folder / "accuracy")
        (folder / "report.html").write_text("<html>")

    out = write_result(make(), tmp_path / "out", beside=beside)
    assert write_result(make(), out, beside=beside) == out, "all of that is ours"
    manifest = json.loads((out / "run.json").read_text())["files"]
    assert {"report.html", "accuracy/table.csv", "accuracy/run.json"} <= set(manifest)
    note = out / "accuracy" / "note.txt"
    note.write_text("mine")
    with pytest.raises(InputError, match=r"holds accuracy/note\.txt"):
        write_result(make(), out, beside=beside)
    assert note.read_text() == "mine"


def test_a_comparison_of_0_1_is_ours_but_for_the_note(tmp_path: Path) -> None:
    """Its manifest names folders."""
    out = write_result(
        make(), tmp_path / "out", beside=lambda folder, run: write_result(make("part"), folder / "accuracy") and None
    )
    run = json.loads((out / "run.json").read_text())
    (out / "run.json").write_text(json.dumps(run | {"files": [path.name for path in out.iterdir()]}))
    assert foreign_file(out) is None
    (out / "accuracy" / "note.txt").write_text("mine")
    assert foreign_file(out) == "accuracy/note.txt"


def test_a_note_that_came_during_the_work_costs_no_result(tmp_path: Path) -> None:
    out = write_result(make(), tmp_path / "out")
    assert available_target(out) == out
    (out / "note.txt").write_text("mine")
    other = write_result(make(), available_target(out))
    assert other == tmp_path / "out-2"
    assert names(other) == FILES
    assert (out / "note.txt").read_text() == "mine"


def test_a_note_of_the_last_moment_is_brought_back(tmp_path: Path) -> None:
    out = write_result(make(hits=4), tmp_path / "out")
    with replacing(out) as new:
        make(hits=1).save(new)
        (new / "run.json").write_text('{"files": ["result.json", "arrays.npz", "run.json"]}')
        (out / "folder").mkdir()
        (out / "folder" / "note.txt").write_text("mine")
    assert names(out) == {"result.json", "arrays.npz", "run.json", "folder"}
    assert (out / "folder" / "note.txt").read_text() == "mine"
    assert names(tmp_path) == {"out"}


@pytest.fixture(params=["swapped", "file by file"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """How a result takes the place of another: the second is for mounted volumes, which cannot be renamed."""
    if request.param == "file by file":
        monkeypatch.setattr("scs_eval.report.folder.exchange", lambda *_: False)
    return str(request.param)


@pytest.mark.usefixtures("way")
def test_a_result_takes_the_place_of_another(tmp_path: Path) -> None:
    out = write_result(
        make(hits=4), tmp_path / "out", beside=lambda folder, run: write_result(make("a"), folder / "old") and None
    )
    inode = out.stat().st_ino
    write_result(make(hits=1), out, beside=lambda folder, run: write_result(make("b"), folder / "new") and None)
    assert names(out) == FILES | {"new"}
    assert names(out / "new") == FILES
    assert pd.read_csv(out / "table.csv")["accuracy"].tolist() == [0.25]
    assert load_result(out / "new").label == "b"
    assert names(tmp_path) == {"out"}
    assert foreign_file(out) is None
    assert inode


def test_a_mounted_volume_is_written_to(tmp_path: Path) -> None:
    """`docker run -v volume:/out`: a mount point cannot be renamed, nor can files move into it from outside."""
    out = tmp_path / "out"
    out.mkdir()
    if os.name == "nt" or subprocess.run(["mount", "-t", "tmpfs", "none", str(out)], capture_output=True).returncode:
        pytest.skip("may not mount here")
    try:
        write_result(make(hits=4), out)
        write_result(make(hits=1), out)
        assert names(out) == FILES
        assert pd.read_csv(out / "table.csv")["accuracy"].tolist() == [0.25]
        assert names(tmp_path) == {"out"}
    finally:
        subprocess.run(["umount", str(out)], check=True)


def killed_at(step: int, work: Callable[[], object], *, swap: bool) -> bool:
    """Do the work in a process that is killed before its step-th change of the disk; whether it was."""
    child = os.fork()
    if child == 0:
        steps = iter(range(10_000))

        def counted(function: Callable[..., object]) -> Callable[..., object]:
            def change(*arguments: object, **options: object) -> object:
                if next(steps) == step:
                    os._exit(9)  # as kill -9 does: no `finally`
                return function(*arguments, **options)

            return change

        folder.exchange = counted(folder.exchange) if swap else lambda *_: False
        for name in ("rename", "replace", "unlink", "rmdir", "mkdir"):
            setattr(Path, name, counted(getattr(Path, name)))
        with contextlib.suppress(BaseException):
            work()
            os._exit(0)
        os._exit(1)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert code in (0, 9)
    return code == 9


def write_another(out: Path) -> None:
    """Other files than `write_result` writes: one more in a folder, and no figures."""
    with folder.replacing(out) as new:
        make(hits=1).save(new)
        (new / "inside").mkdir()
        for name in ("table.csv", "inside/more.csv"):
            (new / name).write_text("new")
        (new / "run.json").write_text(json.dumps({"files": sorted({"run.json", *folder.list_files(new)})}))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.parametrize("swap", [True, False], ids=["swapped", "file by file"])
def test_a_kill_at_any_moment_leaves_a_whole_result(tmp_path: Path, swap: bool) -> None:
    """Every step that changes the disk is the last one once."""
    seen, killed = [], True
    earlier = write_result(make(hits=4), tmp_path / "earlier")
    while killed:
        out = tmp_path / str(len(seen)) / "out"
        shutil.copytree(earlier, out)
        killed = killed_at(len(seen), lambda out=out: write_another(out), swap=swap)
        accuracy = load_result(out).table()["accuracy"].item()
        assert (newest(out, "table.csv").read_text() == "new") == (accuracy == 0.25), len(seen)
        write_result(make(hits=2), out)
        assert names(out) == FILES, "all that was there is ours"
        assert names(out.parent) == {"out"}, "no file is left behind"
        seen.append(accuracy)
    assert len(seen) > 4
    assert seen == sorted(seen, reverse=True), "the earlier result, and from some step on the new one"
    assert set(seen) == {1, 0.25}


def test_two_equal_runs_have_equal_tables(tmp_path: Path) -> None:
    slow = write_result(replace(make(), seconds=9.5), tmp_path / "slow")
    fast = write_result(replace(make(), seconds=0.5), tmp_path / "fast")
    for name in ("table.csv", "table.md", "classes.csv"):
        assert (slow / name).read_bytes() == (fast / name).read_bytes(), name
    assert json.loads((slow / "run.json").read_text())["seconds"] == {"rohrer100k_scs": 9.5}


ODD = ["$\\frac{$", "$", "a_b^c$x$", "<b>&amp;", "ä=*", "Ж中"]


@pytest.mark.usefixtures("real_figures")
@pytest.mark.parametrize("name", ODD)
def test_names_are_drawn_as_they_are(tmp_path: Path, name: str) -> None:
    """What matplotlib would take for mathematics too."""
    one = replace(make(name), classes=(name, "dog"))
    both = AccuracyComparison.of([one, make("other")], label=name)
    for result in (one, both):
        out = write_result(result, tmp_path / "out")
        assert (out / "figure.png").exists()
        assert load_result(out).label == name
    assert name in [text.get_text() for text in both.figure().findobj(Text) if not text.get_parse_math()]


@pytest.mark.parametrize("name", ["", "x" * 201, "bad\udcff", "\x1b[2J", "two\nlines"])
def test_names_that_cannot_be_written_are_refused_before_the_work(name: str) -> None:
    with pytest.raises(InputError, match="expected a label of"):
        check_name(name, what="label")


def test_an_empty_directory_may_be_used(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    assert names(write_result(make(), tmp_path / "out")) == FILES


def test_a_target_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    for out in (tmp_path / "file", tmp_path / "file" / "out", tmp_path / ("x" * 300)):
        with pytest.raises(InputError, match="choose another --out"):
            check_target(out)

    def deny(self: Path, *args: object, **options: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "mkdir", deny)
    with pytest.raises(InputError, match="Permission denied"):
        write_result(make(), tmp_path / "out")


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
    assert indices_digest([1, 2**40]) == hashlib.sha256(struct.pack("<2q", 1, 2**40)).hexdigest()
    assert indices_digest([1, 2]) == indices_digest(np.array([1, 2], dtype=np.int32)) != indices_digest([2, 1])


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
    from scs_eval.models.zoo.registry import canonical_name, list_models

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


def test_a_comparison_is_written_from_python(tmp_path):
    """The folder and the page that `scs-eval compare` makes, without the command line."""
    models = {"a": load_model("rohrer25k_conv"), "b": load_model("rohrer25k_scs")}
    data = load_data("sample", n=20)
    result = scs_eval.compare(
        models, data.images, data.labels, classes=data.classes, indices=data.indices,
        analyses=["accuracy", "contributions"], sizes={"contributions": 3},
    )  # fmt: skip
    page = scs_eval.write_comparison(result, tmp_path / "out", models=models, gates=[("accuracy < 0.1", False)])
    text = page.read_text()
    assert page == tmp_path / "out" / "report.html"
    assert "accuracy &lt; 0.1" in text
    assert f"{sum(parameter.numel() for parameter in models['a'].parameters()):,}" in text, "the model's card"
    assert str(sorted(data.indices.tolist())[0]) in text
    assert (tmp_path / "out" / "contributions" / "table.csv").exists()
    again = scs_eval.load_result(tmp_path / "out")
    assert again.image_indices["contributions"] == tuple(data.indices[:3].tolist())
    assert scs_eval.write_result(result.parts["accuracy"], tmp_path / "one") == tmp_path / "one"
