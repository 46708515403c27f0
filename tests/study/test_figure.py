"""Figures of a study: panels that hold a few curves each, and every claim on a line."""

from types import SimpleNamespace

import numpy as np
import pandas as pd

from scs_eval.analyses.study.figure import DASHES, draw_claims, draw_robustness
from scs_eval.report.html.figures import points_of


def curve(label: str) -> SimpleNamespace:
    return SimpleNamespace(
        label=label, eps_and_zero=np.array([0, 0.01]), accuracy=SimpleNamespace(estimate=np.array([0.8, 0.1]))
    )


def test_a_panel_for_each_architecture_and_layer() -> None:
    scs = [curve(name) for name in ("rohrer25k_scs", "rohrer25k_scs@1", "rohrer25k_scs_relu", "rohrer25k_scs_maxpool")]
    panels = {
        "rohrer25k": {"conv": [curve("rohrer25k_conv")], "scs": scs},
        "rohrer68k": {"scs": [curve("rohrer68k_scs")]},
    }
    figure = draw_robustness(panels)
    titles = [ax.get_title(loc="left") for ax in figure.axes]
    assert titles == ["rohrer25k, conv", "rohrer25k, scs", "rohrer68k, conv", "rohrer68k, scs"]
    thick = [line.get_linestyle() for line in figure.axes[1].lines if line.get_linewidth() > 1]
    assert thick == ["--", ":", "-."], "one for each network, told apart by its dash"
    assert len(figure.axes[1].lines) == 5, "and a thin one for each of the two trainings"
    assert len(figure.legends[0].texts) == len(DASHES)
    told = [(series["panel"], series["name"]) for series in points_of(figure)]
    assert told[:2] == [("rohrer25k, conv", "rohrer25k_conv"), ("rohrer25k, scs", "rohrer25k_scs, mean of 2 trainings")]
    assert points_of(figure)[0]["points"][1][2:4] == [0.01, 0.1], "what a page tells of the second point"


def test_claims_without_numbers_are_not_drawn() -> None:
    row = {"number": 1, "claim": "a " * 60, "verdict": "supported", "main": True, "effect": 0.2, "standardised": 1.0}
    rows = [{**row, "low": 0.1, "high": 0.3}, {**row, "standardised": np.nan, "low": np.nan, "high": np.nan}]
    figure = draw_claims(pd.DataFrame(rows))
    (text,) = figure.axes[0].get_yticklabels()
    assert text.get_text().endswith("…")
    (series,) = points_of(figure)
    assert series["name"] == "1. supported"
    assert series["points"][0][2:] == [1.0, 0.0, 0.5, 1.5], "effect and interval over the standard deviation"
    assert "1. supported" not in [entry.get_text() for entry in figure.legends[0].texts]
