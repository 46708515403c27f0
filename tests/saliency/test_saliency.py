"""Saliency of small networks: per-image outcomes, the test against the twin, and the command around it."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args, get_type_hints

import numpy as np
import pandas as pd
import pytest
import torch
from captum.attr import Saliency
from click.testing import CliRunner
from few_images import use_few_images
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from scs_eval import side_by_side
from scs_eval.analyses.attribution import metrics as map_metrics
from scs_eval.analyses.attribution.attribute import attribute
from scs_eval.analyses.core.result import load_result
from scs_eval.analyses.core.statistics import paired_test
from scs_eval.analyses.plotting.image_grid import split_name
from scs_eval.analyses.plotting.map_columns import unit_scaled
from scs_eval.analyses.saliency import SaliencyOptions, saliency
from scs_eval.analyses.saliency.figure import draw
from scs_eval.analyses.saliency.options import RADIUS
from scs_eval.analyses.saliency.reductions import REDUCTIONS
from scs_eval.analyses.saliency.result import SaliencyComparison, SaliencyResult
from scs_eval.cli import params
from scs_eval.cli.commands import saliency as cli
from scs_eval.data import ImageData, load_data
from scs_eval.data.selection import select_images
from scs_eval.errors import InputError
from scs_eval.models.loading.load import WEIGHTS, weights_index
from scs_eval.models.zoo.counterparts import reference_of, twins

CLASSES = ("red", "green", "blue")


class Bright(nn.Module):
    """Logits: a weighted sum of squares of each colour, so the gradient is 2 w x in the channel of the class."""

    def forward(self, images: Tensor) -> Tensor:
        weight = torch.linspace(0.5, 1, images.shape[2] * images.shape[3]).view(images.shape[2:])
        return (weight * images**2).sum((2, 3))


IMAGES = (
    torch.rand(5, 3, 6, 6, generator=torch.Generator().manual_seed(1)) * torch.tensor([0.9, 0.6, 0.3])[:, None, None]
)
LABELS = torch.tensor([0, 0, 1, 2, 0])


def result(**options: Any) -> SaliencyResult:
    fields = {name: options.pop(name) for name in tuple(options) if name in SaliencyOptions.__dataclass_fields__}
    given = {"classes": CLASSES, "label": "m", **options}
    return saliency(Bright(), IMAGES, LABELS, options=SaliencyOptions(**{"rows": 2, **fields}), **given)


def test_outcomes_of_each_image() -> None:
    found = result()
    assert found.predictions.tolist() == found.targets.tolist() == [0] * 5
    weight = np.linspace(0.5, 1, 36).reshape(6, 6)
    np.testing.assert_allclose(found.maps, 2 * weight * IMAGES[:, 0].numpy(), rtol=1e-5)  # fp32
    np.testing.assert_allclose(found.gini, map_metrics.gini(found.maps), rtol=1e-6)
    unlikely = attribute(Bright(), IMAGES, torch.full((5,), 2)).abs().amax(1)
    np.testing.assert_allclose(found.class_correlation, map_metrics.map_correlation(found.maps, unlikely), rtol=1e-5)
    assert (found.max_sensitivity > 0).all()
    assert found.images.shape == (2, 3, 6, 6)


@pytest.mark.parametrize(("target", "expected"), [("label", [0, 0, 1, 2, 0]), ("blue", [2] * 5), (1, [1] * 5)])
def test_targets(target: str | int, expected: list[int]) -> None:
    found = result(target=target, samples=0)
    assert found.targets.tolist() == expected
    assert np.isnan(found.max_sensitivity).all()
    assert "" in found.summary()["max-sensitivity"].tolist()
    # Classes' sensitivity compares the most with the least likely class, whatever was asked about.
    np.testing.assert_allclose(found.class_correlation, result(samples=0).class_correlation)


def test_reductions_by_hand() -> None:
    one = torch.tensor([3.0, -4.0, 0.0]).view(1, 3, 1, 1)
    found = {name: reduction.function(one).item() for name, reduction in REDUCTIONS.items()}
    assert found == pytest.approx({"max": 4, "mean": 7 / 3, "norm": 5, "sum": 1, "positive": 0})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"target": "bleu"}, "did you mean blue"),
        ({"target": 3}, "from 0 to 2"),
        ({"method": "occlusoin"}, "did you mean occlusion"),
        ({"reduce": "median"}, "reduce as one of max"),
        ({"radius": 0}, "radius"),
        ({"classes": ("red", "green")}, "labels from 0 to 1"),
    ],
)
def test_bad_options(options: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        result(**options)


def test_several_methods_are_compared() -> None:
    def reddest(model: nn.Module, images: Tensor, targets: Tensor) -> Tensor:
        return images[:, 0]

    options = SaliencyOptions(samples=0)
    both = saliency(Bright(), IMAGES, LABELS, classes=CLASSES, methods=[reddest, Saliency], options=options, label="m")
    assert [one.method for one in both.results] == ["reddest", "captum:Saliency"]
    assert [one.label for one in both.results] == ["m reddest", "m captum:Saliency"]
    np.testing.assert_array_equal(both.results[0].maps, IMAGES[:, 0].numpy())
    np.testing.assert_array_equal(both.results[1].maps, result(samples=0).maps)  # ours is the same gradient
    only = saliency(Bright(), IMAGES, methods=["grad"], options=options)
    assert isinstance(only, SaliencyComparison)
    assert len(only.results) == 1
    with pytest.raises(InputError, match="got both"):
        saliency(Bright(), IMAGES, method="grad", methods=["wx"])  # type: ignore[call-overload]
    with pytest.raises(InputError, match="expected a method, got none"):
        saliency(Bright(), IMAGES, methods=[])


def test_the_options_name_every_reduction() -> None:
    assert get_args(get_type_hints(SaliencyOptions)["reduce"]) == tuple(REDUCTIONS)


def test_table_has_means_with_intervals() -> None:
    found = result()
    row = found.table().iloc[0]
    assert (row["model"], row["method"], row["n"], row["blank_maps"]) == ("m", "grad", 5, 0)
    for metric in ("gini", "entropy", "top_mass", "class_correlation", "max_sensitivity"):
        assert row[metric] == pytest.approx(getattr(found, metric).mean())
        assert row[f"{metric}_low"] < row[metric] < row[f"{metric}_high"]
    blank = replace(found, maps=np.zeros_like(found.maps), blank=None, class_correlation=np.full(5, np.nan))
    assert blank.table()["blank_maps"].item() == 5
    assert np.isnan(blank.table()["class_correlation"].item())


def test_saved_and_loaded(tmp_path: Path) -> None:
    both = side_by_side([result(), result(method="ixg")], label="both")
    assert [one.label for one in both.results] == ["m grad", "m ixg"]
    both.save(tmp_path)
    again = load_result(tmp_path)
    assert isinstance(again, SaliencyComparison)
    pd.testing.assert_frame_equal(again.table(), both.table())


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("rohrer100k_scs", ["rohrer100k_conv_linear_maxabspool", "rohrer100k_conv"]),
        ("rohrer100k_scs_relu_maxpool", ["rohrer100k_conv"]),
        ("resnet20_bcos", ["resnet20_conv"]),  # its norm and its missing activation are no convolution network's
        ("rohrer100k_conv", []),
        ("anything", []),
    ],
)
def test_twins(name: str, expected: list[str]) -> None:
    assert twins(name) == expected


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("rohrer100k_scs", "rohrer100k_conv"),
        ("rohrer100k_scs_relu_maxpool", "rohrer100k_conv"),
        ("rohrer100k_conv_linear_maxabspool", "rohrer100k_conv"),
        ("resnet20_bcos", "resnet20_conv"),
        ("rohrer100k_scs_hardened@2", "rohrer100k_conv_hardened@2"),
        ("rohrer100k_conv_hardened", None),
        ("rohrer100k_conv", None),
        ("anything", None),
    ],
)
def test_the_reference_is_chosen_by_a_rule(name: str, expected: str | None) -> None:
    assert reference_of(name) == expected


def sparseness(comparison: SaliencyComparison) -> pd.DataFrame:
    """The tests of sparseness, by model."""
    tests = comparison.tests()
    return tests[tests["metric"] == "sparseness"].set_index("model")


def many(found: SaliencyResult) -> SaliencyResult:
    """The same with eight images: enough for a test."""
    double = {name: np.concatenate([array, array])[:8] for name, array in found.arrays().items()}
    return replace(found, **double | {"indices": np.arange(8), "images": found.images})


def test_a_verdict_does_not_depend_on_which_other_models_are_there() -> None:
    plain = replace(many(result(samples=0)), label="rohrer100k_conv", model="rohrer100k_conv")
    sharp = replace(plain, label="rohrer100k_scs", model="rohrer100k_scs", gini=plain.gini + np.linspace(0.1, 0.2, 8))
    near = "rohrer100k_conv_linear_maxabspool"  # the nearest twin, in which sharpening alone is missing
    twin = replace(sharp, label=near, model=near)
    for models in ([plain, sharp], [plain, twin, sharp]):
        tests = sparseness(SaliencyComparison.of(models, label="all"))
        assert tests.loc["rohrer100k_scs", ["reference", "verdict"]].tolist() == ["rohrer100k_conv", "sparser"]
    alone = SaliencyComparison.of([twin, sharp], label="all")
    assert sparseness(alone)["verdict"].tolist() == ["rohrer100k_conv is not among the models"] * 2
    assert "rohrer100k_conv is not among" in alone.summary()["Gini − reference's"].iloc[0]
    named = sparseness(replace(alone, references={"rohrer100k_scs": near}))
    assert named["verdict"].to_dict() == {"rohrer100k_scs": "no difference shown"}
    assert named["reference"].tolist() == [near]


def test_few_images_give_no_verdict() -> None:
    plain = replace(result(samples=0), label="rohrer100k_conv", model="rohrer100k_conv")
    sharp = replace(plain, label="rohrer100k_scs", model="rohrer100k_scs", gini=plain.gini + np.linspace(0.1, 0.2, 5))
    both = SaliencyComparison.of([plain, sharp], label="all")
    assert sparseness(both)["verdict"].tolist() == ["too few images (n = 5)"]
    assert both.summary()["Gini − reference's"].iloc[1] == "too few images (n = 5) (reference rohrer100k_conv)"


def test_sparseness_is_tested_against_the_reference() -> None:
    plain = replace(many(result(samples=0)), label="rohrer100k_conv", model="rohrer100k_conv")
    sharp = replace(plain, label="rohrer100k_scs", model="rohrer100k_scs", gini=plain.gini + np.linspace(0.1, 0.2, 8))
    same = replace(plain, label="rohrer100k_ssdp", model="rohrer100k_ssdp")
    both = SaliencyComparison.of([plain, sharp, same], label="all")
    tests = sparseness(both)
    expected = paired_test(sharp.gini, plain.gini)
    assert tests.loc["rohrer100k_scs", "difference"] == pytest.approx(expected.difference)
    assert tests.loc["rohrer100k_scs", "p_holm"] == pytest.approx(
        4 * expected.p_value
    )  # two models, two metrics with values
    assert tests["verdict"].to_dict() == {"rohrer100k_scs": "sparser", "rohrer100k_ssdp": "no difference shown"}
    assert "sparser" in both.summary()["Gini − reference's"].iloc[1]
    assert set(both.tables()) == {"table", "images", "tests"}
    called = [replace(one, model=f"my {i}") for i, one in enumerate((plain, sharp))]
    assert sparseness(SaliencyComparison.of(called, label="called"))["verdict"].to_dict() == {"my 1": "sparser"}
    other_images = replace(plain, indices=plain.indices + 1)
    apart = sparseness(SaliencyComparison.of([other_images, sharp], label="none"))
    assert apart["verdict"].tolist() == ["rohrer100k_conv has other examples"]


def test_maps_are_scaled_to_their_percentile() -> None:
    one = np.arange(101.0).reshape(1, 101)
    assert unit_scaled(one)[0, 99] == 1
    assert unit_scaled(one)[0, 50] == pytest.approx(50 / 99)
    assert unit_scaled(np.eye(1, 200))[0, 0] == 1  # the percentile is 0: the maximum takes its place
    assert not unit_scaled(np.zeros((2, 2))).any()


def test_titles_have_the_accuracy_of_the_one_class() -> None:
    found = replace(result(samples=0), accuracy=0.774, class_accuracy={"red": 0.84})
    texts = [text.get_text() for text in found.figure().axes[0].texts]
    assert "m\n77.4 % overall\n84 % red" in texts
    assert texts.count("✓ red") == 2
    mixed = replace(found, labels=np.array([0, 1, 1, 2, 0]))
    texts = [text.get_text() for text in mixed.figure().axes[0].texts]
    assert "m\n77.4 % overall" in texts
    assert "✗ red" in texts


def test_long_names_are_broken_where_they_can_be() -> None:
    assert split_name("rohrer100k_scs") == ["rohrer100k_scs"]
    assert split_name("rohrer100k_scs_relu_maxpool") == ["rohrer100k_scs_", "relu_maxpool"]
    assert split_name("vit_ti_bcos (untrained)") == ["vit_ti_bcos", "(untrained)"]


def test_many_columns_go_on_several_pages() -> None:
    many = [replace(result(samples=0), label=f"m{i}", model=f"m{i}") for i in range(7)]
    assert list(SaliencyComparison.of(many, label="many").figures()) == ["figure", "figure-2"]


@pytest.fixture
def few_images(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> ImageData:
    return use_few_images(monkeypatch, tmp_path, n=20)


def run(*arguments: str) -> tuple[str, Exception | None]:
    found = CliRunner().invoke(cli.command, ["--model", "rohrer100k_scs", *arguments])
    assert found.exception is None or isinstance(found.exception, InputError | SystemExit), found.exception
    return found.output, found.exception  # type: ignore[return-value]


def test_command_writes_and_names_the_result(few_images: ImageData) -> None:
    index = int(few_images.indices[3])
    arguments = ("--method", "grad", "--method", "guided-backprop", "--indices", f"{index},{few_images.indices[0]}")
    output, error = run(*arguments)
    assert error is None
    assert output.splitlines()[-1] == "results/saliency/rohrer100k_scs"
    assert "Left out: rohrer100k_scs, guided-backprop: guided-backprop needs ReLU modules" in output
    folder = Path("results/saliency/rohrer100k_scs")
    assert {"figure.png", "figure.pdf", "table.csv", "images.csv", "run.json"} <= {p.name for p in folder.iterdir()}
    assert pd.read_csv(folder / "images.csv")["index"].tolist() == [index, int(few_images.indices[0])]
    assert json.loads((folder / "run.json").read_text())["settings"]["radius"] == RADIUS


@pytest.mark.usefixtures("few_images")
def test_command_names_another_reference() -> None:
    near = "rohrer100k_conv_linear_maxabspool"
    assert run("--model", near, "--model", "rohrer100k_conv", "-n", "8", "--reference", near, "--out", "o")[1] is None
    tests = pd.read_csv("o/tests.csv")
    assert set(tests["reference"]) == {near}
    assert set(tests["model"]) == {"rohrer100k_scs", "rohrer100k_conv"}
    assert tests["p_holm"].notna().all()
    error = run("--reference", "rohrer100k_con")[1]
    assert "expected --reference to be one of the models" in str(error)


def test_first_images_show_many_classes() -> None:
    data = load_data("sample", n=40)
    chosen = select_images(data, n=None, default_n=25, seed=0)
    assert chosen.labels[:10].tolist() == list(range(10))
    assert len(chosen) == 25
    only = select_images(data, label=6, n=None, default_n=100, seed=0)
    assert set(only.labels.tolist()) == {6}


def test_a_row_is_one_image_whatever_the_methods_cost(few_images: ImageData, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(params, "COSTLY_N", 5)
    assert run("--method", "grad", "--method", "smoothgrad", "--rows", "7")[1] is None
    found = load_result("results/saliency/rohrer100k_scs")
    cheap, costly = found.results
    assert (len(cheap.maps), len(costly.maps)) == (20, 7)  # more than usual, for the figure has so many rows
    assert costly.indices.tolist() == cheap.indices[:7].tolist()
    other = replace(costly, indices=costly.indices + 1)
    with pytest.raises(InputError, match=f"no map of image {cheap.indices[0]}"):
        draw([cheap, other])


def test_columns_are_matched_by_image() -> None:
    found = result(samples=0)
    turned = replace(
        found, **{key: getattr(found, key)[::-1] for key in ("indices", "labels", "predictions", "targets", "maps")}
    )
    pictures = [image.get_array() for image in draw([found, turned]).axes[0].images]
    for row in range(2):
        np.testing.assert_array_equal(pictures[2 + row], pictures[4 + row])
    assert not np.array_equal(pictures[2], pictures[3])


def test_titles_know_which_weights_the_accuracy_is_of(few_images: ImageData, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cli, "ENOUGH", 2)
    recorded = weights_index()["rohrer100k_scs"]["accuracy"]
    for arguments, expected in (((), recorded), (("--weights", "none"), None)):
        assert run("--class", "frog", *arguments)[1] is None
        found = load_result("results/saliency/rohrer100k_scs")
        assert found.accuracy == expected
        assert list(found.class_accuracy) == ["frog"]


def test_models_below_the_accuracy_are_left_out_by_name(few_images: ImageData) -> None:
    index = weights_index()
    least = index["rohrer100k_conv"]["accuracy"]
    assert index["rohrer100k_scs"]["accuracy"] < least
    output, error = run("--model", "rohrer100k_conv", "--min-accuracy", str(least))
    assert error is None
    assert "Left out: rohrer100k_scs: its accuracy is" in output
    assert load_result(output.splitlines()[-1]).model == "rohrer100k_conv"


def test_a_file_says_its_accuracy_itself(few_images: ImageData, tmp_path: Path) -> None:
    """Before anything is loaded for good, under any name; a file that does not say stays."""
    weights = load_file(WEIGHTS / "rohrer25k_scs.safetensors")
    about = {"name": "rohrer25k_scs"}
    for name, more in (("low", {"test_accuracy": "0.3"}), ("high", {"test_accuracy": "0.9"}), ("silent", {}),
                       ("odd", {"test_accuracy": "much"})):  # fmt: skip
        save_file(weights, tmp_path / f"{name}.safetensors", metadata={**about, **more})
    asked = [f"{name}={tmp_path / name}.safetensors" for name in ("low", "high", "silent", "odd")]
    output, error = run(*asked, "-n", "2", "--min-accuracy", "0.85")
    assert error is None, output
    assert "Left out: low: its accuracy is 0.3" in output
    assert "Left out: rohrer100k_scs" in output
    kept = load_result(output.splitlines()[-1])
    assert {item.label: item.accuracy for item in kept.results} == {"high": 0.9, "silent": None, "odd": None}


def test_the_reference_has_the_models_own_seed() -> None:
    names = ("rohrer100k_conv", "rohrer100k_conv@1", "rohrer100k_scs@1")
    several = [replace(result(samples=0), label=name, model=name, network=name.partition("@")[0]) for name in names]
    test = sparseness(SaliencyComparison.of(several, label="seeds")).loc["rohrer100k_scs@1"]
    assert test["reference"] == "rohrer100k_conv@1"
    alone = sparseness(SaliencyComparison.of([several[0], several[2]], label="seeds"))
    assert alone["verdict"].tolist() == ["rohrer100k_conv@1 is not among the models"]
