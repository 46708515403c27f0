"""Comparisons: their tests against scipy, finished work used again, gates, and the whole command."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from scipy import stats
from torch import nn

from scs_eval import InputError, load_data, load_model
from scs_eval.analyses import compare as comparing
from scs_eval.analyses.attribution.attribute import attribute
from scs_eval.analyses.catalogue import imported
from scs_eval.analyses.compare import compare, steps
from scs_eval.analyses.compare.attacked import attacked_explanations
from scs_eval.analyses.compare.gates import parse_gate
from scs_eval.analyses.compare.metrics import SummaryMetric, metrics_of, spell_eps
from scs_eval.analyses.compare.result import CompareResult, padded_stack
from scs_eval.analyses.core.cache import ResultCache
from scs_eval.analyses.core.result import load_result
from scs_eval.cli.main import cli

NAMES = ("rohrer100k_scs", "rohrer100k_conv")
DATA = load_data("sample", n=60)
FEW = {"labels": DATA.labels, "classes": DATA.classes, "indices": DATA.indices}
SMALL = {"accuracy": 60, "saliency": 12, "contributions": 12, "localisation": 2, "pgd": 8, "faithfulness": 4}
METRICS = (
    SummaryMetric("accuracy", "accuracy", "right", 1, True),
    SummaryMetric("deletion", "faithfulness", "low", -1),
    SummaryMetric("sparseness", "saliency", "neither", 0),
    SummaryMetric("pgd@0.01", "pgd", "not shown", 1, True, False),
)


def result_of(columns: list[list[np.ndarray]], models: tuple[str, ...] = ("a", "b")) -> CompareResult:
    return CompareResult(
        label="x", models=models, metrics=tuple(map(tuple, METRICS[: len(columns)])), outcomes=padded_stack(columns)
    )


@pytest.fixture(scope="module")
def models() -> dict[str, nn.Module]:
    return {name: load_model(name) for name in NAMES}


def random_columns() -> list[list[np.ndarray]]:
    rng = np.random.default_rng(0)
    right = rng.random(200) < 0.6
    better = right | (rng.random(200) < 0.3)
    low = rng.random(50)
    return [[better * 1.0, right * 1.0], [low, low + 0.2 + 0.01 * rng.random(50)], [low, low + 1e-9], [right * 1.0] * 2]


def test_tests_are_those_of_scipy_and_corrected_by_hand():
    columns = random_columns()
    tests = result_of(columns).tests().set_index("metric")
    a, b = (column.astype(bool) for column in columns[0])
    only_a, only_b = int((a & ~b).sum()), int((b & ~a).sum())
    assert tests.loc["accuracy", "p_value"] == pytest.approx(stats.binomtest(only_a, only_a + only_b).pvalue, rel=1e-9)
    assert tests.loc["accuracy", "test"] == "McNemar"
    assert "pgd@0.01" not in tests.index, "only metrics of the summary are tested"
    order = tests["p_value"].sort_values()
    by_hand = np.minimum(1, np.maximum.accumulate(order.to_numpy() * [3, 2, 1]))
    assert tests.loc[order.index, "p_holm"].to_numpy() == pytest.approx(by_hand)
    assert tests["winner"].to_dict() == {"accuracy": "a", "deletion": "a", "sparseness": "b"}


def test_a_value_is_marked_only_where_the_test_says_so():
    right = np.r_[np.ones(30), np.zeros(30)]
    slightly = right.copy()
    slightly[31:33] = 1  # two images more: p = 0.5
    result = result_of([[slightly, right]])
    assert result.value("accuracy", "a") > result.value("accuracy", "b")
    assert not result.marked("accuracy", "a")
    assert "✓" not in result.summary().to_string()
    clearly = right.copy()
    clearly[30:45] = 1
    result = result_of([[clearly, right]])
    assert result.marked("accuracy", "a")
    assert not result.marked("accuracy", "b")
    assert result.summary().set_index("metric").loc["accuracy ↑", "a"].endswith("✓")


def test_lower_may_be_better_and_neither_may():
    summary = result_of(random_columns()).summary().set_index("metric")
    assert summary.loc["deletion ↓", "a"].endswith("✓")
    assert summary.loc["sparseness", "b"].endswith("▴")


def test_models_are_compared_with_their_reference_alone():
    values = np.linspace(0, 1, 40)
    columns = [[np.ones(40)] * 3, [values + 1, values, values + 2]]
    result = result_of(columns, ("a", "b", "c"))  # names of one's own: the first is the reference
    assert set(zip(result.tests()["a"], result.tests()["b"], strict=True)) == {("b", "a"), ("c", "a")}
    assert result.beaten("deletion", "a") == ["c"]
    assert [result.marked("deletion", name) for name in "abc"] == [False, True, False]
    asked = replace(result, references={"a": "c", "b": "c"})
    assert [asked.marked("deletion", name) for name in "abc"] == [True, True, False]


def test_a_network_of_the_zoo_has_its_convolution_network_or_none():
    columns = [[np.ones(9)] * 2]
    result = result_of(columns, ("rohrer100k_scs", "rohrer100k_ssdp"))
    assert not len(result.tests())
    assert set(result.without_reference.values()) == {"rohrer100k_conv"}
    assert result_of(columns, ("rohrer100k_scs", "rohrer100k_conv")).pairs == [("rohrer100k_scs", "rohrer100k_conv")]


def test_many_models_can_still_differ():
    """Holm multiplies by the number of tests; the bootstrap's smallest p must leave room for that."""
    names = tuple("abcdefgh")
    values = [np.linspace(0, 1, 20) + 5 * place for place in range(len(names))]
    columns = [[np.ones(20)] * len(names), values, values]
    tests = result_of(columns, names).tests()
    assert len(tests) == 3 * 7
    assert (tests[tests["metric"] == "deletion"]["p_holm"] <= 0.05).all()


def test_too_few_examples_are_not_tested_and_missing_ones_left_out():
    few, many = np.arange(5.0), np.arange(30.0)
    holed = np.where(many < 15, np.nan, many + 4)
    tests = result_of([[np.ones(9), np.ones(9)], [few, few + 9], [many, holed]]).tests().set_index("metric")
    assert tests.loc["deletion", "test"] == "too few examples (n = 5)"
    assert tests.loc["deletion", ["p_value", "p_holm"]].isna().all()
    assert tests.loc["deletion", "winner"] == ""
    assert tests.loc["sparseness", ["n", "difference"]].tolist() == [15, 4.0]


def test_results_are_saved_and_loaded(tmp_path):
    result = result_of(random_columns())
    result.save(tmp_path)
    assert load_result(tmp_path).table().equals(result.table())


def test_metrics_at_a_distance_are_named_as_people_write_them():
    assert [spell_eps(each) for each in (8 / 255, 0.5 / 255, 0.03)] == ["8/255", "0.5/255", "0.03"]
    names = {metric.name: metric.main for metric in metrics_of(["pgd", "attacked"], comparing.EPS)}
    assert names["pgd@8/255"]
    assert names["localisation@2/255"]
    assert not names["pgd@0.5/255"]
    assert [metric.name for metric in metrics_of(["accuracy"], comparing.EPS)] == ["accuracy"]


@pytest.mark.parametrize(
    ("text", "model", "metric", "sign", "limit"),
    [
        ("pgd@8/255 < 0.2", None, "pgd@8/255", "<", 0.2),
        ("pgd@0.03137254902<=1/5", None, "pgd@8/255", "<=", 0.2),
        ("torchvision:resnet18:accuracy >= 0.9", "torchvision:resnet18", "accuracy", ">=", 0.9),
        (" a : accuracy > -1", "a ", "accuracy", ">", -1),
    ],
)
def test_gates_are_parsed(text, model, metric, sign, limit):
    gate = parse_gate(text, models=["torchvision:resnet18", "a "], metrics=["accuracy", "pgd@8/255"])
    assert (gate.model, gate.metric, gate.sign, gate.limit) == (model, metric, sign, pytest.approx(limit))


WRONG_GATES = {
    "accuracy": "expected --fail-if as",
    "acuracy < 1": "did you mean accuracy",
    "accuracy < __import__('os')": "expected a number",
    "pgd@x < 1": "expected a number",
    "b:accuracy < 1": "no model 'b'",
    "accuracy < 0.5 < 1": "did you mean accuracy|no metric",
    "accuracy == 1": "expected",
}


@pytest.mark.parametrize(("text", "message"), WRONG_GATES.items())
def test_wrong_gates_are_refused(text, message):
    with pytest.raises(InputError, match=message):
        parse_gate(text, models=["a"], metrics=["accuracy", "pgd@8/255"])


def test_a_gate_fails_for_each_model_that_meets_it_and_where_a_value_is_missing():
    half = np.r_[np.ones(5), np.zeros(5)]
    result = result_of([[half, np.ones(10)], [np.full(10, np.nan), np.ones(10)]])
    names = {"models": ["a", "b"], "metrics": ["accuracy", "deletion"]}
    assert [line[0] for line in parse_gate("accuracy < 0.6", **names).failures(result)] == ["a"]
    assert not parse_gate("accuracy < 0.5", **names).failures(result)
    assert not parse_gate("b:accuracy < 0.6", **names).failures(result)
    assert parse_gate("deletion > 5", **names).failures(result) == ["a: deletion = missing (deletion > 5)"]


def attack_few(model: nn.Module, **options):
    right = (model(DATA.images).argmax(1) == DATA.labels).nonzero()[:12, 0]
    images, labels = DATA.images[right], DATA.labels[right]
    result = attacked_explanations(model, images, labels, classes=DATA.classes, eps=[2 / 255, 8 / 255], **options)
    return result, images, labels


def test_likeness_is_scipys_rank_correlation_of_the_maps(models):
    seen = []
    result, images, labels = attack_few(
        models["rohrer100k_scs"], play=lambda moved: seen.append(moved.clone()) or np.array([0.5])
    )
    assert torch.equal(seen[0], images), "the first is clean"
    maps = [attribute(models["rohrer100k_scs"], moved, labels, method="wx").double().sum(1) for moved in seen]
    for place, radius in enumerate((0, 2 / 255, 8 / 255)):
        change = (seen[place] - images).abs().amax((1, 2, 3))
        assert change.max() <= radius + 1e-6  # rounding of float32 pixels
        assert change.min() >= 0.99 * radius, "the attack goes all the way"
        wanted = [stats.spearmanr(a.ravel(), b.ravel())[0] for a, b in zip(maps[0], maps[place], strict=True)]
        assert result.similarity[place] == pytest.approx(wanted, abs=1e-12)
    assert result.right[0].all()
    assert result.right[2].mean() < result.right[0].mean()
    assert result.localisation.tolist() == [[0.5]] * 3


def test_attacked_grids_are_played_as_localisation_plays_them(models):
    options = {**FEW, "analyses": ["localisation", "attacked"], "sizes": SMALL, "eps": [0.01, 0.02]}
    result = compare(models, DATA.images, **options)
    clean, attacked = (result.parts[name].results[0] for name in ("localisation", "attacked"))
    assert attacked.localisation[0] == pytest.approx(clean.grid_scores, abs=1e-6)  # ε = 0; other batches, last bits
    assert attacked.indices.tolist() == clean.indices.ravel().tolist()
    assert result.value("localisation@0.02", NAMES[0]) == pytest.approx(attacked.localisation[-1].mean())
    assert set(result.parts["attacked"].figures()) == {"figure", "maps"}


def test_all_models_see_the_same_images_and_keep_their_order(models):
    sized = {NAMES[0]: DATA.images, NAMES[1]: DATA.images.clone()}
    result = compare(models, sized, **FEW, analyses=["accuracy", "saliency"], sizes=SMALL)
    for name in NAMES:
        one = next(each for each in result.parts["saliency"].results if each.label == name)
        assert one.indices.tolist() == DATA.indices[:12].tolist()
        share = (models[name](DATA.images).argmax(1) == DATA.labels).float().mean().item()
        assert result.value("accuracy", name) == pytest.approx(share)
    with pytest.raises(InputError, match="as many images as labels, 60, got 50"):
        compare(models, {**sized, NAMES[1]: DATA.images[:50]}, **FEW)
    with pytest.raises(InputError, match="'speed'"):
        compare(models, DATA.images, **FEW, analyses=["speed"])


class Hard(nn.Module):
    """A model that has no gradient."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.model(images).detach()


def test_models_may_be_names_or_one_network():
    data = load_data("sample", n=20)
    network = load_model("rohrer25k_scs")
    by_label = compare({"rohrer25k_scs": network}, data, analyses=["accuracy"])
    for given in ("rohrer25k_scs", ["rohrer25k_scs"], network):
        result = compare(given, data, analyses=["accuracy"])
        assert result.models == (("model",) if given is network else ("rohrer25k_scs",))
        np.testing.assert_array_equal(result.to_dataframe()["value"], by_label.to_dataframe()["value"])
    for wrong in ([], {}, None, [network], 3):
        with pytest.raises(InputError, match=r"names or by their labels \({label: model}\), got"):
            compare(wrong, data)


def test_what_does_not_suit_a_model_is_left_out_and_said(models):
    result = compare(
        {"soft": models[NAMES[0]], "hard": Hard(models[NAMES[0]])}, DATA.images, **FEW, sizes=SMALL,
        analyses=["accuracy", "saliency"],
    )  # fmt: skip
    assert list(result.left_out) == ["saliency, hard"]
    assert "not differentiable" in result.left_out["saliency, hard"]
    assert result.summary().set_index("metric").loc["sparseness", "hard"] == "–"


def test_too_few_images_for_grids_leave_only_the_game_out(models):
    few = {key: value[:5] if isinstance(value, torch.Tensor) else value for key, value in FEW.items()}
    result = compare(models, DATA.images[:5], **few, analyses=["accuracy", "localisation"], sizes=SMALL)
    assert "too few for one grid" in result.left_out["localisation, all models"]
    assert list(result.parts) == ["accuracy"]


class Counted:
    """Counts how often each analysis is run, and may be told to be interrupted at one of them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.runs: list[str] = []
        self.stop_at: str | None = None
        monkeypatch.setattr(steps, "imported", lambda dotted: self._counting(dotted, imported(dotted)))

    def _counting(self, dotted, run):
        name = dotted.split(".")[2]

        def counted(task):
            if self.stop_at == f"{name} {task.label}":
                raise KeyboardInterrupt
            self.runs.append(f"{name} {task.label}")
            return run(task)

        return counted


def test_what_is_finished_is_not_done_again(models, tmp_path, monkeypatch):
    counted, store = Counted(monkeypatch), ResultCache(tmp_path / "store")
    options = {**FEW, "analyses": ["accuracy", "saliency"], "sizes": SMALL, "store": store}
    counted.stop_at = f"saliency {NAMES[1]}"
    with pytest.raises(KeyboardInterrupt):
        compare(models, DATA.images, **options)
    assert counted.runs == [f"accuracy {NAMES[0]}", f"accuracy {NAMES[1]}", f"saliency {NAMES[0]}"]
    counted.runs, counted.stop_at = [], None
    told = []
    first = compare(models, DATA.images, **options, begin=lambda cost, done: told.append(done))
    assert counted.runs == [f"saliency {NAMES[1]}"]
    assert told == [3]
    counted.runs = []
    again = compare(models, DATA.images, **options)
    assert counted.runs == []
    assert again.table().equals(first.table())
    compare(models, DATA.images, **{**options, "store": ResultCache(tmp_path / "store", read=False)})
    assert len(counted.runs) == 4, "afresh"


def test_other_work_is_not_taken_for_finished(models, tmp_path, monkeypatch):
    counted, store = Counted(monkeypatch), ResultCache(tmp_path / "store")
    options = {**FEW, "analyses": ["accuracy"], "sizes": SMALL, "store": store}
    one = {"a": load_model(NAMES[1])}

    def runs(models, images, **more):
        counted.runs = []
        compare(models, images, **{**options, **more})
        return len(counted.runs)

    assert runs(one, DATA.images) == 1
    assert runs(one, DATA.images) == 0
    assert runs(one, DATA.images, seed=1) == 1
    assert runs(one, DATA.images, sizes={**SMALL, "accuracy": 59}) == 1
    assert runs(one, DATA.images, sizes={**SMALL, "pgd": 99}) == 0, "a size that does not matter here"
    assert runs(one, DATA.images.flip(-1)) == 1
    forward = one["a"].forward
    one["a"].forward = lambda x: 2 * forward(x)  # the same weights, other code
    assert runs(one, DATA.images) == 1
    del one["a"].forward
    with torch.no_grad():
        next(one["a"].parameters()).add_(1e-6)
    assert runs(one, DATA.images) == 1
    for file in (tmp_path / "store").rglob("*.npz"):
        file.write_bytes(b"damaged")
    assert runs(one, DATA.images) == 1


def test_progress_reaches_the_end(models):
    told: list[float] = []
    done: list[float] = []
    analyses = ["accuracy", "localisation", "faithfulness"]
    compare(
        models, DATA.images, **FEW, analyses=analyses, sizes=SMALL,
        begin=lambda cost, finished: told.append(cost), advance=lambda cost, what: done.append(cost),
    )  # fmt: skip
    assert min(done) >= 0
    assert sum(done) == pytest.approx(told[0])


QUICK = ["--analyses", "accuracy,contributions", "-n", "30", "--images", "contributions=4"]


def run(tmp_path: Path, *arguments: str):
    return CliRunner().invoke(cli, ["compare", *NAMES, *QUICK, "--out", str(tmp_path / "out"), *arguments])


def test_the_command_writes_everything_and_gates_decide_its_exit_code(tmp_path):
    done = run(tmp_path, "--json", "--fail-if", "accuracy < 0.99", "--fail-if", f"{NAMES[0]}:accuracy > 1")
    assert done.exit_code == 3, done.output
    told = json.loads(done.stdout)
    assert told["models"] == list(NAMES)
    assert {row["metric"] for row in told["metrics"]} == {"accuracy", "complete", "bias_share"}
    assert [len(gate["failures"]) for gate in told["gates"]] == [2, 0]
    assert all(set(row) >= {"value", "low", "high", "n"} for row in told["metrics"])
    out = tmp_path / "out"
    assert Path(told["report"]) == out / "report.html"
    for name in ("accuracy", "contributions"):
        assert {"table.csv", "figure.png", "figure.pdf", "run.json", "arrays.npz"} <= {
            x.name for x in (out / name).iterdir()
        }
    page = (out / "report.html").read_text()
    index = json.loads((Path(comparing.__file__).parents[2] / "models/weights/index.json").read_text())
    assert all(index[name]["sha256"] in page for name in NAMES)
    again = run(tmp_path)
    assert again.exit_code == 0, "models that differ are no failure"
    assert "4 results are there already" in again.stderr
    assert again.stdout.splitlines()[-1].endswith("report.html")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--fail-if", "speed > 1"], "no metric 'speed'"),
        (["--fail-if", "pgd@8/255 < 1"], "no metric"),
        (["--images", "pgd"], "expected --images as ANALYSIS=N"),
        (["--images", "pgd=²"], "whole number"),
        (["--analyses", "accuracy,nothing"], "got 'nothing'"),
        (["--method", "wxx"], "unknown method"),
    ],
)
def test_wrong_requests_are_refused_before_the_work(tmp_path, arguments, message):
    failed = run(tmp_path, *arguments)
    assert isinstance(failed.exception, InputError)
    assert message in str(failed.exception)
    assert not (tmp_path / "out").exists()
