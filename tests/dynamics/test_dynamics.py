"""Training records as the trainer writes them: known numbers, the right curves, damage refused."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

from scs_eval.analyses.core.result import load_result
from scs_eval.analyses.dynamics import POINTS, Dynamics, dynamics
from scs_eval.cli.commands.dynamics import command
from scs_eval.errors import InputError

RECORDS = """epoch,lr,train_loss,train_accuracy,test_loss,test_accuracy,train_seconds,eval_seconds
1,0.001,2.0,0.3,2.1,0.25,30,2
2,0.01,1.0,0.6,1.2,0.625,31,2
3,0.0001,0.5,0.8,1.5,0.5,50,2
"""
# Two layers; the exponents of three kernels: the first rises, the second turns back, the third stays, then falls.
VALUES = {  # (layer, quantity, index): its values, from the epoch that is named
    ("conv1", "weight_norm", ""): (0, "5 6 4"),
    ("conv1", "q", ""): (0, "0.001"),
    ("conv1", "grad_norm", ""): (1, "0.5 0.25"),
    ("conv1", "p", 0): (0, "1.0 1.5 1.75"),
    ("conv1", "p", 1): (0, "2.0 2.5 2.25"),
    ("conv1", "p", 2): (0, "3.0 3.0 2.75"),
    ("head", "weight_norm", ""): (0, "7 8 9"),
}
LAYERS = "epoch,layer,quantity,index,value\n" + "".join(
    f"{epoch},{layer},{quantity},{index},{value}\n"
    for (layer, quantity, index), (first, values) in VALUES.items()
    for epoch, value in enumerate(values.split(), first)
)
NORMS = "step,layer,weight_norm\n" + "".join(f"{i},conv1,{5 + i}\n{i},head,{7 + i}\n" for i in range(4))


def make_run(directory: Path, *, layers: str = LAYERS, norms: str | None = None, records: str = RECORDS) -> Path:
    directory.mkdir(parents=True)
    about = {"model": "rohrer100k_scs", "recipe": {"name": "scs"}, "seed": 3, "epochs": 3}
    (directory / "run.json").write_text(json.dumps(about))
    (directory / "records.csv").write_text(records)
    (directory / "layers.csv").write_text(layers)
    if norms is not None:
        (directory / "norms.csv").write_text(norms)
    return directory


@pytest.fixture
def scs(tmp_path: Path) -> Path:
    return make_run(tmp_path / "scs")


@pytest.fixture
def conv(tmp_path: Path) -> Path:
    """Without exponents, and with norms at every mini-batch."""
    plain = "".join(line + "\n" for line in LAYERS.splitlines() if ",p," not in line)
    return make_run(tmp_path / "conv", layers=plain, norms=NORMS)


def test_table_has_the_last_and_the_best_epoch(scs: Path) -> None:
    row = dynamics([scs]).table().iloc[0]
    assert (row["run"], row["model"], row["seed"], row["epochs"]) == ("scs", "rohrer100k_scs", 3, 3)
    assert (row["test_accuracy"], row["best_test_accuracy"], row["best_epoch"]) == (0.5, 0.625, 2)
    assert (row["train_loss"], row["test_loss"], row["train_seconds"]) == (0.5, 1.5, 31)


def test_summary_for_a_reader(scs: Path) -> None:
    row = dynamics([scs]).summary().iloc[0]
    assert (row["test %"], row["best test %"]) == ("50.0", "62.5 (epoch 2)")


def test_layers_table_tells_what_became_of_each(scs: Path) -> None:
    table = dynamics([scs]).tables()["layers"].set_index(["layer", "quantity"])
    p = table.loc[("conv1", "p")]
    assert (p["kernels"], p["first"], p["last"], p["lowest"], p["highest"], p["monotone"]) == (3, 2, 2.25, 1, 3, 2)
    norm = table.loc[("conv1", "weight_norm")]
    assert (norm["kernels"], norm["first"], norm["last"], norm["monotone"]) == (1, 5, 4, 0)
    assert table.loc[("head", "weight_norm"), "monotone"] == 1
    assert table.loc[("conv1", "grad_norm"), "first"] == 0.5


def test_epochs_table_has_every_run(scs: Path, conv: Path) -> None:
    epochs = dynamics([scs, conv]).tables()["epochs"]
    assert epochs["run"].tolist() == ["scs"] * 3 + ["conv"] * 3
    assert epochs["lr"].tolist() == [0.001, 0.01, 0.0001] * 2


def test_weight_norms_per_batch_where_logged(scs: Path, conv: Path) -> None:
    by_epoch, by_batch = dynamics([scs, conv]).results
    time, curves = by_epoch.weight_norms()
    assert time == "epoch"
    assert [array.tolist() for array in curves["conv1"]] == [[0, 1, 2], [5, 6, 4]]
    time, curves = by_batch.weight_norms()
    assert time == "mini-batch"
    assert [array.tolist() for array in curves["head"]] == [[0, 1, 2, 3], [7, 8, 9, 10]]


def test_many_mini_batches_are_thinned_with_both_ends(tmp_path: Path) -> None:
    rows = 3 * POINTS + 2
    norms = "step,layer,weight_norm\n" + "".join(f"{i},conv1,1.5\n" for i in range(rows))
    _, curves = dynamics([make_run(tmp_path / "long", norms=norms)]).results[0].weight_norms()
    steps = curves["conv1"][0]
    assert len(steps) == POINTS
    assert (steps[0], steps[-1]) == (0, rows - 1)


def test_exponents_of_a_layer(scs: Path) -> None:
    found = dynamics([scs], layer="conv1").results[0].exponents()
    assert found is not None
    layer, epochs, p = found
    assert (layer, epochs.tolist()) == ("conv1", [0, 1, 2])
    assert p.tolist() == [[1, 2, 3], [1.5, 2.5, 3], [1.75, 2.25, 2.75]]


def test_a_layer_without_exponents(scs: Path, conv: Path) -> None:
    with pytest.raises(InputError, match="no p of layer 'head' in scs; it has p of: conv1"):
        dynamics([scs], layer="head")
    with pytest.raises(InputError, match="no layer"):
        dynamics([conv], layer="conv1")
    assert len(dynamics([scs, conv], layer="conv1").with_exponents()) == 1, "a network without any is no mistake"


def curves(ax: object) -> list[list[float]]:
    lines = [line.get_ydata() for line in ax.lines]  # type: ignore[attr-defined]
    return [list(map(float, y)) for y in lines if len(y)]


def test_figures_draw_the_records(scs: Path, conv: Path) -> None:
    result = dynamics([scs, conv])
    figures = result.figures()
    assert list(figures) == ["figure", "norms", "norms_relative", "p"]
    accuracy, loss = figures["figure"].axes
    assert curves(accuracy) == [[30, 60, 80], [25, 62.5, 50]] * 2
    assert curves(loss) == [[2, 1, 0.5], [2.1, 1.2, 1.5]] * 2
    assert [text.get_text() for text in accuracy.texts] == ["scs", "conv"]
    first, second = figures["norms"].axes
    assert curves(first) == [[5, 6, 4], [7, 8, 9]]
    assert curves(second) == [[5, 6, 7, 8], [7, 8, 9, 10]]
    assert (first.get_xlabel(), second.get_xlabel()) == ("epoch", "mini-batch")
    (exponents,) = figures["p"].axes
    assert curves(exponents) == [[1, 1.5, 1.75], [2, 2.5, 2.25], [3, 3, 2.75], [2, 2.5, 2.25]]


def test_one_epoch_is_drawn_as_points(tmp_path: Path) -> None:
    run = make_run(tmp_path / "short", records="".join(line + "\n" for line in RECORDS.splitlines()[:2]))
    ax = dynamics([run]).figure().axes[0]
    assert [line.get_marker() for line in ax.lines if len(line.get_xdata()) == 1] == ["x", "o"]


def test_relative_norms_are_drawn_as_doublings(scs: Path) -> None:
    found = dynamics([scs])
    curves = [line.get_ydata() for line in found.norms_figure(relative=True).axes[0].lines]
    plain = [line.get_ydata() for line in found.norms_figure().axes[0].lines]
    assert len(curves) == len(plain) > 0
    for curve, norms in zip(curves, plain, strict=True):
        np.testing.assert_allclose(2**curve, norms / norms[0])
    assert "norms_relative" in found.figures()


def test_ticks_of_a_small_change_differ(tmp_path: Path) -> None:
    small = LAYERS.replace(",5\n", ",5.0\n").replace(",6\n", ",5.05\n").replace(",4\n", ",5.1\n")
    small = small.replace(",8\n", ",7.02\n").replace(",9\n", ",7.04\n")
    figure = dynamics([make_run(tmp_path / "small", layers=small)]).norms_figure(relative=True)
    figure.draw_without_rendering()
    words = [tick.get_text() for tick in figure.axes[0].get_yticklabels()]
    assert len(set(words)) == len(words) > 3


def test_many_runs_have_colours_of_their_own_and_pages(tmp_path: Path) -> None:
    found = dynamics([make_run(tmp_path / f"run{i}") for i in range(12)])
    figures = found.figures()
    assert list(figures) == ["figure", "norms", "norms-2", "norms_relative", "norms_relative-2", "p", "p-2"]
    assert [len(figures[name].axes) for name in ("norms", "norms-2")] == [6, 6]
    assert figures["norms-2"].get_supxlabel() == "Runs 7 to 12 of 12 (page 2 of 2)."
    tests = [line for line in figures["figure"].axes[1].lines if line.get_linestyle() == "-"]
    assert len({line.get_color() for line in tests}) == 12


def test_no_exponents_no_figure(conv: Path) -> None:
    assert list(dynamics([conv]).figures()) == ["figure", "norms", "norms_relative"]


def test_several_runs_may_share_axes(scs: Path, conv: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure()
    ax = figure.subplots()
    for run in dynamics([scs, conv]).results:
        assert run.figure(ax=ax) is figure
    tests = [line for line in ax.lines if len(line.get_ydata()) and line.get_linestyle() == "-"]
    assert len({line.get_color() for line in tests}) == 2


def test_saved_and_loaded_is_the_same(scs: Path, conv: Path, tmp_path: Path) -> None:
    result = dynamics([scs, conv], layer="conv1")
    result.save(tmp_path)
    loaded = load_result(tmp_path)
    assert isinstance(loaded, Dynamics)
    assert loaded.layer == "conv1"
    for name, table in result.tables().items():
        pd.testing.assert_frame_equal(table, loaded.tables()[name])
    assert loaded.results[1].norms.dtype == result.results[1].norms.dtype


def test_runs_of_one_name_go_by_their_path(tmp_path: Path) -> None:
    paths = [make_run(tmp_path / parent / "run") for parent in "ab"]
    assert [run.label for run in dynamics(paths).results] == [str(path) for path in paths]


def test_a_run_that_blew_up_is_drawn_as_far_as_it_went(tmp_path: Path) -> None:
    records = RECORDS + "4,0.01,nan,0.1,nan,nan,30,2\n"
    result = dynamics([make_run(tmp_path / "nan", records=records)])
    assert result.table()["best_epoch"].tolist() == [2]
    assert np.isnan(result.table()["test_loss"].iloc[0])
    result.figure().draw_without_rendering()


@pytest.mark.parametrize("name", ["run.json", "records.csv", "layers.csv"])
def test_missing_files(scs: Path, name: str) -> None:
    (scs / name).unlink()
    with pytest.raises(InputError, match=f"no training run in .*: {name} is missing"):
        dynamics([scs])


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("run.json", b"{", "damaged"),
        ("run.json", b"[]", "names its model"),
        ("records.csv", b"", "damaged"),
        ("records.csv", b"epoch,lr\n1,2\n", "train_loss is missing"),
        ("records.csv", RECORDS.replace("0.625", "x").encode(), "column test_accuracy"),
        ("records.csv", RECORDS.replace("\n2,", "\n2.5,").encode(), "column epoch: expected whole numbers"),
        ("records.csv", RECORDS.encode()[:86], "has not finished an epoch"),
        ("records.csv", RECORDS.encode() + b"4,1,2,3,4,5,6,7,8,9\n", "damaged"),
        ("layers.csv", b"\xff\xfe\x00", "damaged"),
        ("layers.csv", LAYERS.replace("0,conv1,p,0,", "0,conv1,p,zero,").encode(), "column index"),
    ],
)
def test_damaged_files(scs: Path, name: str, content: bytes, message: str) -> None:
    (scs / name).write_bytes(content)
    with pytest.raises(InputError, match=message):
        dynamics([scs])


def test_damaged_norms(conv: Path) -> None:
    (conv / "norms.csv").write_text("step\n1\n")
    with pytest.raises(InputError, match=r"norms\.csv is damaged"):
        dynamics([conv])


def test_the_command(scs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(command, ["scs", "--layer", "conv1"], catch_exceptions=False)
    assert done.stdout.splitlines()[-1] == "results/dynamics/scs"
    written = {path.name for path in Path("results/dynamics/scs").iterdir()}
    assert {"table.csv", "epochs.csv", "layers.csv", "figure.png", "norms.pdf", "p.png", "run.json"} <= written


def test_the_command_never_writes_over_a_run(scs: Path) -> None:
    with pytest.raises(InputError, match="choose another --out"):
        CliRunner().invoke(command, [str(scs), "--out", str(scs)], catch_exceptions=False)
    assert dynamics([scs]).table()["epochs"].tolist() == [3]
