"""`scs-eval pgd` and its result: numbers by hand, files, figures, the command as a user types it."""

import json
import sys
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from click.testing import CliRunner, Result
from matplotlib.text import Text
from scipy.integrate import trapezoid
from torch import Tensor, nn

from scs_eval.analyses.attacks.config import Attack, parse_attack
from scs_eval.analyses.core.result import load_result
from scs_eval.analyses.core.statistics import paired_test
from scs_eval.analyses.pgd import PgdOptions, pgd
from scs_eval.analyses.pgd.examples import choose_pictures
from scs_eval.analyses.pgd.quantisation import min_eps_rounded
from scs_eval.analyses.pgd.result import PgdComparison, PgdResult
from scs_eval.analyses.scorecard import PRESETS, STEPS, Preset
from scs_eval.cli.commands import pgd as cli
from scs_eval.cli.main import main
from scs_eval.errors import InputError
from scs_eval.models.loading.load import load_model
from scs_eval.progress import Advance

CLASSES = ("cat", "dog", "ship")
N = 40
IMAGES = torch.rand(N, 3, 4, 4, generator=torch.Generator().manual_seed(0)) * 0.4 + 0.3
EPS = [0.005 * k for k in range(1, 9)]


def linear(seed: int = 0) -> nn.Sequential:
    random = torch.Generator().manual_seed(seed)
    layer = nn.Linear(48, 3)
    with torch.no_grad():
        layer.weight.copy_(torch.randn(3, 48, generator=random))
        layer.bias.copy_(-0.5 * layer.weight.sum(1))
    return nn.Sequential(nn.Flatten(), layer).eval()


def run(**options: Any) -> PgdResult:
    labels = linear()(IMAGES).argmax(1)
    labels[:4] = (labels[:4] + 1) % 3  # wrong when clean
    own = {name: options.pop(name) for name in ("scorecard", "checkpoint", "progress") & options.keys()}
    chosen = replace(options.pop("options", PgdOptions()), **{"scorecard": None, **own})
    given = {"eps": EPS, "classes": CLASSES, "label": "m", "options": chosen, **options}
    return pgd(given.pop("model", linear()), IMAGES, labels, **given)


FOUND = run()


def test_the_curve_and_its_summaries_by_hand() -> None:
    min_eps = FOUND.min_eps
    curve = FOUND.curve()
    assert curve["eps"].tolist() == [0, *EPS]
    assert curve["correct"].tolist() == [36, *((min_eps > eps).sum() for eps in EPS)]
    assert 0 < curve["correct"].iloc[-1] < 18
    # 36 of 40 by scipy.stats.binomtest(36, 40).proportion_ci(method="wilson")
    np.testing.assert_allclose(curve.loc[0, ["low", "high"]].astype(float), [0.7695, 0.9604], atol=1e-4)
    area = trapezoid(curve["accuracy"], curve["eps"]) / EPS[-1]
    assert FOUND.table()["area"].item() == pytest.approx(area)
    right = np.sort(min_eps[min_eps > 0])
    assert FOUND.median[0] == right[17]  # the lower of the two in the middle of 36
    assert FOUND.median[1] <= FOUND.median[0] <= FOUND.median[2]
    half = np.abs(curve["accuracy"][1:] - curve["accuracy"][0] / 2).argmin()
    assert FOUND.middle == EPS[half]


def test_one_row_per_image() -> None:
    table = FOUND.per_image()
    assert len(table) == N
    wrong = table["label"] != table["prediction"]
    assert (table["min_eps"][wrong] == 0).all()
    is_adversarial = np.isfinite(table["min_eps"])
    assert ((table["attacked"] != table["label"]) == is_adversarial).all()
    assert set(table["label"]) <= set(CLASSES)
    assert FOUND.settings["attacks"][0]["steps"] == 10  # what was done can be read off the result


class Brightness(nn.Module):
    """Class 1 if the mean pixel is above 100.4/255."""

    def forward(self, images: Tensor) -> Tensor:
        bright = 255 * images.mean((1, 2, 3)) - 100.4
        return torch.stack([0 * bright, bright], 1)


def test_a_change_of_less_than_half_a_level_is_rounded_away() -> None:
    image = torch.full((1, 3, 2, 2), 100 / 255)
    adversarial = image + 0.45 / 255  # wrong as it is, right when saved
    found = min_eps_rounded(
        Brightness(), image, torch.tensor([0]), adversarial, norm="linf", classes=2,
        min_eps=torch.tensor([0.45 / 255]), eps=torch.tensor([0.45, 0.49, 0.51, 2]) / 255,
    )  # fmt: skip
    assert found.item() == pytest.approx(0.51 / 255)  # the first that is rounded up to a whole level


def test_rounding_to_8_bits_never_helps_the_attack_on_this_grid() -> None:
    assert (FOUND.min_eps_8bit >= FOUND.min_eps).all()
    assert (FOUND.min_eps_8bit[FOUND.min_eps == 0] == 0).all()
    assert (FOUND.accuracy_8bit.estimate >= FOUND.accuracy.estimate).all()


def test_pictures_are_of_as_many_classes_as_there_are() -> None:
    min_eps = torch.tensor([0, 0.1, 0.1, 0.1, torch.inf, 0.1])
    labels = torch.tensor([2, 0, 0, 1, 2, 0])
    assert choose_pictures(min_eps, labels, most=3).tolist() == [1, 3, 2]


def shape(result: PgdResult) -> dict[str, bytes]:
    return {name: table.to_csv(index=False).encode() for name, table in result.tables().items()}


@pytest.mark.parametrize("scorecard", [None, "fast"])
def test_the_same_seed_gives_the_same_tables_whatever_the_batch(
    scorecard: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(PRESETS, "fast", Preset(images=20, queries=20, points=10, afresh=2))
    one, again, small = (shape(run(scorecard=scorecard, options=PgdOptions(batch_size=size))) for size in (512, 512, 7))
    assert one == again
    assert one == small
    assert len(one) == (3 if scorecard is None else 5)
    assert shape(run(scorecard=scorecard, seed=1)).keys() == one.keys()


def test_saved_and_loaded(tmp_path: Path) -> None:
    both = PgdComparison.of([FOUND, run(model=linear(3), label="o")], label="both")
    both.save(tmp_path)
    again = load_result(tmp_path)
    for name, table in both.tables().items():
        pd.testing.assert_frame_equal(again.tables()[name], table)


def test_areas_are_compared_image_by_image() -> None:
    first, second = FOUND, run(model=linear(3), label="o")
    row = PgdComparison.of([first, second], label="both").tests().iloc[0]
    expected = paired_test(second.areas, first.areas)
    found = [row[key] for key in ("difference", "low", "high", "p_value")]
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    assert row[["model", "reference", "metric"]].tolist() == ["o", first.label, "robust_area"]
    assert row["p_holm"] == row["p_value"]
    assert row["verdict"] in ("no difference shown", "more robust", "less robust")


def test_ten_curves_have_ten_names_that_do_not_touch() -> None:
    names = ["rohrer100k_scs", "rohrer100k_conv", *(f"rohrer100k_ssdp_p={p}" for p in range(8))]
    many = PgdComparison.of([run(model=linear(seed % 3), label=name) for seed, name in enumerate(names)], label="all")
    figure = many.figure()
    figure.draw_without_rendering()
    ax = figure.axes[0]
    boxes = {text.get_text().strip(): Text.get_window_extent(text) for text in ax.texts}  # without their lines
    assert set(boxes) == set(names)
    sorted_boxes = sorted(boxes.values(), key=lambda box: box.y0)
    # A box is as high as the tallest letters with those that reach below the line: lines a tenth closer do not touch.
    assert all(low.y1 <= high.y0 + 0.1 * high.height for low, high in pairwise(sorted_boxes))
    assert all(figure.bbox.x0 <= box.x0 and box.x1 <= figure.bbox.x1 for box in boxes.values())
    lines = [line for line in ax.lines if len(line.get_xdata()) > 2]
    samples = [line for line in ax.lines if line.get_label() == "sample"]
    assert len(samples) == 10  # of each curve's dash, beside its name
    assert all(line.get_xdata()[0] == 0 for line in lines)  # every curve begins with clean accuracy
    looks = {(line.get_color(), str(line._dash_pattern)) for line in lines}  # type: ignore[attr-defined]
    assert looks == {(line.get_color(), str(line._dash_pattern)) for line in samples}  # type: ignore[attr-defined]
    assert len(looks) >= 7  # few share both colour and dash
    assert ax.child_axes[0].get_xlabel() == "ε × 255"


def test_attacked_images_are_shown_with_their_perturbation_and_explanations() -> None:
    found = run(options=PgdOptions(shown=2))
    figure = found.figures()["attacked"]
    texts = " ".join(text.get_text() for ax in figure.axes for text in (ax.title, ax.xaxis.label, *ax.texts))
    for word in ("image", "attacked", "perturbation", "gradient\nbefore", "gradient\nafter", "W(x)⊙x\nbefore", "/255"):
        assert word in texts
    assert found.images.shape == found.adversarial.shape == (2, 3, 4, 4)


def test_without_a_broken_image_there_is_no_picture_of_one() -> None:
    found = run(eps=[1e-6])
    assert "attacked" not in found.figures()
    assert "> 1e-06" in found.summary()["median ε"].item()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"eps": [0.0]}, "at least one ε above 0"),
        ({"eps": []}, "got none"),
        ({"eps": [-1.0]}, "at least 0"),
        ({"classes": ("cat",)}, "one class cannot be wrong"),
        ({"classes": CLASSES[:2]}, "labels from 0 to 1"),
        ({"scorecard": "slow"}, "scorecard as one of fast, full"),
    ],
)
def test_bad_input_is_one_line(change: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        run(**change)


# The command.

FACTORIES = """
import torch
from torch import nn

def net():
    torch.manual_seed(0)
    return nn.Sequential(nn.AvgPool2d(8), nn.Flatten(), nn.Linear(48, 10))

def other():
    torch.manual_seed(1)
    return nn.Sequential(nn.AvgPool2d(8), nn.Flatten(), nn.Linear(48, 10))

def one_class():
    return nn.Sequential(nn.AvgPool2d(8), nn.Flatten(), nn.Linear(48, 1))

class NotANumber(nn.Module):
    def forward(self, x):
        return x.flatten(1)[:, :10] * float("nan")
"""


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(PRESETS, "fast", Preset(images=10, queries=10, points=5, afresh=2))
    Path("nets.py").write_text(FACTORIES)


def command(*arguments: str, models: tuple[str, ...] = ("a=nets.py:net", "b=nets.py:other")) -> Result:
    asked = [word for name in models for word in ("--model", name)]
    return CliRunner().invoke(cli.command, [*asked, "-n", "64", "--eps", "0.01:0.1:3", *arguments])


@pytest.fixture
def no_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Drawing takes longer than attacking so few images."""
    monkeypatch.setattr(PgdResult, "figures", lambda result: {})
    monkeypatch.setattr(PgdComparison, "figures", lambda result: {})


def test_the_command_writes_curve_table_and_scorecard(monkeypatch: pytest.MonkeyPatch) -> None:
    done = command()
    assert done.exception is None, done.output
    folder = Path("results/pgd/a+b")
    assert done.output.splitlines()[-1] == str(folder)
    there = {path.name for path in folder.iterdir()}
    assert {"figure.png", "figure.pdf", "scorecard.png", "scorecard_a.png", "attacked_b.png"} <= there
    assert {"table.csv", "curve.csv", "images.csv", "scorecard.csv", "scorecard_attacks.csv", "tests.csv"} <= there
    assert [path.name for path in folder.parent.iterdir()] == [folder.name]  # nothing unfinished is left
    table = pd.read_csv(folder / "table.csv")
    assert table["model"].tolist() == ["a", "b"]
    assert (table["worst_at_checked"] <= table["curve_at_checked"]).all()
    assert len(pd.read_csv(folder / "images.csv")) == 2 * 64
    assert json.loads((folder / "run.json").read_text())["settings"]["attacks"][0]["norm"] == "linf"
    first = {name: (folder / name).read_bytes() for name in there if name.endswith(".csv")}
    monkeypatch.setattr(PgdComparison, "figures", lambda result: {})
    assert command("--batch-size", "32").exception is None
    assert first == {name: (folder / name).read_bytes() for name in first}  # byte for byte


@pytest.mark.parametrize(
    "arguments",
    [
        ("--norm", "l2", "--eps", "0.1:1:3", "--no-scorecard"),
        ("--attack", "apgd-ce-5", "--attack", "apgd-dlr-targeted-5", "--attack", "square-10", "--restarts", "2"),
        ("--attack", "torchattacks:FGSM", "--no-scorecard"),
        ("--independent", "--loss", "margin", "--steps", "3", "--rel-step-size", "0.5"),
    ],
)
@pytest.mark.usefixtures("no_pictures")
def test_the_options_work(arguments: tuple[str, ...]) -> None:
    done = command(*arguments, "--out", "out", models=("a=nets.py:net",))
    assert done.exception is None, done.output
    assert Path("out/scorecard.csv").exists() == ("--no-scorecard" not in arguments)


@pytest.mark.usefixtures("no_pictures")
@pytest.mark.parametrize("arguments", [(), ("--no-scorecard",)])
def test_the_bar_counts_the_sweep_and_the_scorecard(
    arguments: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[tuple[int, object]] = []
    lengths: list[int] = []

    class Told(Advance):
        def __call__(self, count: int, item: object = None) -> None:
            told.append((count, item))

    class Bar:
        def __enter__(self) -> Advance:
            return Told()

        def __exit__(self, *_: object) -> None:
            pass

    def progress(_name: str, length: int) -> Bar:
        lengths.append(length)
        return Bar()

    monkeypatch.setattr(cli, "progress", progress)
    done = command(*arguments, models=("a=nets.py:net",))
    assert done.exception is None, done.output
    assert lengths == [sum(count for count, _ in told)]
    begun = [item for _, item in told].index("scorecard") if not arguments else len(told)
    assert sum(count for count, _ in told[:begun]) == 64  # images
    assert sum(count > 0 for count, _ in told[begun:]) == (0 if arguments else STEPS)


@pytest.mark.usefixtures("no_pictures")
def test_a_shipped_network_meets_its_twin_and_the_adaptive_attacks(tmp_path: Path) -> None:
    from scs_eval.models.loading.load import WEIGHTS

    copied = tmp_path / "mine.safetensors"
    copied.write_bytes((WEIGHTS / "rohrer100k_scs.safetensors").read_bytes())
    done = CliRunner().invoke(cli.command, ["--model", f"mine={copied}", "-n", "10", "--eps", "0.004:0.01:3"])
    assert done.exception is None, done.output
    folder = Path(done.output.splitlines()[-1])
    card = pd.read_csv(folder / "scorecard.csv").set_index("name")["verdict"].fillna("n/a")
    assert len(card) == 19
    assert card["transfer from the convolution twin"] in ("PASS", "WARN")
    assert card["adaptive: p → 1 in every layer"] in ("PASS", "WARN", "FAIL")


@pytest.mark.usefixtures("no_pictures")
def test_an_interrupted_command_says_so_and_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = ("--batch-size", "32", "--no-scorecard")
    whole = command(*arguments, "--out", "whole")
    assert whole.exception is None
    count = 0

    class Bar:
        def __enter__(self) -> Any:
            return self

        def __exit__(self, *_: object) -> None:
            pass

        def __call__(self, decided: int) -> None:
            nonlocal count
            count += decided
            if count > 40:
                raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(cli, "progress", lambda *_: Bar())
        stopped = command(*arguments, "--out", "out")
    assert "the same command goes on from there" in stopped.output
    assert not Path("out").exists()
    assert len(list(Path(".out.partial").iterdir())) == 1
    resumed = command(*arguments, "--out", "out")
    assert resumed.exception is None, resumed.output
    assert not Path(".out.partial").exists()
    for name in ("table.csv", "images.csv", "curve.csv"):
        assert Path("out", name).read_bytes() == Path("whole", name).read_bytes()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--eps=-0.01:0.03",), "expected --eps of at least 0, got -0.01"),
        (("--eps", ""), "got nothing"),
        (("--eps", "0.03:0.001"), "did you mean 0.001:0.03?"),
        (("--eps", "abc"), "got 'abc'"),
        (("--eps", "0"), "above 0"),
        (("--attack", "pdg"), "unknown attack 'pdg'; did you mean pgd"),
        (("--attack", "pgd-l2", "--attack", "fgsm"), "one norm"),
        (("--attack", "square", "--steps", "5"), "--steps says nothing to square"),
        (("--rel-step-size", "0"), "expected a step above 0"),
        (("--attack", "torchattacks:Nope"), "has no attack 'Nope'"),
        (("--norm", "l3"), "'l3' is not one of"),
        (("--model", "nets.py:one_class"), "expected 10 logits for each of 32 images, one per class"),
        (("--model", "nets.py:NotANumber"), "expected finite logits"),
        (("--model", "rohrer100k_sc"), "did you mean rohrer100k_scs"),
        (("--data", "nowhere"), "nowhere"),
        (("--checkpoint-every", "0"), "checkpoint_every as a whole number of at least 1, got 0"),
    ],
)
def test_a_wrong_request_is_one_line_and_exit_2(
    arguments: tuple[str, ...], message: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    named = () if "--model" in arguments else ("--model", "nets.py:net")
    monkeypatch.setattr(sys, "argv", ["scs-eval", "pgd", "-n", "10", *named, *arguments])
    with pytest.raises(SystemExit) as stopped:
        main()
    said = capsys.readouterr()
    assert stopped.value.code == 2
    assert message in said.err
    assert said.err.count("\n") == 1
    assert said.out == ""
    assert not Path("results").exists()


def test_without_torchattacks_it_says_how_to_get_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "torchattacks", None)
    arguments = ["--model", "nets.py:net", "-n", "10", "--attack", "torchattacks:PGD"]
    monkeypatch.setattr(sys, "argv", ["scs-eval", "pgd", *arguments])
    with pytest.raises(SystemExit) as stopped:
        main()
    assert stopped.value.code == 2
    assert "pip install 'scs-eval[attacks]'" in capsys.readouterr().err
    assert not Path("results").exists()


def test_options_reach_the_attacks_they_speak_of() -> None:
    chosen = cli.choose_attacks(
        ("pgd", "square-50", "torchattacks:PGD"), norm="l2", steps=7, rel_step_size=0.1, loss="dlr"
    )
    assert [each.steps for each in chosen] == [7, 50, 7]
    assert [each.loss for each in chosen] == ["dlr", "margin", "ce"]
    assert {each.norm for each in chosen} == {"l2"}
    assert cli.choose_attacks(("pgd", "pgd"), restarts=1) == (Attack(),)
    assert chosen[0].label == "pgd-dlr-l2-7"
    assert parse_attack(chosen[0].label).steps == 7


def test_the_whole_family_is_the_trained_one() -> None:
    from scs_eval.models.loading.sources import parse_sources

    assert set(cli.MODELS) <= {asked.label for asked in parse_sources(["rohrer100k*"])}
    assert all(load_model(name) for name in cli.MODELS)
