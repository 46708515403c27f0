"""Contributions: the decomposition behind every picture, the pictures themselves, and the command."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from bcos.common import gradient_to_image
from click.testing import CliRunner
from small_networks import published_resnet20
from torch import nn

from scs_eval.analyses.attribution.completeness import bias_share, percent
from scs_eval.analyses.catalogue import ENTRIES
from scs_eval.analyses.contributions import EXTRAS, ContributionsComparison, ContributionsResult, contributions
from scs_eval.analyses.contributions.bias_audit import audit_summary
from scs_eval.analyses.core.result import load_result
from scs_eval.analyses.plotting import colour
from scs_eval.cli.commands.contributions import command, warn_if_incomplete
from scs_eval.data import load_data
from scs_eval.errors import InputError
from scs_eval.models.explain.decomposition import decompose
from scs_eval.models.explain.dynamic_linear import explaining
from scs_eval.models.layers import AddInverse, BcosConv2d, LogitLayer, SCS2d
from scs_eval.models.loading.load import WEIGHTS


def small(channels: int = 3, classes: int = 4) -> nn.Module:
    """A dynamic-linear network with biases of two layers, for images of 8 × 8."""
    torch.manual_seed(0)
    first = [AddInverse(), BcosConv2d(6, 5, 3)] if channels == 6 else [SCS2d(3, 5, 3)]
    norm = nn.BatchNorm2d(5)
    nn.init.uniform_(norm.running_mean, -0.1, 0.1)
    return nn.Sequential(*first, norm, nn.Flatten(), nn.Linear(180, classes)).eval()


def pictures(n: int = 5) -> torch.Tensor:
    return torch.rand(n, 3, 8, 8, generator=torch.Generator().manual_seed(1))


@pytest.fixture(scope="module", params=[3, 6])
def result(request: pytest.FixtureRequest) -> ContributionsResult:
    return contributions(small(request.param), pictures(), label="small", extras=EXTRAS, batch_size=2)


@pytest.mark.parametrize("channels", [3, 6])
def test_several_classes_at_once_are_the_same_as_one_by_one(channels: int) -> None:
    model, images = small(channels), pictures()
    targets = torch.tensor([[0, 1, 3], [3, 3, 0], [1, 2, 0], [2, 1, 0], [0, 3, 2]])
    together = decompose(model, images, targets)
    assert together.weights.shape == (5, 3, channels, 8, 8)
    for k in range(3):
        alone = decompose(model, images, targets[:, k])
        assert torch.equal(together.weights[:, k], alone.weights)  # the same passes: exactly
        assert torch.equal(together.contributions[:, k], alone.contributions)
        assert torch.equal(together.logits[:, k], alone.logits)
        assert all(torch.equal(bias[:, k], alone.biases[name]) for name, bias in together.biases.items())
    assert not torch.equal(together.weights[:, 0], together.weights[:, 1])


@pytest.mark.parametrize("channels", [3, 6])
def test_a_batch_is_the_same_as_one_image_at_a_time(channels: int) -> None:
    model, images = small(channels).double(), pictures().double()
    targets = torch.tensor([[0, 1]] * 5)
    batch = decompose(model, images, targets)
    for i in range(5):
        one = decompose(model, images[i : i + 1], targets[i : i + 1])
        # Convolutions of one image and of five may add in another order: 1e-12 is that, in double precision.
        assert (batch.weights[i] - one.weights[0]).abs().max() <= 1e-12 * one.weights.abs().max()
        assert torch.allclose(batch.bias[i], one.bias[0], rtol=1e-12)


def test_a_batch_is_exactly_the_same_as_one_image_at_a_time() -> None:
    """Small whole numbers have no rounding, so the order in which a convolution adds makes no difference."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(144, 4)).double().eval()
    for parameter in model.parameters():
        parameter.data = torch.randint(-2, 3, parameter.shape).double()
    images = (4 * pictures()).round().double() / 4
    batch, ones = (contributions(model, images, batch_size=size) for size in (5, 1))
    for key, values in batch.arrays().items():
        assert np.array_equal(values, ones.arrays()[key]), key
    assert not batch.residual.any()
    assert batch.bias.any()


def test_a_mixture_of_logits_mixes_the_rows() -> None:
    model, images = small().double(), pictures(2).double()
    rows = decompose(model, images, torch.tensor([[0, 1, 2, 3]] * 2))
    mixture = torch.tensor([[[1.0, -1, 0, 0], [0.25] * 4]] * 2)
    mixed = decompose(model, images, mixture)
    assert torch.allclose(mixed.weights[:, 0], rows.weights[:, 0] - rows.weights[:, 1], atol=1e-12)
    assert torch.allclose(mixed.weights[:, 1], rows.weights.mean(1), atol=1e-12)
    assert torch.allclose(mixed.bias[:, 1], rows.bias.mean(1), atol=1e-12)
    assert (mixed.residual.abs() < 1e-12).all()


def test_the_parts_add_up(result: ContributionsResult) -> None:
    with torch.no_grad():
        logits = small(result.rows.shape[2])(pictures()).double().numpy()
    assert np.array_equal(result.targets, logits.argmax(1))
    assert np.allclose(result.maps.sum((1, 2)) + result.bias, logits.max(1), rtol=1e-4)  # single precision
    assert result.complete.all()
    assert (np.abs(result.bias) > 1e-3).all()  # there is something to add
    ranked = np.sort(logits, 1)
    lead = result.delta.sum((1, 2)) + (result.biases[:, 1] - result.biases[:, 2]).sum(-1)
    assert np.allclose(lead, ranked[:, -1] - ranked[:, -2], atol=1e-5)
    mean = result.mean_corrected.sum((1, 2)) + (result.biases[:, 0] - result.biases[:, 3]).sum(-1)
    assert np.allclose(mean, logits.max(1) - logits.mean(1), atol=1e-5)


def test_the_batch_size_changes_nothing(result: ContributionsResult) -> None:
    other = contributions(small(result.rows.shape[2]), pictures(), batch_size=5)
    assert np.allclose(other.rows, result.rows, atol=1e-6 * np.abs(result.rows).max())
    assert np.allclose(other.biases, result.biases, atol=1e-6)


def test_table_and_audit(result: ContributionsResult) -> None:
    table = result.table()
    assert np.allclose(table["logit"], table["contributions"] + table["bias"] + table["residual"])
    terms = np.abs(result.weights.astype(float) * result.inputs).sum((1, 2, 3))
    assert np.allclose(table["bias_share"], np.abs(table["bias"]) / (terms + np.abs(table["bias"])), rtol=1e-5)  # fp32
    audit = result.audit()
    assert audit["kind"].tolist() == ["BatchNorm2d", "Linear", ""]
    assert audit["mean"][:2].sum() == pytest.approx(table["bias"].mean())
    shares = (result.biases[:, 1] - result.biases[:, 2])[:, 1] / table["lead"]
    assert audit["lead_share"][1] == pytest.approx(np.median(shares))
    assert set(result.tables()) == {"table", "audit"}


def test_what_is_not_dynamic_linear_is_marked(capsys: pytest.CaptureFixture[str]) -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Sigmoid(), nn.Flatten(), nn.Linear(144, 3)).eval()
    found = contributions(model, pictures())
    assert not found.complete.any()
    assert found.summary()[""].tolist() == ["INCOMPLETE"] * 5
    assert (found.table()["relative_residual"] > 1e-3).all()
    warn_if_incomplete(found)
    assert capsys.readouterr().err.startswith("Warning: 5 of 5 maps of model leave more than 0.1 %")
    warn_if_incomplete(contributions(small(), pictures()))
    assert not capsys.readouterr().err


def test_w_and_picture_agree_with_the_published_package() -> None:
    theirs, ours = published_resnet20()
    x = torch.rand(2, 3, 32, 32)
    encoded = torch.cat([x, 1 - x], 1).requires_grad_()
    with theirs.explanation_mode():
        theirs(encoded)[:, 3].sum().backward()
    found = contributions(ours, x, torch.tensor([3, 3]))
    wanted = encoded.grad.numpy()
    assert np.abs(found.weights - wanted).max() <= 5e-5 * np.abs(wanted).max()
    for i in range(2):
        picture = gradient_to_image(encoded[i].detach(), torch.from_numpy(found.weights[i]))
        assert np.abs(found.rgba("bcos-v2")[i] - picture).max() <= 1e-5
    assert np.abs(found.rgba("bcos-v2") - found.rgba("paper")).max() > 0.1


def test_the_papers_picture_by_hand() -> None:
    weights = np.zeros((1, 6, 2, 2))
    weights[0, :, 0, 0] = [3, 1, 0, 1, 1, 2]  # pairs (3, 1), (1, 1), (0, 2)
    weights[0, :, 0, 1] = [-1, -1, -1, -1, -1, -1]  # against the class
    weights[0, :, 1, 0] = [2, -1, -1, -1, 0, -1]  # a negative weight counts as 0; two pairs have no colour
    found = colour.rgba(weights, np.full_like(weights, 0.5))[0]
    assert found[0, 0] == pytest.approx([0.75, 0.5, 0, 1])
    assert found[0, 1, 3] == 0
    assert found[1, 1, 3] == 0
    weights[0, :, 1, 0] = [2, -0.1, -0.1, -0.1, 0, -0.1]
    full = np.percentile(np.sqrt([16, 6, 4.04, 0]), 99.9)
    found = colour.rgba(weights, np.full_like(weights, 0.5))[0]
    assert found[1, 0] == pytest.approx([1, 0.5, 0.5, np.sqrt(4.04) / full])


def test_signed_maps_are_symmetric() -> None:
    maps = np.random.default_rng(0).normal(size=(2, 8, 8))
    both = colour.signed(maps) - 1, colour.signed(-maps) - 1
    strong = np.abs(maps) > 0.3
    assert (both[0][strong][:, 2] < both[1][strong][:, 2]).any()
    assert np.allclose(colour.signed(np.zeros((1, 2, 2))), 1, atol=0.01)
    assert np.array_equal(colour.signed(maps), colour.signed(7 * maps))
    orange, blue = colour.signed(np.array([[[1.0, -1.0]]]))[0, 0]
    assert orange[0] > orange[2]
    assert blue[2] > blue[0]


def test_only_six_channels_have_colours(result: ContributionsResult) -> None:
    assert result.rgba().shape == (5, 8, 8, 4)
    assert result.rgba().min() >= 0
    assert result.rgba().max() <= 1
    if result.coloured:
        with pytest.raises(InputError, match="expected style as one of paper, bcos-v2"):
            result.rgba("oil")
    else:
        np.testing.assert_allclose(colour.on_white(result.rgba()), colour.signed(result.maps), atol=1e-12)
        assert result.rgba()[..., 3].min() < 0.05  # what adds next to nothing is next to transparent
        with pytest.raises(InputError, match="3 channels"):
            result.rgba("paper")


def constant(bias: float = -50.0) -> nn.Module:
    """The small network, and the same constant for every class."""
    return nn.Sequential(small(3), LogitLayer(4, bias=bias)).eval()


def test_a_constant_logit_bias_stands_apart() -> None:
    plain, moved = contributions(small(3), pictures()), contributions(constant(), pictures())
    np.testing.assert_allclose(moved.bias, plain.bias, rtol=1e-4)
    np.testing.assert_allclose(moved.bias_share, plain.bias_share, rtol=1e-4)
    assert moved.logit_bias.tolist() == [-50] * len(pictures())
    table = moved.table()
    parts = table[["contributions", "bias", "logit_bias", "residual"]].sum(axis=1)
    assert np.allclose(table["logit"], parts)
    assert moved.complete.all()
    assert "logit bias" in moved.summary()
    assert "logit bias" not in plain.summary()
    assert "+ logit bias −50.00 (all classes)" in " ".join(text.get_text() for text in moved.figure().axes[0].texts)
    audit = audit_summary(moved.audit()).set_index("biased layer")[""]
    assert audit["1 (LogitLayer)"] == "the same for every class"


@pytest.mark.parametrize("constant_too", [False, True])
def test_the_audits_figure_shows_what_layers_add(constant_too: bool) -> None:
    result = contributions(constant() if constant_too else small(3), pictures(), extras=["audit"])
    figure = result.figures()["audit"]
    added, share = figure.axes
    widths = [patch.get_width() for patch in added.patches]
    audit = result.audit()
    biases = result.biases[:, 0]
    assert widths[0] == pytest.approx(np.median(result.bias))
    assert widths[1:-1] == pytest.approx(np.median(biases, 0).tolist())
    assert widths[-1] == pytest.approx(np.median(result.residual), abs=1e-9)
    names = [label.get_text() for label in added.get_yticklabels()]
    kinds = zip(audit["layer"][:-1], audit["kind"], strict=False)
    words = [f"{layer}{' (all classes)' if kind == 'LogitLayer' else ''}" for layer, kind in kinds]
    assert names == [f"all biases{' but the constant' if constant_too else ''}", *words, "residual"]
    assert share.patches[1].get_width() == pytest.approx(100 * audit["lead_share"][0])


def test_a_network_without_biases_says_so() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 4, 3, bias=False), nn.ReLU(), nn.Flatten(), nn.Linear(144, 3, bias=False))
    figure = contributions(model.eval(), pictures(), extras=["audit"]).audit_figure()
    assert figure.axes[0].get_title(loc="left").endswith("no layer adds any")
    assert [label.get_text() for label in figure.axes[0].get_yticklabels()] == ["all biases", "residual"]


def test_what_is_no_larger_than_the_residual_is_called_meaningless(result: ContributionsResult) -> None:
    assert not result.meaningless.any()
    assert not result.audit()["meaningless"].any()
    assert result.sizes is not None
    lost = replace(result, logits=result.logits + 2 * result.sizes.max())
    assert lost.meaningless.all()
    assert set(lost.summary()[""]) == {"MEANINGLESS"}
    assert set(lost.summary()["bias"]) == {"within the residual"}
    assert "MEANINGLESS" in " ".join(text.get_text() for text in lost.figure().axes[0].texts)
    assert lost.audit()["meaningless"].tolist() == [True, True, False]  # the residual itself is what it is
    assert "no more than the residual" in audit_summary(lost.audit())[""][0]
    assert [patch.get_alpha() for patch in lost.audit_figure().axes[0].patches] == [0.85, 0.25, 0.25, 0.85]


def test_as_many_rows_as_asked_for() -> None:
    pictures_of = [len(contributions(small(3), pictures(), shown=rows).figure().axes[0].child_axes) for rows in (1, 3)]
    assert pictures_of == [1 * 3 + 1, 3 * 3 + 1]  # image, map, map over the image; and the colour bar
    with pytest.raises(InputError, match="shown"):
        contributions(small(3), pictures(), shown=0)


def test_long_lists_of_models_have_pages_that_say_so() -> None:
    result = contributions(small(3), pictures())
    several = ContributionsComparison.of([replace(result, label=f"m{i}") for i in range(8)], label="x")
    drawn = several.figures()
    assert [name for name in drawn if name.startswith("figure")] == ["figure", "figure-2"]
    for name, words in (("figure", "Models 1 to 4 of 8 (page 1 of 2)."), ("figure-2", "Models 5 to 8 of 8 (page 2")):
        assert words in " ".join(" ".join(text.get_text().split()) for text in drawn[name].axes[0].texts)


def test_the_label_names_the_folder_and_rows_the_figure(here: Path) -> None:
    shutil.copy(WEIGHTS / "rohrer25k_scs.safetensors", here / "mine_sd.safetensors")
    arguments = ["--model", "mine=mine_sd.safetensors", "--rows", "2", "-n", "3"]
    output = CliRunner().invoke(command, arguments, catch_exceptions=False).output
    assert output.splitlines()[-1] == "results/contributions/mine"
    saved = load_result(here / "results" / "contributions" / "mine")
    assert isinstance(saved, ContributionsResult)
    assert (saved.shown, len(saved.targets)) == (2, 3)


def test_results_are_saved_drawn_and_compared(result: ContributionsResult, tmp_path: Path) -> None:
    result.save(tmp_path)
    again = load_result(tmp_path)
    assert isinstance(again, ContributionsResult)
    pd.testing.assert_frame_equal(again.table(), result.table())
    assert list(result.figures()) == ["figure", "audit", "delta", "mean_corrected"]
    other = contributions(small(3), pictures(), label="other")
    both = ContributionsComparison.of([result, other], label="both")
    assert set(both.table()["model"]) == {"small", "other"}
    texts = [text.get_text() for text in both.figure().axes[0].texts]
    assert any(text.startswith("small") for text in texts)
    fewer = contributions(small(3), pictures(4), label="fewer")
    with pytest.raises(InputError, match="same images"):
        ContributionsComparison.of([result, fewer], label="x").figure()


def test_the_least_sure_images_are_those_with_the_smallest_lead(result: ContributionsResult) -> None:
    chosen, table = result.least_sure(2), result.table()
    wanted = table.sort_values("lead", kind="stable").head(2)
    pd.testing.assert_frame_equal(chosen.table(), wanted.reset_index(drop=True))
    positions = wanted.index.to_numpy()
    np.testing.assert_array_equal(chosen.delta, result.delta[positions])
    np.testing.assert_array_equal(chosen.images, result.images[positions])


def state(model: nn.Module) -> list[object]:
    flags = [(p.requires_grad, p.grad is None) for p in model.parameters()]
    hooks = [len(m._forward_hooks) for m in model.modules()]
    return [flags, hooks, [m.training for m in model.modules()], explaining(), torch.random.get_rng_state().tolist()]


def test_models_come_out_untouched() -> None:
    model = small(6)
    model[2].train()
    next(model.parameters()).requires_grad_(False)
    before, weights = state(model), {key: value.clone() for key, value in model.state_dict().items()}
    contributions(model, pictures())
    assert state(model) == before

    def fail(module: nn.Module, inputs: object, output: torch.Tensor) -> None:
        if explaining():
            raise KeyError("inside")

    handle = model[3].register_forward_hook(fail)
    before = state(model)
    with pytest.raises(KeyError, match="inside"):
        contributions(model, pictures())
    assert state(model) == before
    handle.remove()
    assert all(torch.equal(value, weights[key]) for key, value in model.state_dict().items())


class Deaf(nn.Module):
    """Decides without a gradient."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.one_hot((x.mean((1, 2, 3)) > 0.5).long(), 3).float()


@pytest.mark.parametrize(
    ("model", "images", "options", "message"),
    [
        (Deaf(), pictures(), {}, "not differentiable"),
        (small(), pictures() * float("nan"), {}, "in \\[0, 1\\]"),
        (small(), torch.rand(2, 3, 9, 9), {}, "cannot take images of 3×9×9"),
        (small(), pictures(), {"targets": torch.full((5,), 4)}, "from 0 to 3, got 4"),
        (small(), pictures(), {"targets": torch.zeros(4).long()}, "expected 5 targets"),
        (small(), pictures(), {"classes": ["a", "b"]}, "expected 2 logits"),
        (small(), pictures(), {"picture": "oil"}, "expected picture as one of"),
        (small(), pictures(), {"extras": ["more"]}, "got 'more'"),
        (LogitLayer(2, bias=0.0), pictures(), {}, "two logits for each image"),
    ],
)
def test_wrong_requests(model: nn.Module, images: torch.Tensor, options: dict, message: str) -> None:
    with pytest.raises(InputError, match=message):
        contributions(model, images, **options)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_command(here: Path) -> None:
    index = int(load_data("sample").indices[7])
    arguments = ["--model", "rohrer100k_scs", "--indices", str(index), "--target", "dog", "--audit", "--delta"]
    done = CliRunner().invoke(command, arguments, catch_exceptions=False)
    out = Path("results/contributions/rohrer100k_scs")
    assert done.stdout.splitlines()[-1] == str(out)
    assert "| head (Linear)" in done.stdout  # the layer that puts bias in
    table = pd.read_csv(out / "table.csv")
    assert table[["index", "explained", "complete"]].to_numpy().tolist() == [[index, "dog", True]]
    files = set(json.loads((out / "run.json").read_text())["files"])
    assert {"figure.png", "figure.pdf", "audit.csv", "audit.png", "delta.png", "arrays.npz"} <= files


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--class", "unicorn"], "unknown class 'unicorn'"),
        (["--target", "unicorn"], "unknown class 'unicorn'"),
        (["--indices", "123456"], "no image with index 123456 in sample; the nearest are"),
        (["--indices", "a"], "whole numbers"),
        (["--model", "rohrer100k_sc"], "unknown model"),
    ],
)
def test_wrong_commands_write_nothing(here: Path, arguments: list[str], message: str) -> None:
    with pytest.raises(InputError, match=message):
        CliRunner().invoke(command, ["--model", "rohrer100k_scs", *arguments], catch_exceptions=False)
    assert not list(here.iterdir())


def test_bias_share_and_residual_are_the_same_wherever_they_are_shown(result: ContributionsResult) -> None:
    """In the table, the summary, the text beside a map, the comparison's title and the number `compare` tests."""
    table, summary = result.table(), result.summary()
    share = table["bias_share"]
    (headline,) = (metric for metric in ENTRIES["contributions"].metrics if metric.name == "bias_share")
    np.testing.assert_array_equal(headline.values(result), share)
    assert summary["bias share %"].tolist() == [f"{100 * value:.1f}" for value in share]
    assert summary["residual"].tolist() == [f"{value:.0e}" for value in table["residual"]]
    words = " ".join(text.get_text() for text in result.figure().axes[0].texts)
    for bias, part, residual in table[["bias", "bias_share", "residual"]].to_numpy()[:3]:
        assert f"bias {bias:.2f}".replace("-", "−") in words or f"{bias:.2f}" in ("0.00", "-0.00")
        assert f"(share {percent(part)})" in words
        assert f"residual {residual:.0e}".replace("-", "−") in words or residual == 0
    other = replace(result, label="other")
    both = ContributionsComparison.of([result, other], label="both").figure()
    assert f"bias {percent(float(share.median()))}" in " ".join(text.get_text() for text in both.axes[0].texts)


def test_the_share_of_a_bias_has_no_pole() -> None:
    """Parts that cancel leave a logit of 0, of which a bias would be any multiple."""
    assert bias_share(np.array([4.0, 0.0, 3.0]), np.array([-2.0, 0.0, 1.0])).tolist() == [1 / 3, 0, 0.25]
