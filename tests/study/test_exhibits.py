"""What of a paper is remade: its rows beside ours, and the networks that nobody has trained."""

from typing import Any

import numpy as np
import pytest

from scs_eval.analyses.accuracy import AccuracyResult, Known
from scs_eval.analyses.study.exhibits import Material, make_exhibits, needed_words
from scs_eval.analyses.study.plan import Exhibit, read_plan
from scs_eval.reference.scs_paper import paper_tables


def answers(label: str, right: list[int]) -> AccuracyResult:
    rest: dict[str, Any] = {"classes": ("a", "b"), "margins": np.zeros(len(right)), "parameters": 1, "seconds": 1.0}
    known = Known(train_seconds_per_epoch=50.0)
    return AccuracyResult(
        label=label, labels=np.zeros(len(right), dtype=int), predictions=1 - np.array(right), known=known, **rest
    )


def material() -> Material:
    labels = {"rohrer25k_scs": [1, 1, 1, 0], "rohrer25k_scs@1": [1, 0, 1, 0], "rohrer25k_conv": [1, 1, 1, 1]}
    results = {label: answers(label, right) for label, right in labels.items()}
    return Material({"rohrer25k": {"accuracy": results}}, paper_tables())


def test_a_table_has_every_row_of_the_papers_in_its_order() -> None:
    table = make_exhibits(
        [Exhibit(name="T", words="w", kind="accuracy", tables=(3,), parts=("rohrer25k",))], material()
    )[0].table
    assert table is not None
    rows = table.set_index("network")
    assert list(rows.index) == list(paper_tables()["3"])
    assert len(rows) == 10
    scs, never = rows.loc["rohrer25k_scs"], rows.loc["rohrer25k_ssdp_maxpool"]
    assert (scs["paper %"], scs["ours %"], scs["trainings"]) == ("77.5", "62.5 (50.0 to 75.0)", 2)
    assert scs["training s/epoch: paper, ours"] == "133, 50"
    assert (never["paper %"], never["ours %"], never["recipe"]) == ("78.2", "", "not in this study")


def test_networks_without_weights_are_named() -> None:
    plain = Exhibit(name="F", words="w", kind="figure", analysis="saliency", tables=(8,))
    shown = make_exhibits([plain], material())[0]
    assert shown.why_not == "no network of this figure is trained, or right often enough"
    assert set(shown.not_trained) == set(paper_tables()["8"])
    assert "resnet18_224_scs_nobn" in needed_words(shown.not_trained)
    assert needed_words(()) == ""


def test_a_part_without_results_does_not_hide_the_others() -> None:
    """A method that serves no network leaves nothing; the exhibit has the other methods."""
    both = Exhibit(name="F", words="w", kind="summary", analysis="accuracy", parts=("nothing", "rohrer25k"))
    table = make_exhibits([both], material())[0].table
    assert table is not None
    assert len(table) == 3
    alone = Exhibit(name="F", words="w", kind="summary", analysis="accuracy", parts=("nothing",))
    assert make_exhibits([alone], material())[0].why_not.startswith("accuracy of nothing is not part of this study")


def test_another_papers_numbers_come_from_the_plan() -> None:
    exhibit = Exhibit(
        name="T",
        words="w",
        kind="accuracy",
        parts=("rohrer25k",),
        paper={"rohrer25k_conv": 91.5, "resnet18_conv": 93.0},
    )
    table = make_exhibits([exhibit], material())[0].table
    assert table is not None
    assert table["paper %"].tolist() == ["91.5", "93.0"]
    assert table["ours %"].tolist() == ["100.0 [51.0, 100.0]", ""]
    assert table["recipe"].tolist()[1] == "not trained"


@pytest.mark.parametrize("plan", ["scs-paper", "bcos-paper"])
def test_saved_results_of_the_plans_can_be_drawn(plan: str) -> None:
    saved = [exhibit for exhibit in read_plan(plan).exhibits if exhibit.kind == "saved"]
    assert len(saved) == (4 if plan == "scs-paper" else 0)
    for shown in make_exhibits(saved, Material({})):
        assert shown.draw is not None, shown.why_not
