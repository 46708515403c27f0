"""The pointing game as a whole: a network that cannot lose, batches, interruptions and results."""

from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from torch import Tensor, nn

from scs_eval.analyses.core import batching
from scs_eval.analyses.core.batching import fitting, footprint, is_out_of_memory, map_with_backoff
from scs_eval.analyses.core.labelled_images import ImageSet
from scs_eval.analyses.core.result import load_result, side_by_side
from scs_eval.analyses.core.statistics import mean_interval, paired_test
from scs_eval.analyses.localisation import LocalisationOptions, MosaicOptions, localisation, select_mosaics
from scs_eval.analyses.localisation.mosaics import Mosaics
from scs_eval.analyses.localisation.result import LocalisationComparison, LocalisationResult
from scs_eval.analyses.localisation.score import ceiling
from scs_eval.analyses.localisation.windows import half_of
from scs_eval.errors import InputError
from scs_eval.models.zoo.registry import create_model
from tests.helpers.figure_words import cut_words

CLASSES = ("red", "green", "blue", "white", "yellow")
COLOURS = torch.tensor([[1.0, 0, 0], [0, 1, 0], [0, 0, 1], [1, 1, 1], [1, 1, 0]])
LABELS = torch.arange(40) % 5
IMAGES = COLOURS[LABELS][:, :, None, None].expand(40, 3, 8, 8) * torch.linspace(0.9, 1, 40)[:, None, None, None]


class Painter(nn.Module):
    """Logits: how much of an image is of each colour. A pixel of another colour has no gradient."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Conv2d(3, 5, 1)
        self.passes: list[int] = []
        self.largest = 10**9
        self.error: Exception = torch.OutOfMemoryError("no room")
        weight = torch.tensor([[1.0, -1, -1], [-1, 1, -1], [-1, -1, 1], [1, 1, 1], [1, 1, -3]])
        self.layer.weight.data = weight[:, :, None, None]
        self.layer.bias.data = torch.tensor([0.0, 0, 0, -2.5, -1.5])

    def forward(self, images: Tensor) -> Tensor:
        if len(images) > self.largest:
            raise self.error
        self.passes.append(len(images))
        return self.layer(images).relu().mean((2, 3))


DATA = ImageSet(IMAGES, LABELS, CLASSES)


def mosaics(count: int = 5, side: int = 2) -> Mosaics:
    return select_mosaics({"m": Painter()}, DATA, MosaicOptions(side=side, count=count))["m"]


def scored_by(model: nn.Module, images: Tensor, count: int, **given: object) -> LocalisationResult:
    """Options and the function's own parameters alike."""
    options = LocalisationOptions(**{name: given.pop(name) for name in OPTIONS & set(given)})  # type: ignore[arg-type]
    data = ImageSet(images, LABELS, CLASSES, given.pop("indices", None))  # type: ignore[arg-type]
    return localisation(model, data, mosaics(count), options, **given)  # type: ignore[arg-type]


OPTIONS = {item.name for item in fields(LocalisationOptions)}


def play(model: nn.Module | None = None, **given: object) -> LocalisationResult:
    return scored_by(model or Painter(), IMAGES, 5, **{"method": "ixg", "label": "m", "smooth": 3, **given})


def test_a_network_that_cannot_lose_scores_the_ceiling() -> None:
    found = play(predictions=LABELS, top=0.1)
    assert found.seen == "whole grid"
    np.testing.assert_allclose(found.scores, np.tile(ceiling(size=8, side=2, smooth=3), (5, 1)), rtol=1e-6)  # fp32 maps
    np.testing.assert_allclose(play(smooth=1).scores, 1)
    row = found.table().iloc[0]
    assert row["score"] == pytest.approx(row["ceiling_even_map"])
    assert row["ceiling_even_map"] < 1
    assert (row["floor"], row["grids"], row["dropped"], row["accuracy"]) == (0.25, 5, 0, 1)
    assert row["top_pixels"] == 26
    assert row["top_score"] == pytest.approx(1)  # its strongest pixels are not at the edges


def test_a_map_of_nothing_but_the_image_scores_chance() -> None:
    """Every class of this network is the mean of all pixels, wherever they are."""
    model = nn.Sequential(nn.Conv2d(3, 5, 1, bias=False), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    nn.init.ones_(model[0].weight)
    np.testing.assert_allclose(play(model, method="grad", smooth=1).scores, 0.25)


def test_windows_where_the_head_is_flat() -> None:
    torch.manual_seed(0)
    flat = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.Tanh(), nn.Flatten(), nn.Linear(256, 5))
    found = play(flat, method="grad")
    assert found.seen == "windows of 8, stride 4"
    assert found.table()["seen"].item() == "windows of 8, stride 4"
    assert play(flat, method="grad", stride=8).seen == "windows of 8, stride 8"
    assert play(look="windows").seen == "windows of 8, stride 4"
    np.testing.assert_allclose(play(look="windows", smooth=1).scores, 1)
    with pytest.raises(InputError, match="cannot take a grid of 16×16"):
        play(flat, look="whole")


@pytest.mark.parametrize(("setting", "seen"), [("difull", "cell by cell"), ("dipart", "whole grid")])
def test_disconnected_cells(setting: str, seen: str) -> None:
    found = play(create_model("resnet20_conv", num_classes=5).eval(), method="grad", setting=setting, smooth=None)
    assert (found.seen, found.smooth) == (seen, 1)
    if setting == "difull":
        np.testing.assert_array_equal(found.scores, 1)
    else:
        assert 0.25 < found.scores.mean() < 1


@pytest.mark.parametrize(("side", "stride"), [(8, 4), (9, 3), (7, 1), (1, 1), (225, 75)])
def test_the_usual_stride_divides_the_window(side: int, stride: int) -> None:
    images = torch.rand(40, 3, side, side)
    if side < 10:
        found = scored_by(Painter(), images, 1, method="grad", look="windows")
        assert found.seen == f"windows of {side}, stride {stride}"
    assert half_of(side) == stride


def test_occlusion_hides_as_much_of_a_grid_as_of_an_image() -> None:
    """Of 12 pixels a sixth is 2, though the grid has 24; every step of 1 makes 23² squares of the grid, 11² of each."""
    images = IMAGES[:, :, :1, :1].expand(-1, -1, 12, 12)
    model = Painter()
    options = {"method": "occlusion", "smooth": 1}
    found = scored_by(model, images, 1, **options)
    assert sum(model.passes[-2:]) == 23 * 23
    assert (found.square, found.settings["square"], found.table()["square"].item()) == (2, 2, 2)
    assert found.summary()["square"].item() == "2"
    through = scored_by(model, images, 1, look="windows", **options)
    assert model.passes[-2:] == [1, 11 * 11]
    assert through.square == 2
    asked = scored_by(model, images, 1, square=8, **options)
    assert model.passes[-2:] == [1, 5 * 5]
    assert asked.square == 8
    assert "square" not in play().table()


@pytest.mark.parametrize(("method", "smooth"), [("ixg", 3), ("gradcam", 1)])
def test_coarse_maps_are_not_smoothed(method: str, smooth: int) -> None:
    images = IMAGES.repeat_interleave(4, 2).repeat_interleave(4, 3)
    model = create_model("resnet20_conv", num_classes=5).eval()
    found = scored_by(model, images, 1, method=method)
    assert found.smooth == smooth


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"method": "wxx"}, "unknown method"),
        ({"setting": "diFull"}, "expected setting as one of grid"),
        ({"protocol": "bcos"}, "expected protocol as one of paper"),
        ({"look": "all"}, "expected look as one of auto"),
        ({"smooth": 2}, "odd kernel"),
        ({"top": 0}, "top as a finite number above 0"),
        ({"top": 2.5}, "share below 1"),
        ({"top": 257}, "at most 256 pixels"),
        ({"square": 3}, "for occlusion alone"),
        ({"square": 9, "method": "occlusion"}, "--square from 1 to 8 pixels"),
        ({"indices": torch.arange(40) + 100}, "replay the grids on the images"),
    ],
)
def test_bad_requests(options: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        play(**options)


@pytest.mark.parametrize(
    "error",
    [torch.OutOfMemoryError("no"), RuntimeError("[enforce fail] DefaultCPUAllocator: not enough memory: you tried …")],
)
def test_half_as_many_when_memory_runs_out(error: Exception) -> None:
    model, wanted = Painter(), play()
    model.largest, model.error = 1, error
    found = play(model, batch_size=4)
    np.testing.assert_array_equal(found.scores, wanted.scores)
    np.testing.assert_array_equal(found.maps, wanted.maps)
    model.largest = 2
    model.passes.clear()
    play(model, batch_size=5)
    assert model.passes[-3:] == [2, 2, 1]  # 5 fails, then 2 at once


def test_no_room_for_one_or_another_error() -> None:
    model = Painter()
    model.largest, model.error = 0, RuntimeError("not enough memory")
    with pytest.raises(RuntimeError, match="not enough memory"):
        list(map_with_backoff(3, 2, lambda part: model(IMAGES[part])))
    model.error = RuntimeError("something else")
    with pytest.raises(RuntimeError, match="something else"):
        list(map_with_backoff(3, 2, lambda part: model(IMAGES[part])))
    assert model.passes == []


def test_what_counts_as_out_of_memory() -> None:
    hidden = InputError("the model cannot take images")
    hidden.__cause__ = RuntimeError("MPS backend out of memory")
    assert is_out_of_memory(hidden)
    assert is_out_of_memory(MemoryError())
    assert not is_out_of_memory(ValueError("not enough memory"))
    assert not is_out_of_memory(None)


def test_batches_fit_into_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """A convolution without bias keeps its input, the ReLU its output; the kernel is there anyway."""
    model = nn.Sequential(nn.Conv2d(3, 5, 1, bias=False), nn.ReLU())
    one = torch.rand(1, 3, 10, 10)
    assert footprint(model, one) == 4 * (300 + 500)
    for free, each, count in ((1e12, 9, batching.MOST), (8 * footprint(model, one) * 37, 10, 3), (0, 1, 1)):
        monkeypatch.setattr(batching, "free_memory", lambda _, free=free: free)
        assert fitting(model, one, copies=each) == count


def test_batches_on_a_cpu_take_two_gigabytes_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batching, "free_memory", lambda _: 1e12)
    monkeypatch.setattr(batching, "footprint", lambda *_: 2**27)
    assert fitting(nn.Linear(1, 1), torch.rand(1, 3, 10, 10)) == 8


def test_free_memory_is_known() -> None:
    assert 2**20 < batching.free_memory(torch.device("cpu")) < 2**50


def interrupted(path: Path, model: Painter, grids_done: int, **options: object) -> None:
    """Play until so many grids are done, then be interrupted."""
    done = 0

    def stop(count: int) -> None:
        nonlocal done
        done += count
        if done >= grids_done:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        play(model, checkpoint=path, batch_size=1, progress=stop, **{"top": 3, **options})


def test_interrupted_games_go_on(tmp_path: Path) -> None:
    path, wanted = tmp_path / "new" / "partial.npz", play(top=3)
    interrupted(path, Painter(), 2)
    model, steps = Painter(), []
    found = play(model, checkpoint=path, batch_size=1, progress=steps.append, top=3)
    assert steps == [2, 1, 1, 1]
    np.testing.assert_allclose(found.scores, wanted.scores, rtol=1e-12)
    np.testing.assert_allclose(found.top_scores, wanted.top_scores, rtol=1e-12)
    np.testing.assert_allclose(found.maps, wanted.maps, rtol=1e-6)
    assert play(checkpoint=path, top=3, progress=steps.append).scores.shape == (5, 4)
    assert steps[-1] == 5  # all were there


@pytest.mark.parametrize("change", ["weights", "method", "square", "damage", "pickle"])
def test_other_work_does_not_go_on(tmp_path: Path, change: str) -> None:
    path, model, options, steps = tmp_path / "partial.npz", Painter(), {"top": 3}, []
    if change == "square":
        options["method"] = "occlusion"  # type: ignore[assignment]
    interrupted(path, Painter(), 2, **options)
    if change == "weights":
        model.layer.weight.data *= 2
    elif change == "method":
        options["method"] = "grad"  # type: ignore[assignment]
    elif change == "square":
        options["square"] = 2
    elif change == "damage":
        path.write_bytes(path.read_bytes()[:-50])
    else:
        np.savez(path, key=np.array([print], dtype=object))
    found = play(model, checkpoint=path, progress=steps.append, **options)
    assert steps[0] == 0
    assert found.scores.shape == (5, 4)


def scored(model: str, method: str, shift: float, **changes: object) -> LocalisationResult:
    """A result whose scores are made up."""
    noise = np.random.default_rng(3).uniform(0, 0.2, (5, 4))
    return replace(play(top=3), label=model, model=model, method=method, scores=noise + shift, **changes)  # type: ignore[arg-type]


def test_intervals_are_over_grids() -> None:
    found = scored("m", "wx", 0.3)
    row = found.table().iloc[0]
    mean, low, high = mean_interval(found.scores.mean(1))
    assert (row["score"], row["low"], row["high"]) == pytest.approx((float(mean), float(low), float(high)))
    assert row["median"] == pytest.approx(np.median(found.scores))
    cells = found.tables()["scores"]
    assert cells["score"].to_numpy() == pytest.approx(found.scores.ravel())
    assert cells["class"].iloc[5] == CLASSES[found.targets[1, 1]]
    assert tuple(cells.loc[6, ["grid", "row", "column"]]) == (1, 1, 0)


def test_models_and_methods_are_compared_on_the_same_grids() -> None:
    rng = np.random.default_rng(0)
    results = [scored("a", "wx", 0.5), scored("b", "wx", 0.2), scored("a", "grad", 0.1)]
    results[1] = replace(results[1], scores=results[1].scores + rng.uniform(0, 0.05, (5, 4)))
    both = side_by_side(results, label="all")
    assert isinstance(both, LocalisationComparison)
    tests = both.tests()
    compared = tests[["compared", "model", "method", "reference"]].to_numpy().tolist()
    assert compared == [["model", "b", "wx", "a"], ["method", "a", "grad", "wx"]]
    assert tests["verdict"].tolist() == ["too few grids (n = 5)"] * 2
    wanted = paired_test(results[1].scores.mean(1), results[0].scores.mean(1))
    assert tests.loc[0, ["difference", "low", "high"]].tolist() == pytest.approx(wanted[:3])
    shown = both.summary()["− reference's"].tolist()
    assert shown[0] == ""
    assert shown[1] == f"{100 * wanted.difference:+.1f} [{100 * wanted.low:+.1f}, {100 * wanted.high:+.1f}] (a)"
    assert shown[2].endswith("(wx)")
    assert set(both.tables()["grids"]["model"]) == {"all"}
    apart = side_by_side([results[0], replace(results[1], indices=results[1].indices + 1)], label="x")
    assert isinstance(apart, LocalisationComparison)
    assert apart.tests()["verdict"].tolist() == ["a has other examples"]
    assert apart.summary()["− reference's"].tolist() == ["", "a has other examples"]
    assert set(apart.tables()["grids"]["model"]) == {"a", "b"}


def test_saved_and_loaded(tmp_path: Path) -> None:
    both = side_by_side([scored("a", "wx", 0.5), scored("b", "wx", 0.2, usable=None)], label="both")
    both.save(tmp_path)
    again = load_result(tmp_path)
    assert isinstance(again, LocalisationComparison)
    pd.testing.assert_frame_equal(again.table(), both.table())
    assert again.summary()["dropped"].tolist() == ["0 of 40", "replayed"]


def texts(figure: object) -> str:
    return " ".join(text.get_text() for ax in figure.axes for text in ax.texts)  # type: ignore[attr-defined]


def test_figures() -> None:
    both = side_by_side([scored("a", "wx", 0.5), scored("b", "wx", 0.2), scored("a", "grad", 0.1)], label="all")
    figures = both.figures()
    assert list(figures) == ["figure", "examples", "top"]
    for words in ("chance 25.0", f"ceiling of an even map {100 * play().ceiling.mean():.1f}"):
        assert words in texts(figures["figure"])
    assert "chance 25.0" in texts(figures["top"])
    assert "a\nwx" in texts(figures["examples"])
    many = side_by_side([scored(f"m{i}", "wx", 0.1) for i in range(7)], label="many")
    assert "examples-2" in many.figures()


def test_the_title_says_what_the_axis_does_not() -> None:
    several = side_by_side([scored("a", method, 0.1) for method in ("wx", "grad")], label="methods").figure()
    assert several.axes[0].get_title(loc="left").endswith(", a")
    models = side_by_side([scored(name, "wx", 0.1) for name in "ab"], label="models").figure()
    assert models.axes[0].get_title(loc="left").endswith(", maps by wx")


def test_of_many_curves_each_name_shows_its_dash() -> None:
    top = side_by_side([scored(f"m{i}", "wx", 0.1) for i in range(7)], label="many").figures()["top"]
    samples = [line for line in top.axes[0].lines if line.get_label() == "sample"]
    assert len(samples) == 8  # seven and chance, which has none
    assert len({str(line.get_linestyle()) for line in samples}) > 2
    assert not cut_words(top)


def larger(factor: int, top: float | None = None) -> LocalisationResult:
    """The same game with larger images."""
    images = IMAGES.repeat_interleave(factor, 2).repeat_interleave(factor, 3)
    return scored_by(Painter(), images, 5, method="ixg", label="large", top=top)


def test_models_of_different_input_sizes_share_their_figures() -> None:
    both = side_by_side([play(top=0.1), larger(3, 0.1)], label="sizes")
    assert [shown.split("(")[1] for shown in both.summary()["top %"]] == ["26 pixels)", "230 pixels)"]
    figures = both.figures()
    sizes = [frame.images[0].get_array().shape[0] for frame in figures["examples"].axes[0].child_axes if frame.images]
    assert {6 * 16, 6 * 48} <= set(sizes)  # enlarged, so that a frame can be thin
    assert figures["top"].axes[0].get_xlim()[1] == 48**2
    assert figures["top"].axes[0].get_xlabel().endswith("of 256 or 2,304")


def test_large_pictures_are_not_enlarged() -> None:
    figure = larger(28).figures()["examples"]
    assert figure.axes[0].child_axes[0].images[0].get_array().shape[:2] == (448, 448)


def test_examples_say_what_is_smoothed() -> None:
    fine, coarse = play(smooth=3, label="a"), play(smooth=1, label="b")
    both = texts(
        side_by_side([replace(fine, model="a"), replace(coarse, model="b")], label="both").figures()["examples"]
    )
    assert "a\nixg, smoothed" in both
    assert "b\nixg, not smoothed" in both
    assert "over channels." in both
    assert "over channels, smoothed." in texts(fine.figures()["examples"])
    assert "over channels, not smoothed." in texts(coarse.figures()["examples"])


SWEEP = [("bcos_cnn9_b=2.5", 2.5, 0.7, 35), ("bcos_cnn9", 2.0, 0.5, 37), ("bcos_cnn9_b=1", 1.0, 0.1, 38)]


def crosses(figure: object) -> list[float]:
    """Where the accuracies stand."""
    return sorted(float(line.get_xdata()[0]) for line in figure.axes[0].lines if line.get_marker() == "x")  # type: ignore[attr-defined]


def test_sweep_over_b() -> None:
    """Made-up scores: what is checked is the figure of accuracy and localisation against B."""
    swept = [scored(name, "wx", shift, b=b, correct=(right, 40)) for name, b, shift, right in SWEEP]
    figure = side_by_side(swept, label="sweep").figures()["sweep"]
    assert crosses(figure) == [1, 2, 2.5]
    assert figure.axes[1].get_xticks().tolist() == [1, 2, 2.5]
    assert figure.axes[0].get_legend() is None
    assert figure.axes[0].get_title(loc="left") == "bcos_cnn9"
    assert "5 grids" in figure.axes[1].get_xlabel()
    assert "40 images" in figure.axes[1].get_xlabel()
    assert "sweep" not in side_by_side([swept[0], scored("a", "wx", 0.1)], label="one").figures()


def test_a_b_that_comes_twice_stands_beside_itself() -> None:
    swept = [scored(name, "wx", shift, b=b, correct=(right, 40)) for name, b, shift, right in SWEEP]
    swept += [scored(f"bcos_cnn9_plain{end}", "wx", 0.4, b=b, correct=(30, 40)) for end, b in (("", 2.0), ("_b=1", 1))]
    figure = side_by_side(swept, label="x").figures()["sweep"]
    assert len(set(crosses(figure))) == 5
    assert [text.get_text() for text in figure.axes[0].get_legend().texts] == ["bcos_cnn9", "bcos_cnn9_plain"]


def test_unlike_networks_are_no_sweep() -> None:
    """A network of another kind is left out, and two of them alone draw nothing."""
    swept = [scored(name, "wx", shift, b=b, correct=(right, 40)) for name, b, shift, right in SWEEP[:2]]
    other = scored("rohrer100k_bcos_b=1.5", "wx", 0.4, b=1.5, correct=(30, 40))
    assert crosses(side_by_side([*swept, other], label="x").figures()["sweep"]) == [2, 2.5]
    assert "sweep" not in side_by_side([swept[1], other], label="x").figures()


@pytest.mark.parametrize(("model", "b"), [("bcos_cnn9_w=0.125_b=1.5", 1.5), ("resnet20_conv", None)])
def test_b_is_the_networks_own(model: str, b: float | None) -> None:
    assert play(create_model(model, num_classes=5).eval(), method="grad").b == b
