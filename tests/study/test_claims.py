"""Claims and contrasts: pairs that differ in the named factors alone, and verdicts as strong as their evidence."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from scs_eval import InputError
from scs_eval.analyses.accuracy import AccuracyResult
from scs_eval.analyses.core.result import Result
from scs_eval.analyses.core.trainings import training_effect
from scs_eval.analyses.study import contrasts
from scs_eval.analyses.study.claims import claim_table
from scs_eval.analyses.study.contrasts import find_pairs
from scs_eval.analyses.study.plan import Claim, bundled_plans, parse_plan, read_plan

SCS = {"layer": "scs", "activation": "linear", "pooling": "maxabspool"}
CONV = {"layer": "conv", "activation": "relu", "pooling": "maxpool"}
FAST = {"optimizer": "muon", "lr": 0.02, "epochs": 16}
CLAIM = Claim(source="s", text="t", metric="accuracy", of=SCS, against=CONV, expect="lower")


@pytest.fixture(autouse=True)
def one_recipe(monkeypatch: pytest.MonkeyPatch) -> None:
    """All networks of these tests are by one recipe, but for one."""
    other = {"rohrer100k_scs_maxpool": {"recipe": {**FAST, "lr": 0.5}}}

    class Index(dict[str, Any]):
        def get(self, name: str, default: Any = None) -> Any:
            return other.get(name, {"recipe": FAST})

    monkeypatch.setattr(contrasts, "weights_index", Index)


def answers(label: str, right: np.ndarray) -> AccuracyResult:
    labels = np.zeros(len(right), dtype=int)
    rest = {"classes": ("a", "b"), "margins": np.zeros(len(right)), "parameters": 1, "seconds": 1.0}
    return AccuracyResult(label=label, labels=labels, predictions=1 - right.astype(int), **rest)


def results(trainings: int, *, gap: float, architectures: tuple[str, ...] = ("rohrer100k",)) -> Any:
    """Networks of which SCS is right `gap` less often."""
    rng = np.random.default_rng(0)
    found: dict[str, dict[str, dict[str, Result]]] = {}
    for architecture in architectures:
        models: dict[str, Result] = {}
        for seed in range(trainings):
            at = f"@{seed}" if seed else ""
            models[f"{architecture}_conv{at}"] = answers(f"{architecture}_conv{at}", rng.random(300) < 0.8)
            models[f"{architecture}_scs{at}"] = answers(f"{architecture}_scs{at}", rng.random(300) < 0.8 - gap)
        found[architecture] = {"accuracy": models}
    return found


def test_pairs_differ_in_the_named_factors_alone() -> None:
    names = ["rohrer100k_scs", "rohrer100k_scs@1", "rohrer100k_conv", "rohrer100k_conv@2", "rohrer25k_conv"]
    assert find_pairs(names, SCS, CONV).labels == (("rohrer100k_scs", "rohrer100k_conv"),)
    pools = ["rohrer100k_scs", "rohrer100k_scs_maxpool", "rohrer100k_conv", "rohrer100k_conv_maxabspool"]
    pooling = find_pairs(pools, {"pooling": "maxabspool"}, {"pooling": "maxpool"})
    assert pooling.labels == (("rohrer100k_conv_maxabspool", "rohrer100k_conv"),)
    assert pooling.other_recipes == 1, "rohrer100k_scs_maxpool was trained by another recipe"


def test_untrained_networks_are_a_level_of_their_own() -> None:
    names = ["rohrer100k_scs", "rohrer100k_scs (untrained)", "rohrer100k_conv", "rohrer100k_conv (untrained)"]
    assert find_pairs(names, SCS, CONV).labels == (("rohrer100k_scs", "rohrer100k_conv"),)
    trained = find_pairs(names, {"layer": "scs", "trained": True}, {"layer": "scs", "trained": False})
    assert trained.labels == (("rohrer100k_scs", "rohrer100k_scs (untrained)"),)
    before = find_pairs(names, {**SCS, "trained": False}, {**CONV, "trained": False})
    assert before.labels == (("rohrer100k_scs (untrained)", "rohrer100k_conv (untrained)"),)


def test_a_verdict_needs_trainings() -> None:
    for trainings, verdict, scope in ((1, "undecided", "this network only"), (4, "supported", "4 trainings")):
        row = claim_table([CLAIM], results(trainings, gap=0.2), (0.01,)).iloc[0]
        assert row[["verdict", "observed", "scope"]].tolist() == [verdict, "as claimed", scope]
        assert row["trainings"] == trainings


def test_numbers_are_those_of_the_pairs() -> None:
    found = results(4, gap=0.2)
    row = claim_table([CLAIM], found, (0.01,)).iloc[0]
    models = found["rohrer100k"]["accuracy"]
    pairs = [(f"rohrer100k_scs{at}", f"rohrer100k_conv{at}") for at in ("", "@1", "@2", "@3")]
    wanted = training_effect(np.array([models[a].correct * 1.0 - models[b].correct for a, b in pairs]))
    assert row[["effect", "low", "high", "p_value"]].tolist() == pytest.approx(wanted[:4])
    assert row["command"] == "scs-eval accuracy 'rohrer100k_scs@*' 'rohrer100k_conv@*'"


@pytest.mark.parametrize(
    ("expect", "gap", "verdict"),
    [
        ("lower", 0.2, "supported"),
        ("higher", 0.2, "contradicted"),
        ("lower", 0.0, "undecided"),
        ("not higher", 0.2, "supported"),
        ("not lower", 0.4, "contradicted"),
        ("same", 0.0, "supported"),
        ("same", 0.4, "contradicted"),
    ],
)
def test_verdicts(expect: Any, gap: float, verdict: str) -> None:
    row = claim_table([replace(CLAIM, expect=expect, margin=0.1)], results(5, gap=gap), (0.01,)).iloc[0]
    assert row["verdict"] == verdict


def test_parts_are_pooled_and_shown() -> None:
    table = claim_table([CLAIM], results(2, gap=0.2, architectures=("rohrer100k", "rohrer25k")), (0.01,))
    assert table["part"].tolist() == ["all", "rohrer100k", "rohrer25k"]
    assert table["trainings"].tolist() == [4, 2, 2]
    assert table["verdict"].tolist() == ["supported", "undecided", "undecided"]


def test_a_pair_in_two_parts_counts_once() -> None:
    found = results(3, gap=0.2)
    table = claim_table([CLAIM], {**found, "control": found["rohrer100k"]}, (0.01,))
    assert table[["part", "trainings"]].to_numpy().tolist() == [["rohrer100k", 3]]


def test_holm_is_over_the_claims() -> None:
    found = results(4, gap=0.1)
    alone = claim_table([CLAIM], found, (0.01,)).iloc[0]
    three = claim_table([CLAIM] * 3, found, (0.01,))
    assert three["p_holm"].tolist() == pytest.approx([3 * alone["p_value"]] * 3)


def test_a_margin_has_no_share_in_the_correction() -> None:
    """Its interval decides; p of "no difference" would only weaken the others."""
    found, margin = results(4, gap=0.1), replace(CLAIM, expect="not lower", margin=0.5)
    alone = claim_table([CLAIM], found, (0.01,)).iloc[0]
    both = claim_table([CLAIM, margin], found, (0.01,))
    assert both["p_holm"].iloc[0] == alone["p_holm"]
    assert np.isnan(both["p_holm"].iloc[1])
    assert both["verdict"].iloc[1] == "supported"


def test_clean_accuracy_is_held_constant() -> None:
    """On images that both have right nobody is more accurate."""
    row = claim_table([replace(CLAIM, given="both right")], results(3, gap=0.2), (0.01,)).iloc[0]
    assert row["effect"] == 0
    assert row["n"] < 300


def test_another_method_of_the_same_networks_is_another_part() -> None:
    """The same networks, right 20 points more often in the one part than in the other."""
    better, worse = results(4, gap=0.0), results(4, gap=0.2)
    both = {"a": better["rohrer100k"], "b": worse["rohrer100k"]}
    claim = replace(CLAIM, of={"layer": "scs"}, against={}, expect="higher", parts=("a",), against_part="b")
    row = claim_table([claim], both, (0.01,)).iloc[0]
    assert (row["verdict"], row["trainings"]) == ("supported", 4)
    first, second = (
        [model.correct.mean() for name, model in both[part]["accuracy"].items() if "scs" in name] for part in "ab"
    )
    assert row["effect"] == pytest.approx(np.mean(first) - np.mean(second))


def test_the_command_names_the_channels_of_gradients() -> None:
    of, against = results(4, gap=0.0)["rohrer100k"], results(4, gap=0.2)["rohrer100k"]
    against = {
        "accuracy": {name: replace(model, settings={"channels": 6}) for name, model in against["accuracy"].items()}
    }
    claim = replace(CLAIM, of={"layer": "scs"}, against={}, expect="higher", parts=("a",), against_part="b")
    rows = [claim_table([claim], {"a": of, "b": other}, (0.01,)).iloc[0] for other in (of, against)]
    assert [row["command"].partition(" --channels ")[2] for row in rows] == ["", "6"]


def test_networks_that_are_missing_are_named() -> None:
    nobody = replace(CLAIM, of={"norm": "bn"}, against={"norm": "nobn"}, needs=("resnet18_conv", "resnet18_scs"))
    row = claim_table([nobody], results(1, gap=0), (0.01,)).iloc[0]
    assert row["command"] == "scs-eval zoo train resnet18_conv,resnet18_scs --data cifar10"


def test_what_cannot_be_tested_says_why() -> None:
    nobody = replace(CLAIM, of={"norm": "bn"}, against={"norm": "nobn"})
    elsewhere = replace(CLAIM, elsewhere="scs-eval bench")
    table = claim_table([nobody, elsewhere], results(1, gap=0), (0.01,))
    assert table["observed"].tolist() == ["no such pair of networks", "not part of this study"]
    assert table["command"].tolist() == ["", "scs-eval bench"]


def test_the_plans_of_the_package_can_be_read() -> None:
    assert bundled_plans() == ["bcos-paper", "scs-paper"]
    scs = read_plan("scs-paper")
    names = {exhibit.name for exhibit in scs.exhibits}
    assert {f"Table {number}" for number in range(1, 9)} | {f"Figure {number}" for number in range(1, 18)} <= names
    assert scs.quickened().parts[0].sizes["pgd"] < scs.parts[0].sizes["pgd"] < scs.in_full().parts[0].sizes["pgd"]
    bcos = {exhibit.name for exhibit in read_plan("bcos-paper").exhibits}
    assert {"Table 1", *(f"Figure {number}" for number in (4, 5, 6, 7, 11, 12, 13))} <= bcos
    assert "Figure 10, an early layer" in bcos


PART = '[[part]]\nname = "a"\nmodels = ["rohrer100k_scs"]\nsizes = { accuracy = 10 }\n'
WRONG = '[[claim]]\nsource = "s"\ntext = "t"\n'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "at least one"),
        ("part = 3", r"\[\[part\]\] tables"),
        ("[[part]\n", "expected TOML"),
        (PART + "size = 3\n", "got 'size'"),
        ('[[part]]\nname = "a"\n', "lacks"),
        (PART.replace("accuracy", "acuracy"), "unknown analysis 'acuracy'.*accuracy"),
        (
            PART + WRONG + 'metric = "accuracy"\nof = { layer = "scs" }\nagainst = { pooling = "x" }\n',
            "the same factors",
        ),
        (PART + WRONG + 'metric = "acc"\nof = { layer = "scs" }\nagainst = { layer = "conv" }\n', "a metric"),
        (PART + WRONG + 'metric = "accuracy"\nof = { lyer = "a" }\nagainst = { lyer = "b" }\n', "got 'lyer'"),
        (PART + WRONG + 'parts = ["b"]\n', "expected parts of a"),
        (PART + WRONG + 'metric = "accuracy"\nparts = ["a"]\nagainst_part = "b"\n', "expected parts of a"),
        (PART + "options = { pgd = { card = 1 } }\n", "options of pgd"),
    ],
)
def test_bad_plans_are_refused_in_one_line(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message) as error:
        parse_plan(text, name="mine")
    assert "\n" not in str(error.value)


def test_a_plan_that_is_not_there_is_answered_with_those_that_are() -> None:
    with pytest.raises(InputError, match="scs-paper"):
        read_plan("scs-papr")
