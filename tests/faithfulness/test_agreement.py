"""Which metric to trust: correlations, ranks and controls, against scipy and by hand."""

from dataclasses import replace
from itertools import combinations

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.stats import rankdata, spearmanr
from torch import nn

from scs_eval.analyses.core.result import side_by_side
from scs_eval.analyses.core.storage import load_result
from scs_eval.analyses.faithfulness import FaithfulnessOptions, faithfulness
from scs_eval.analyses.faithfulness.agreement import Agreement, without_rounding
from scs_eval.analyses.faithfulness.result import FaithfulnessComparison, FaithfulnessResult

METHODS = ("grad", "ixg", "gradcam", "normgrad")


def measured(seed: int) -> FaithfulnessResult:
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Conv2d(3, 5, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(320, 4)).eval()
    images = torch.rand(6, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    few = FaithfulnessOptions(steps=4, samples=5)
    return faithfulness(model, images, classes=list("abcd"), methods=METHODS, options=few, label=f"m{seed}")


@pytest.fixture(scope="module")
def results() -> list[FaithfulnessResult]:
    return [measured(0), measured(1)]


@pytest.fixture(scope="module")
def both(results: list[FaithfulnessResult]) -> FaithfulnessComparison:
    comparison = side_by_side(results)
    assert isinstance(comparison, FaithfulnessComparison)
    return comparison


def test_correlations_are_scipys(both: FaithfulnessComparison) -> None:
    """Of numbers without the digits that rounding makes: gradient and input × gradient have one infidelity."""
    table = both.tables()["agreement"].set_index(["metric", "other"])["correlation"]
    signs = {"deletion": -1, "insertion": 1, "infidelity": -1, "road": -1, "saco": 1, "sparseness": 1}
    for one, other in combinations(signs, 2):
        wanted = [
            spearmanr(*(signs[name] * result.all_scores[name][:4].mean(1).round(6) for name in (one, other))).statistic
            for result in both.results
        ]
        assert table[one, other] == pytest.approx(np.nanmean(wanted))


def test_ranks_are_means_of_ranks(both: FaithfulnessComparison) -> None:
    table = both.tables()["ranks"]
    signs = {"deletion": -1, "insertion": 1, "infidelity": -1, "road": -1, "saco": 1, "monotonicity": 1, "emprt": 1}
    rows = []
    for result in both.results:
        values = {name: sign * np.nanmean(result.all_scores[name], 1) for name, sign in signs.items()}
        values["forgetting"] = -np.nanmean(np.abs(result.spearman_absolute[:, -1]), 1)
        rows += [rankdata(-item) for item in values.values()]
    wanted = dict(zip(both.results[0].methods, np.mean(rows, 0), strict=True))
    assert dict(zip(table["method"], table["rank"], strict=True)) == pytest.approx(wanted)
    assert table["rank"].is_monotonic_increasing
    assert (table["rank_low"] <= table["rank"]).sum() >= len(table) - 1  # resampling blurs the ends of the order
    assert set(table["orders"]) == {len(rows)}


def won(result: FaithfulnessResult, **rows: float) -> pd.Series:
    """The controls' row of insertion, where each method's curve is level at the given height, else at 0.1."""
    heights = [rows.get(name, 0.1) for name in result.methods]
    noise = 0.01 * np.random.default_rng(0).random(result.insertion.shape)
    level = np.ones_like(result.insertion) * np.array(heights)[:, None, None] + noise
    table = Agreement([replace(result, insertion=level)]).controls()
    return table[table["metric"] == "insertion"].iloc[0]


def test_a_metric_that_a_control_wins_is_marked(results: list[FaithfulnessResult]) -> None:
    lost = won(results[0], edges=0.9, grad=0.5)
    assert (lost["control_wins"], lost["best_control"], lost["best_method"]) == (True, "edges", "grad")
    assert (lost["share"], lost["beaten"], lost["rank_edges"]) == (1, 4, 1)
    fine = won(results[0], edges=0.3, grad=0.5)
    assert (fine["control_wins"], fine["share"], fine["beaten"], fine["rank_edges"]) == (False, 0, 3, 2)


def test_the_random_map_wins_forgetting_by_construction(both: FaithfulnessComparison) -> None:
    table = both.tables()["controls"].query("metric == 'spearman_absolute'")
    assert (table["rank_edges"] == 7).all()  # always the same: the worst of seven maps
    assert (table["rank_random"] < table["rank_edges"]).all()


def test_intervals_hold_what_other_images_give(results: list[FaithfulnessResult]) -> None:
    """Of images that are all alike, resamples are too."""
    result = results[0]
    alike = {
        name: np.repeat(getattr(result, name)[:, :1], 6, 1) for name in ("deletion", "insertion", "infidelity", "road")
    }
    alike |= {name: np.repeat(getattr(result, name)[:, :1], 6, 1) for name in ("saco", "rising", "emprt", "maps")}
    alike["spearman_absolute"] = np.repeat(result.spearman_absolute[..., :1], 6, 2)
    alike["change"] = np.repeat(result.change[:1], 6)
    table = Agreement([replace(result, **alike)]).ranks()
    np.testing.assert_array_equal(table["rank_low"], table["rank_high"])
    table = Agreement([result]).ranks()
    assert (table["rank_low"] < table["rank_high"]).any()


def test_few_methods_have_no_order_and_older_results_still_load(
    results: list[FaithfulnessResult], tmp_path: object
) -> None:
    result = results[0]
    arrays = {name: array[2:] for name, array in result.arrays().items() if result.axes[name][:1] == ("method",)}
    few = replace(result, methods=result.methods[2:], **arrays)
    assert {"agreement", "ranks", "controls"}.isdisjoint(few.tables())
    older = replace(result, emprt=None)
    older.save(f"{tmp_path}/older")
    again = load_result(f"{tmp_path}/older")
    assert "emprt" not in again.tables()["ranks"].columns
    assert "emprt" not in set(again.tables()["agreement"]["metric"])


def test_figures(both: FaithfulnessComparison) -> None:
    figures = both.figures()
    assert {"agreement", "ranks"} <= set(figures)
    axes = figures["ranks"].axes
    assert [text.get_text() for text in axes[0].get_yticklabels()] == list(both.tables()["ranks"]["method"])


def test_correlations_that_may_be_none_have_no_colour(both: FaithfulnessComparison) -> None:
    table = both.tables()["agreement"]
    sure = table[(table["correlation_low"] > 0) | (table["correlation_high"] < 0)]
    assert 0 < len(sure) < len(table)
    (image,) = both.figures()["agreement"].axes[0].images
    assert np.isfinite(np.ma.filled(image.get_array(), np.nan)).sum() == 2 * len(sure)  # above and below the diagonal


def test_what_differs_by_rounding_alone_is_no_order() -> None:
    nan = float("nan")
    values = np.array([[0.2, 0.1 + 1e-8, 0.1, nan, 0.1 + 2e-8], [3, 1, 2, 4, 5], [nan] * 5])
    wanted = np.array([[0.2, 0.1, 0.1, nan, 0.1], [3, 1, 2, 4, 5], [nan] * 5])
    np.testing.assert_array_equal(without_rounding(values), wanted)
    assert rankdata(-without_rounding(values)[1]).tolist() == [3, 5, 4, 2, 1]


def test_methods_that_a_metric_cannot_tell_apart_share_their_rank() -> None:
    """Of a network without biases input × gradient and W(x) are the same map, made in different ways."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 5, 3, bias=False), nn.ReLU(), nn.Flatten(), nn.Linear(180, 4, bias=False)).eval()
    images, few = torch.rand(6, 3, 8, 8, generator=torch.Generator().manual_seed(0)), FaithfulnessOptions(steps=4)
    result = faithfulness(model, images, classes=list("abcd"), methods=(*METHODS, "wx"), options=few)
    ranks = result.tables()["ranks"].set_index("method")["rank"]
    assert ranks["ixg"] == ranks["wx"]
