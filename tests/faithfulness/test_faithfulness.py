"""Faithfulness of small networks: what the result holds, its tables and figures, and the command around it."""

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args, get_type_hints

import numpy as np
import pandas as pd
import pytest
import torch
from click.testing import CliRunner
from torch import Tensor, nn

from scs_eval.analyses.attribution.attribute import attribute
from scs_eval.analyses.attribution.metric_records import family
from scs_eval.analyses.attribution.score_table import score_table
from scs_eval.analyses.core import batching as batching_module
from scs_eval.analyses.core.result import load_result, side_by_side
from scs_eval.analyses.core.statistics import holm, mean_interval, paired_test
from scs_eval.analyses.faithfulness import FaithfulnessOptions, faithfulness
from scs_eval.analyses.faithfulness import runner as runner_module
from scs_eval.analyses.faithfulness.pixel_curves import BASELINES, ORDERS, area
from scs_eval.analyses.faithfulness.result import FaithfulnessComparison, FaithfulnessResult
from scs_eval.cli.commands import faithfulness as cli
from scs_eval.cli.main import main
from scs_eval.errors import InputError, NotApplicableError

METRICS = family("first")
CLASSES = ("red", "green", "blue")
IMAGES = torch.rand(4, 3, 8, 8, generator=torch.Generator().manual_seed(1))


def network() -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Sequential(
            nn.Conv2d(3, 5, 3), nn.BatchNorm2d(5), nn.ReLU(), nn.Flatten(), nn.Linear(5 * 36, 3)
        )  # fmt: skip


def result(**options: Any) -> FaithfulnessResult:
    return measured(IMAGES, **{"steps": 8, "samples": 5, "label": "m", "methods": ("grad", "wx"), **options})


def measured(images: Tensor, **given: Any) -> FaithfulnessResult:
    """The network on images; fields of the options among the keywords."""
    options = {name: given.pop(name) for name in tuple(given) if name in FaithfulnessOptions.__dataclass_fields__}
    return faithfulness(network(), images, **{"classes": CLASSES, "options": FaithfulnessOptions(**options), **given})


@pytest.fixture(scope="module")
def found() -> FaithfulnessResult:
    return result()


def test_shapes_and_layers(found: FaithfulnessResult) -> None:
    assert found.methods == ("grad", "wx", "random", "edges", "untrained")
    assert found.layers == ("4", "0")  # the head, then the convolution with its norm
    assert found.deletion.shape == found.insertion.shape == (5, 4, 9)
    assert found.spearman_absolute.shape == found.spearman_signed.shape == found.ssim.shape == (5, 2, 4)
    assert found.infidelity.shape == (5, 4)
    assert found.maps.shape == (5, 4, 8, 8)
    assert found.examples.shape == (5, 3, 1, 8, 8)
    assert found.targets.tolist() == network().eval()(IMAGES).argmax(1).tolist()


def test_maps_are_those_of_the_method(found: FaithfulnessResult) -> None:
    model = network().eval()
    maps = attribute(model, IMAGES, torch.from_numpy(found.targets), method="wx")
    np.testing.assert_allclose(found.maps[1], maps.sum(1), rtol=1e-5, atol=1e-7)  # fp32
    np.testing.assert_allclose(found.examples[1, 0, 0], maps.abs().amax(1)[0], rtol=1e-5, atol=1e-7)


def test_bands_of_probabilities_stay_probabilities(found: FaithfulnessResult) -> None:
    skewed = np.linspace(0, 1, len(found.targets))[:, None] ** 4 * np.ones((1, len(found.fractions)))
    few = replace(found, deletion=np.stack([skewed] * len(found.methods)))
    band = few.curves().query("curve == 'deletion'")[["low", "mean", "high"]]
    assert ((band >= 0) & (band <= 1)).all(axis=None)
    assert (band.high == 1).any()  # which is where the interval was cut


def test_curves_begin_and_end_where_they_must(found: FaithfulnessResult) -> None:
    probability = network().eval()(IMAGES).softmax(1).max(1).values.detach()
    black = network().eval()(torch.zeros(1, 3, 8, 8)).softmax(1)[0].detach()[found.targets]
    for method in range(5):
        for curves, ends in ((found.deletion, (probability, black)), (found.insertion, (black, probability))):
            np.testing.assert_allclose(curves[method][:, 0], ends[0], rtol=1e-5)
            np.testing.assert_allclose(curves[method][:, -1], ends[1], rtol=1e-5)


def test_controls(found: FaithfulnessResult) -> None:
    edges, noise = found.methods.index("edges"), found.methods.index("random")
    np.testing.assert_allclose(found.spearman_signed[edges], 1)
    np.testing.assert_allclose(found.ssim[edges], 1)
    assert np.abs(found.spearman_signed[noise]).max() < 0.5  # 64 pixels: a deviation of 1/8
    tables = found.tables()
    assert set(tables) == {"table", "metrics", "cascade", "curves", "images"}
    for table in tables.values():
        assert {"random", "edges", "untrained"} <= set(table["method"])
    assert set(found.table()["metric"]) == set(METRICS)


def test_table_is_means_and_paired_tests(found: FaithfulnessResult) -> None:
    table = found.table().set_index(["method", "metric"])
    areas = area(found.deletion, found.fractions)
    share = found.infidelity / found.change
    for metric, values, least in (("deletion", areas, 0), ("infidelity", share, 0), ("ssim", found.ssim[:, -1], -1)):
        row, expected = table.loc[("wx", metric)], mean_interval(values[1], bounds=(least, 1))
        assert (row["mean"], row["low"], row["high"]) == pytest.approx(tuple(map(float, expected)))
        assert row["difference"] == pytest.approx(paired_test(values[1], values[2]).difference)
        assert row["n"] == 4
        assert row["verdict"] == "too few images (n = 4)"
    assert table["p_holm"].isna().all()


def test_methods_are_tested_against_the_random_map() -> None:
    rng = np.random.default_rng(0)
    scores = {metric: rng.normal(size=(3, 30)) for metric in METRICS}
    scores["infidelity"][0] = np.nan
    table = score_table("m", ("empty", "other", "random"), scores, METRICS).set_index(["method", "metric"])
    expected = paired_test(scores["ssim"][1], scores["ssim"][2])
    assert table.loc[("other", "ssim"), ["difference", "p_value"]].tolist() == pytest.approx(expected[::3])
    tested = table[table["p_value"].notna()]
    assert len(tested) == 2 * len(METRICS) - 1  # all but the random map itself and the metric without a value
    np.testing.assert_allclose(tested["p_holm"], holm(tested["p_value"]))
    assert table.loc[("random", "ssim"), "verdict"] == "the reference"
    assert table.loc[("empty", "infidelity"), "verdict"] == "no value"


def test_tables_say_the_baseline() -> None:
    one = result(baseline="mean", sigma=0.05)
    conditions = one.table().set_index("metric")["conditions"]
    assert set(conditions["deletion"]) == {"baseline mean, signed order, 8 steps"}
    assert set(conditions["infidelity"]) == {"σ = 0.05, 5 samples"}
    assert {"deletion (mean) ↓", "infidelity (σ 0.05) ↓"} <= set(one.summary())
    assert "the image's mean colour" in one.figure().get_supxlabel().replace("\n", " ")


def test_verdicts_know_which_way_is_better() -> None:
    steps = np.linspace(0, 0.01, 20)
    scores = {metric: np.stack([0.2 + steps, 0.5 - steps, 0.5 + 2 * steps]) for metric in METRICS}
    table = score_table("m", ("low", "random", "same"), scores, METRICS).set_index(["method", "metric"])["verdict"]
    assert table["low", "deletion"] == table["low", "infidelity"] == "better"
    assert table["low", "insertion"] == "worse"
    assert table["low", "ssim"] == "unlike the original"
    assert table["same", "deletion"] == "worse"
    assert table["random", "deletion"] == "the reference"
    scores["deletion"][2] = scores["deletion"][1][::-1]
    table = score_table("m", ("low", "random", "same"), scores, METRICS).set_index(["method", "metric"])["verdict"]
    assert table["same", "deletion"] == "no better"


def test_maps_without_similarity_are_left_out_of_the_mean(found: FaithfulnessResult) -> None:
    gone = found.ssim.copy()
    gone[0, -1, 1:3] = np.nan
    gone[1] = np.nan
    table = replace(found, ssim=gone).table().set_index(["method", "metric"])
    assert table.loc[("grad", "ssim"), "n"] == 2
    assert table.loc[("grad", "ssim"), "mean"] == pytest.approx(found.ssim[0, -1, [0, 3]].mean())
    assert table.loc[("wx", "ssim"), "n"] == 0
    assert np.isnan(table.loc[("wx", "ssim"), "p_value"])
    assert list(replace(found, ssim=gone).figures()) == ["figure", "scores", "cascade", "maps"]


def test_a_right_map_of_a_linear_model_is_perfect() -> None:
    model = nn.Sequential(nn.Flatten(), nn.Linear(192, 3)).double()
    perfect = faithfulness(
        model, IMAGES, classes=CLASSES, methods="wx", options=FaithfulnessOptions(steps=64, samples=10)
    )
    scores = {metric: dict(zip(perfect.methods, values, strict=True)) for metric, values in perfect.scores.items()}
    assert (scores["infidelity"]["wx"] < 1e-12).all()
    assert (scores["infidelity"]["random"] > 0.3).all()
    for control in ("random", "edges", "untrained"):
        assert (scores["deletion"]["wx"] < scores["deletion"][control]).all()
        assert (scores["insertion"]["wx"] > scores["insertion"][control]).all()


def test_options_change_what_they_say() -> None:
    signed, magnitude, blur = result(), result(order="magnitude"), result(baseline="blur")
    assert not np.allclose(signed.deletion[0], magnitude.deletion[0])
    assert not np.allclose(signed.deletion[..., -1], blur.deletion[..., -1])
    np.testing.assert_array_equal(signed.infidelity, magnitude.infidelity)
    again, other = result(), result(seed=1)
    np.testing.assert_array_equal(signed.deletion, again.deletion)
    np.testing.assert_array_equal(signed.ssim, again.ssim)
    assert not np.allclose(signed.infidelity[0], other.infidelity[0])
    assert not np.allclose(signed.ssim[0], other.ssim[0])
    asked = result(targets=torch.tensor([2, 0, 1, 0]))
    assert asked.targets.tolist() == [2, 0, 1, 0]


@pytest.mark.parametrize("failing", [False, True])
def test_model_is_left_as_it_was(failing: bool) -> None:
    model = network()
    model[0].eval()
    model(IMAGES).sum().backward()
    model[4].weight.requires_grad_(False)
    hooked = model[2].register_forward_hook(lambda *_: None)
    state = {key: value.clone() for key, value in model.state_dict().items()}
    grads = [None if p.grad is None else p.grad.clone() for p in model.parameters()]
    modes, noise = [module.training for module in model.modules()], torch.get_rng_state()
    few = FaithfulnessOptions(samples=3, steps=8)
    options: dict[str, Any] = {"classes": CLASSES, "methods": ("grad", "gradcam"), "options": few}
    if failing:
        with pytest.raises(ZeroDivisionError):
            faithfulness(model, IMAGES, progress=lambda count: 1 / (count - len(IMAGES)), **options)
    else:
        faithfulness(model, IMAGES, **options)
    assert [module.training for module in model.modules()] == modes
    assert all(torch.equal(value, state[key]) for key, value in model.state_dict().items())
    for parameter, grad in zip(model.parameters(), grads, strict=True):
        assert grad is None if parameter.grad is None else torch.equal(parameter.grad, grad)
    assert not model[4].weight.requires_grad
    assert list(model[2]._forward_hooks) == [hooked.id]
    assert not any(module._forward_pre_hooks or module._backward_hooks for module in model.modules())
    assert torch.equal(torch.get_rng_state(), noise)


def test_some_images_after_the_others_give_the_same_and_keep_few_maps(
    found: FaithfulnessResult, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner_module, "BLOCK", 3)
    monkeypatch.setattr(batching_module, "KEPT_BYTES", 2 * 4 * 64)  # of two images
    told: list[int] = []
    blocks = result(progress=told.append)
    assert told == [3, 1] * 5  # of each method and control
    assert blocks.maps.shape == (5, 2, 8, 8)
    whole = found.arrays()
    for name, values in blocks.arrays().items():
        expected = whole[name][:, :2] if name == "maps" else whole[name]
        close = {"rtol": 1e-4, "atol": 1e-6}  # fp32 in batches of another size
        np.testing.assert_allclose(values, expected, **close, err_msg=name)
    old = replace(found, sparseness=None, complexity=None)
    for name, values in old.more_scores.items():  # of before, with the maps of all images
        np.testing.assert_allclose(values, found.more_scores[name], rtol=1e-5, err_msg=name)


def test_unsuitable_methods_are_recorded_or_raise() -> None:
    model = nn.Sequential(nn.Flatten(), nn.Linear(192, 3))
    few = FaithfulnessOptions(steps=4, samples=2)
    some = faithfulness(model, IMAGES, classes=CLASSES, methods=("grad", "gradcam"), options=few)
    assert some.methods == ("grad", "random", "edges", "untrained")
    assert "needs a convolution" in some.left_out["gradcam"]
    with pytest.raises(NotApplicableError, match="needs a convolution"):
        faithfulness(model, IMAGES, classes=CLASSES, methods="gradcam", options=few)


def nan_image() -> Tensor:
    images = IMAGES.clone()
    images[2, 1, 3, 3] = float("nan")
    return images


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"images": nan_image()}, r"images in \[0, 1\], got \[nan"),
        ({"images": torch.rand(2, 3, 9, 9)}, "the model cannot take images of 3×9×9"),
        ({"images": torch.rand(2, 3, 6, 8)}, "at least 7×7"),
        ({"targets": torch.tensor([0, 1, 2, 3])}, "targets from 0 to 2, got 0 to 3"),
        ({"targets": torch.tensor([0, 1])}, "expected 4 targets"),
        ({"classes": ("red", "green")}, "expected 2 logits"),
        ({"methods": "gard"}, "did you mean grad"),
        ({"methods": ()}, "expected a method"),
        ({"steps": 0}, "from 1 to 64 steps"),
        ({"steps": 65}, "from 1 to 64 steps"),
        ({"baseline": "white"}, "baseline as one of black, mean, blur"),
        ({"order": "absolute"}, "order as one of signed, magnitude"),
        ({"sigma": 0.0}, "sigma as a finite number above 0"),
        ({"sigma": float("nan")}, "sigma as a finite number"),
        ({"samples": 0}, "samples as a whole number of at least 1"),
    ],
)
def test_bad_requests(options: dict[str, Any], message: str) -> None:
    given = {"images": IMAGES, "methods": "grad", "steps": 4, "samples": 2, **options}
    with pytest.raises(InputError, match=message) as error:
        measured(**given)
    assert "\n" not in str(error.value)


def test_the_options_name_every_baseline_and_order() -> None:
    hints = get_type_hints(FaithfulnessOptions)
    assert get_args(hints["baseline"]) == tuple(BASELINES)
    assert get_args(hints["order"]) == tuple(ORDERS)


def test_saved_and_loaded(found: FaithfulnessResult, tmp_path: Path) -> None:
    both = side_by_side([found, replace(found, label="other")], label="both")
    both.save(tmp_path)
    again = load_result(tmp_path)
    assert isinstance(again, FaithfulnessComparison)
    pd.testing.assert_frame_equal(again.table(), both.table())
    assert side_by_side([found], label="x") is found


def test_figures_show_all_methods_and_layers(found: FaithfulnessResult) -> None:
    from matplotlib import pyplot as plt

    both = FaithfulnessComparison.of([found, replace(found, label="other")], label="both")
    figures = both.figures()
    assert list(figures) == ["figure", "scores", "cascade", "maps", "maps-2"]
    assert len(figures["figure"].axes) == 4
    legend = figures["figure"].axes[0].get_legend()
    assert legend is not None
    names = [text.get_text().split()[0] for text in legend.get_texts()]
    assert sorted(names) == sorted(found.methods)
    areas = [float(text.get_text().split()[1]) for text in legend.get_texts()]
    assert areas == sorted(areas)  # of deletion: the best first
    assert "black" in figures["figure"].get_supxlabel()
    ticks = [label.get_text() for label in figures["cascade"].axes[-1].get_xticklabels()]
    assert ticks == ["trained", "4", "0"]
    assert all(ax.get_ylim()[0] >= -1.05 for ax in figures["cascade"].axes)  # no similarity is below −1
    assert len(figures["maps"].axes[0].images) == 1 + 5 * 3
    assert [label.get_text() for label in figures["scores"].axes[0].get_yticklabels()] == list(found.methods)
    _, ax = plt.subplots()
    assert found.figure(ax) is ax.figure
    assert len(ax.lines) == 5
    plt.close("all")


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path / "results"


def run(*arguments: str) -> tuple[str, BaseException | None]:
    done = CliRunner().invoke(cli.command, ["--model", "rohrer100k_scs", *arguments])
    assert done.exception is None or isinstance(done.exception, InputError | SystemExit), done.exception
    return done.output, done.exception


def test_command_writes_and_names_the_result(folder: Path) -> None:
    output, error = run(
        "--method", "wx", "--method", "guided-backprop", "-n", "3", "--steps", "4", "--baseline", "mean"
    )  # fmt: skip
    assert error is None, output
    assert output.splitlines()[-1] == "results/faithfulness/rohrer100k_scs"
    folder = folder / "faithfulness" / "rohrer100k_scs"
    assert "Left out: rohrer100k_scs, guided-backprop: guided-backprop needs ReLU modules" in output
    names = {path.name for path in folder.iterdir()}
    assert {f"{figure}.png" for figure in ("figure", "scores", "cascade", "maps")} <= names
    assert {f"{table}.csv" for table in ("table", "cascade", "curves", "images")} <= names
    table = pd.read_csv(folder / "table.csv")
    assert set(table["method"]) == {"wx", "random", "edges", "untrained"}
    settings = json.loads((folder / "run.json").read_text())["settings"]
    assert (settings["baseline"], settings["steps"], settings["n"], settings["target"]) == ("mean", 4, 3, "predicted")


def test_a_wrong_request_is_one_line_and_exit_code_2(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["scs-eval", "faithfulness", "--model", "rohrer100k_scs", "--steps", "0"])
    with pytest.raises(SystemExit) as stopped:
        main()
    assert stopped.value.code == 2
    output = capsys.readouterr()
    assert output.out == ""
    assert len(output.err.splitlines()) == 1
    assert not folder.exists()
