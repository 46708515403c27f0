"""Accuracy of small networks whose answers are known, and the command around it."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from click.testing import CliRunner
from safetensors.torch import save_file
from scipy import stats
from small_networks import Lambda
from torch import Tensor, nn

from scs_eval.analyses.accuracy import AccuracyComparison, AccuracyResult, Known, accuracy
from scs_eval.analyses.core.model_state import evaluating
from scs_eval.cli.commands.accuracy import command
from scs_eval.cli.output import folder_name
from scs_eval.data import ImageData
from scs_eval.errors import InputError
from scs_eval.images import indices_digest
from scs_eval.models.loading.load import Loaded
from scs_eval.models.loading.sources import ModelSource, parse_sources
from scs_eval.models.zoo.registry import create_model
from scs_eval.report.model_facts import known_facts

CLASSES = ("red", "green", "blue")


class Brightest(nn.Module):
    """Logits: the mean of each colour channel, so the answer is the brightest colour."""

    def forward(self, images: Tensor) -> Tensor:
        return images.mean((2, 3))


def pictures(*colours: tuple[float, float, float]) -> Tensor:
    return torch.tensor(colours)[:, :, None, None].expand(-1, -1, 4, 4).contiguous()


IMAGES = pictures((1, 0, 0), (0.9, 0.5, 0), (0, 1, 0.2), (0.3, 0, 1), (0, 0.25, 1))
LABELS = torch.tensor([0, 1, 1, 2, 0])


@pytest.mark.parametrize("batch_size", [1, 2, 5, 100])
def test_outcomes_of_each_image(batch_size: int) -> None:
    result = accuracy(Brightest(), IMAGES, LABELS, classes=CLASSES, batch_size=batch_size)
    assert result.predictions.tolist() == [0, 0, 1, 2, 2]
    assert result.correct.tolist() == [True, False, True, True, False]
    np.testing.assert_allclose(result.margins, [1, -0.4, 0.8, 0.7, -1], rtol=1e-6)  # fp32
    assert ((result.margins > 0) == result.correct).all()


def test_table_has_wilsons_interval_and_every_class() -> None:
    result = accuracy(Brightest(), IMAGES, LABELS, classes=CLASSES, label="m", known={"epochs": 20})
    row = result.table().iloc[0]
    expected = stats.binomtest(3, 5).proportion_ci(method="wilson")
    assert (row["model"], row["accuracy"], row["n"], row["parameters"], row["epochs"]) == ("m", 0.6, 5, 0, 20)
    np.testing.assert_allclose([row["low"], row["high"]], [expected.low, expected.high])
    assert [row[f"class {name}"] for name in CLASSES] == [0.5, 0.5, 1]
    classes = result.per_class()
    assert classes["n"].tolist() == [2, 2, 1]
    assert classes["correct"].tolist() == [1, 1, 1]
    assert classes["low"].iloc[2] == pytest.approx(stats.binomtest(1, 1).proportion_ci(method="wilson").low)


def test_a_class_without_images_is_no_class_with_errors() -> None:
    result = accuracy(Brightest(), IMAGES[:2], LABELS[:2], classes=CLASSES)
    assert np.isnan(result.per_class()["accuracy"].iloc[2])
    assert "blue" not in result.summary()["weakest class %"].iloc[0]
    assert [label.get_text() for label in result.figure().axes[0].get_yticklabels()] == ["green (1)", "red (1)"]


def test_parameters_and_settings() -> None:
    model = nn.Sequential(nn.Flatten(), nn.Linear(48, 3))
    result = accuracy(model, IMAGES, LABELS, classes=CLASSES)
    assert result.parameters == 48 * 3 + 3
    images = {"data": "array", "n": len(IMAGES), "indices_sha256": indices_digest(range(len(IMAGES)))}
    assert result.settings == {**images, "device": "cpu", "batch_size": 250}
    assert result.seconds > 0


def test_summary_names_the_papers_tables() -> None:
    known: Known = {
        "paper_table": 6,
        "paper_accuracy": 0.818,
        "earlier_paper_table": 1,
        "earlier_paper_accuracy": 0.7761,
    }
    result = accuracy(Brightest(), IMAGES, LABELS, classes=CLASSES, known=known)
    assert result.summary()["paper %"].iloc[0] == "81.8 (T6), 77.6 (T1)"
    assert result.summary()["accuracy %"].iloc[0] == "60.0 [23.1, 88.2]"


# What a model must come out of it with: its own mix of modes, frozen and trained parameters, gradients, random numbers.


def make_model(forward: Callable[[Tensor], Tensor] | None = None) -> nn.Sequential:
    model = nn.Sequential(nn.BatchNorm2d(3), nn.Dropout(0.5), nn.Flatten(), nn.Linear(48, 3))
    model.train()
    model[1].eval()
    model[3].weight.requires_grad_(False)
    model[3].bias.grad = torch.ones(3)
    if forward is not None:
        model.append(Lambda(forward))
    return model


def state(model: nn.Module) -> list[object]:
    tensors = [tensor.clone() for tensor in model.state_dict().values()]
    grads = [None if p.grad is None else p.grad.clone() for p in model.parameters()]
    flags = [[m.training for m in model.modules()], [p.requires_grad for p in model.parameters()]]
    return [*tensors, *grads, *flags, torch.get_rng_state()]


def assert_equal(before: list[object], after: list[object]) -> None:
    for a, b in zip(before, after, strict=True):
        assert torch.equal(a, b) if isinstance(a, Tensor) and isinstance(b, Tensor) else a == b


def test_the_model_comes_out_as_it_went_in() -> None:
    model = make_model(lambda x: x + 0 * torch.rand(1))
    before = state(model)
    accuracy(model, IMAGES, LABELS, classes=CLASSES)
    assert_equal(before, state(model))


def test_the_model_comes_out_as_it_went_in_after_an_exception() -> None:
    def explode(x: Tensor) -> Tensor:
        torch.rand(1)
        raise KeyboardInterrupt

    model = make_model(explode)
    before = state(model)
    with pytest.raises(KeyboardInterrupt):
        accuracy(model, IMAGES, LABELS, classes=CLASSES)
    assert_equal(before, state(model))


def test_inside_the_model_is_frozen_and_blocks_nest() -> None:
    model = make_model()
    with evaluating(model):
        with evaluating(model):
            pass
        assert not any(module.training for module in model.modules())
        assert not any(p.requires_grad for p in model.parameters())
        assert all(p.grad is None for p in model.parameters())


@pytest.mark.parametrize(
    ("images", "labels", "message"),
    [
        (IMAGES, torch.tensor([0, 1, 2, 3, 0]), "labels from 0 to 2, got 0 to 3"),
        (IMAGES, torch.tensor([0, 1, 2, -1, 0]), "labels from 0 to 2, got -1 to 2"),
        (IMAGES, LABELS[:3], "5 labels"),
        (IMAGES, LABELS.float(), "whole numbers"),
        (IMAGES[:0], LABELS[:0], "at least one image"),
        (IMAGES * 255, LABELS, r"images in \[0, 1\], got \[0, 255\]"),
        (IMAGES - 0.5, LABELS, r"images in \[0, 1\], got \[-0.5, 0.5\]"),
        (IMAGES / 0, LABELS, r"images in \[0, 1\]"),
        (IMAGES * float("nan"), LABELS, r"images in \[0, 1\]"),
        ((IMAGES * 255).byte(), LABELS, "floats"),
        (IMAGES[0], LABELS, "floats"),
        (IMAGES[:, :1], LABELS, r"\(n, 3, H, W\)"),
    ],
)
def test_wrong_images_and_labels(images: Tensor, labels: Tensor, message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        accuracy(Brightest(), images, labels, classes=CLASSES)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (Lambda(lambda x: x.mean((2, 3)) * float("nan")), "finite logits"),
        (Lambda(lambda x: x.mean((2, 3)) + float("inf")), "finite logits"),
        (Lambda(lambda x: x.mean((2, 3))[:, :2]), r"expected 3 logits for each of 5 images.*\(5, 2\)"),
        (Lambda(lambda x: x), r"\(5, 3, 4, 4\)"),
        (Lambda(lambda x: (x.mean((2, 3)),)), "tuple"),  # type: ignore[arg-type, return-value]
        (nn.Sequential(nn.Flatten(), nn.Linear(5, 3)), "cannot take images of 3×4×4"),
    ],
)
def test_models_that_do_not_fit(model: nn.Module, message: str) -> None:
    with pytest.raises(InputError, match=message):
        accuracy(model, IMAGES, LABELS, classes=CLASSES)


def test_wrong_batch_size() -> None:
    with pytest.raises(InputError, match="batch_size"):
        accuracy(Brightest(), IMAGES, LABELS, classes=CLASSES, batch_size=0)


# Figures: what they show, not how they look.


def fake(label: str, hits: int, **known: float) -> AccuracyResult:
    labels = np.zeros(10, dtype=int)
    return AccuracyResult(
        label=label,
        classes=CLASSES,
        labels=labels,
        predictions=np.where(np.arange(10) < hits, 0, 1),
        margins=np.zeros(10, dtype=np.float32),
        parameters=1,
        seconds=1.0,
        known=known,  # type: ignore[arg-type]
    )


def test_comparison_figure_groups_architectures_and_ranks_models() -> None:
    members = [fake("b_scs", 5), fake("a_conv", 3), fake("b_conv", 8, paper_accuracy=0.9), fake("mine", 1)]
    figure = AccuracyComparison.of(members, label="x").figure()
    (ax,) = figure.axes
    assert [label.get_text() for label in ax.get_yticklabels()] == ["b_conv", "b_scs", "a_conv", "mine"]
    places = ax.get_yticks()
    assert places[1] - places[0] < places[2] - places[1], "a gap between architectures"
    assert places[0] > ax.get_ylim()[1], "the first model on top"
    drawn = [tuple(line.get_xydata()[0]) for line in ax.lines if len(line.get_xydata()) == 1]
    assert (80.0, places[0]) in drawn
    assert (90.0, places[0]) in drawn, "the paper's figure"
    assert {text.get_text() for text in ax.texts} >= {"80.0", "90.0", "here", "paper"}


def test_figures_of_all_right_and_all_wrong() -> None:
    members = [fake("a_scs", 10), fake("a_conv", 0)]
    AccuracyComparison.of(members, label="x").figure().draw_without_rendering()
    for member in members:
        member.figure().draw_without_rendering()


def test_comparison_figure_names_the_earlier_table() -> None:
    known = {"paper_accuracy": 0.8, "paper_table": 6, "earlier_paper_accuracy": 0.7, "earlier_paper_table": 1}
    (ax,) = AccuracyComparison.of([fake("a_scs", 5, **known), fake("a_conv", 3)], label="x").figure().axes
    legend = ax.get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()][2:] == ["paper", "its Table 1 (other initial weights)"]


def test_comparison_figure_without_paper_says_nothing_of_it() -> None:
    (ax,) = AccuracyComparison.of([fake("a_scs", 5), fake("a_conv", 3)], label="x").figure().axes
    legend = ax.get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()] == ["scs", "conv"]
    assert "paper" not in {text.get_text() for text in ax.texts}


def test_figures_draw_on_given_axes() -> None:
    from matplotlib.figure import Figure

    figure = Figure()
    first, second = figure.subplots(1, 2)
    assert fake("a_scs", 5).figure(ax=first) is figure
    assert AccuracyComparison.of([fake("a_scs", 5)], label="x").figure(ax=second) is figure
    assert first.lines
    assert second.lines


# The command, with three "trained" models that need no weights.


@pytest.fixture
def zoo(monkeypatch: pytest.MonkeyPatch) -> None:
    index = {
        "rohrer100k_scs": {
            "accuracy": 0.75,
            "seed": 0,
            "epochs": 20,
            "paper_epochs": 800,
            "train_seconds_per_epoch": 31.5,
            "eval_seconds_per_epoch": 2,
        },
        "rohrer100k_conv": {"accuracy": 0.77, "epochs": 20},
        "rohrer25k_scs": {"accuracy": 0.7, "epochs": 20},
    }

    def open_source(source: str, **options: object) -> Loaded:
        if source not in index:
            raise InputError(f"unknown model {source!r}")
        return Loaded(Brightest(), source)

    data = ImageData(IMAGES, LABELS, CLASSES, torch.tensor([5, 6, 7, 8, 9]), "sample")
    monkeypatch.setattr("scs_eval.models.loading.load.weights_index", lambda: index)
    monkeypatch.setattr("scs_eval.models.loading.load.open_source", open_source)
    monkeypatch.setattr("scs_eval.cli.data_request.DataRequest.read", lambda request, **options: data)


def labels(*asked: str) -> list[str]:
    return [model.label for model in parse_sources(asked)]


def known_of(name: str, *, data: str) -> Known:
    architecture = "rohrer100k_scs" if name.endswith(".safetensors") else name
    return known_facts(ModelSource(name, name), architecture, data=data)


@pytest.mark.usefixtures("zoo")
def test_models_by_name_pattern_or_all() -> None:
    everything = ["rohrer25k_scs", "rohrer100k_conv", "rohrer100k_scs"]  # the order of the zoo
    assert labels() == everything
    assert labels("rohrer100k*", "rohrer100k_scs_linear") == everything[1:]
    assert labels("some/file.safetensors") == ["some/file.safetensors"]
    with pytest.raises(InputError, match=r"'resnet\*'"):
        labels("resnet*")


@pytest.mark.usefixtures("zoo")
def test_what_is_known_of_a_model() -> None:
    known = known_of("rohrer100k_scs", data="sample")
    assert known == {
        "network": "rohrer100k_scs",
        "layer": "scs",
        "activation": "linear",
        "pooling": "maxabspool",
        "seed": 0,
        "epochs": 20,
        "paper_epochs": 800,
        "train_seconds_per_epoch": 31.5,
        "eval_seconds_per_epoch": 2,
        "recorded_accuracy": 0.75,
        "paper_table": 6,
        "paper_accuracy": 0.818,
        "paper_train_seconds_per_epoch": 135.934,
        "paper_eval_seconds_per_epoch": 7.738,
        "earlier_paper_table": 1,
        "earlier_paper_accuracy": 0.7761,
    }
    assert set(Known.__annotations__) == set(known)
    assert known_of("rohrer100k_scs", data="cifar10:test") == known
    factors = {"network": "rohrer100k_scs", "layer": "scs", "activation": "linear", "pooling": "maxabspool"}
    assert known_of("rohrer100k_scs@3", data="some/folder") == factors  # the paper's figures are of CIFAR-10
    assert known_of("mine.pt", data="sample") == {}


def test_a_run_of_ones_own_has_its_training_and_the_papers_row(tmp_path: Path) -> None:
    path = tmp_path / "mine.safetensors"
    said = {"name": "rohrer100k_scs", "data": "cifar10", "epochs": "16", "seed": "3", "test_accuracy": "0.81"}
    said |= {"train_seconds_per_epoch": "15.5", "eval_seconds_per_epoch": "2"}
    save_file(create_model("rohrer100k_scs").state_dict(), path, metadata=said)
    known = known_of(str(path), data="cifar10:test")
    assert (known["network"], known["seed"], known["epochs"]) == ("rohrer100k_scs", 3, 16)
    assert (known["recorded_accuracy"], known["train_seconds_per_epoch"]) == (0.81, 15.5)
    assert (known["paper_accuracy"], known["layer"]) == (0.818, "scs")
    save_file(create_model("rohrer100k_scs").state_dict(), path, metadata={**said, "validation": "5000"})
    assert "recorded_accuracy" not in known_of(str(path), data="cifar10:test")  # of other images
    save_file(create_model("rohrer100k_scs").state_dict(), path, metadata={**said, "data": "my_folder"})
    assert "epochs" not in known_of(str(path), data="cifar10:test")


def test_several_trainings_have_a_mean_and_a_range() -> None:
    of: dict[str, Any] = {"network": "rohrer100k_scs", "layer": "scs", "epochs": 16, "paper_accuracy": 0.818}
    runs = [fake(f"rohrer100k_scs@{seed}", hits, **of, seed=seed) for seed, hits in enumerate((3, 5))]
    result = AccuracyComparison.of([*runs, fake("other", 4)], label="seeds")
    row = result.over_seeds().iloc[0]
    shares = [float(run.accuracy.estimate) for run in runs]
    assert len(result.over_seeds()) == 1
    assert (row["network"], row["trainings"], row["layer"]) == ("rohrer100k_scs", 2, "scs")
    assert [row["low"], row["accuracy"], row["high"]] == pytest.approx([min(shares), sum(shares) / 2, max(shares)])
    assert "seeds" in result.tables()
    (ax,) = result.figure().axes
    assert [label.get_text() for label in ax.get_yticklabels()] == ["rohrer100k_scs × 2", "other"]
    assert "40.0" in {text.get_text() for text in ax.texts}
    assert "seeds" not in AccuracyComparison.of([runs[0], fake("other", 4)], label="one").tables()


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.usefixtures("zoo", "here")
def test_the_command_writes_and_prints_the_path_last() -> None:
    done = CliRunner().invoke(command, ["rohrer100k*"], catch_exceptions=False)
    out = Path("results/accuracy/rohrer100k")
    assert done.stdout.splitlines()[-1] == str(out)
    table = pd.read_csv(out / "table.csv")
    assert table["model"].tolist() == ["rohrer100k_conv", "rohrer100k_scs"]
    assert table["accuracy"].tolist() == [0.6, 0.6]
    assert table["paper_accuracy"].tolist() == [0.8347, 0.818]
    assert table["train_seconds_per_epoch"].tolist()[1] == 31.5
    settings = json.loads((out / "run.json").read_text())["settings"]
    assert (settings["data"], settings["n"], settings["seed"]) == ("sample", 5, 0)
    assert settings["indices_sha256"] == indices_digest([5, 6, 7, 8, 9])


@pytest.mark.usefixtures("zoo", "here")
def test_one_model_goes_by_its_name() -> None:
    done = CliRunner().invoke(command, ["rohrer100k_scs"], catch_exceptions=False)
    assert done.stdout.splitlines()[-1] == "results/accuracy/rohrer100k_scs"
    assert "81.8 (T6), 77.6 (T1)" in done.stdout


@pytest.mark.usefixtures("zoo")
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["rohrer100k_scs", "rohrer100k_sc"], "unknown model"),
        (["--device", "abacus"], "expected a device of this machine"),
        (["--out", "file"], "is a file"),
    ],
)
def test_wrong_requests_write_nothing(here: Path, arguments: list[str], message: str) -> None:
    Path("file").write_text("")
    with pytest.raises(InputError, match=message):
        CliRunner().invoke(command, arguments, catch_exceptions=False)
    assert [path.name for path in here.iterdir()] == ["file"]


@pytest.mark.usefixtures("zoo")
def test_where_it_goes_is_checked_before_the_work(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (here / "file").write_text("")
    monkeypatch.setattr("scs_eval.models.loading.load.load_model", lambda source: pytest.fail("too late"))
    with pytest.raises(InputError, match="is a file"):
        CliRunner().invoke(command, ["--out", "file"], catch_exceptions=False)


@pytest.mark.parametrize(
    ("names", "folder"),
    [
        (["rohrer100k_scs"], "rohrer100k_scs"),
        (["bcos_cnn9_b=1.25", "rohrer*_scs"], "bcos_cnn9_b=1.25+rohrer-_scs"),
        (["../../etc/x.pt"], "etc-x.pt"),
        (["*"], "all"),
        ([], "all"),
        (["x" * 300], "x" * 120),
    ],
)
def test_folders_for_what_was_asked(names: list[str], folder: str) -> None:
    assert folder_name(names) == folder
