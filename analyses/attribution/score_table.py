"""The scores of attribution methods in a table: means with intervals, and each against the random map.

Scores of one metric are (methods, n). Methods are compared with the random map in pairs, image by image.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from scs_eval.analyses.attribution.metric_records import Metric
from scs_eval.analyses.core.statistics import ANY, Bounds, holm, mean_interval, paired_test, too_few

CONTROL = "random"
LEVEL = 0.05  # of p, after Holm's correction


def score_table(
    model: str, methods: Sequence[str], scores: Mapping[str, np.ndarray], metrics: Mapping[str, Metric]
) -> pd.DataFrame:
    """A row per method and metric: mean, 95 % interval, n; the difference to the random map, its p, Holm's over all."""
    control = methods.index(CONTROL)
    table = pd.DataFrame(
        {"model": model, "method": method, "metric": metric}
        | {**mean_of(values[i], bounds=metrics[metric].bounds), **_against(values[i], values[control])}
        for i, method in enumerate(methods)
        for metric, values in scores.items()
    )
    tests = ["difference", "difference_low", "difference_high", "p_value"]
    table.loc[table["method"] == CONTROL, tests] = np.nan  # a test of the random map against itself is none
    tested = table["p_value"].notna()
    table["p_holm"] = np.nan
    table.loc[tested, "p_holm"] = holm(table.loc[tested, "p_value"])
    rows = [row for _, row in table.iterrows()]
    table["verdict"] = [
        _why_untested(row) or control_verdict(metrics[row["metric"]], row["difference"], row["p_holm"]) for row in rows
    ]
    return table


def _why_untested(row: "pd.Series[Any]") -> str:
    """Why a row has no verdict; empty if it has."""
    if row["method"] == CONTROL:
        return "the reference"
    if row["n"] == 0:
        return "no value"
    return too_few(row["n"]) or ("" if np.isfinite(row["p_holm"]) else f"too few images with a value of {CONTROL} too")


def mean_of(values: np.ndarray, *, bounds: Bounds = ANY) -> dict[str, float]:
    """Mean, interval and number of the values that there are."""
    there = values[np.isfinite(values)]
    parts = map(float, mean_interval(there, bounds=bounds)) if len(there) else [np.nan] * 3
    return {**dict(zip(("mean", "low", "high"), parts, strict=True)), "n": len(there)}


def control_verdict(metric: Metric, difference: float, p: float) -> str:
    """In words, how a method compares with the random map."""
    below, at, above = metric.verdicts
    return at if p > LEVEL else below if difference < 0 else above


def cell(row: "pd.Series[Any]") -> str:
    """A mean with its interval; where it differs from the random map, ✓ for better, ✗ for worse, ≠ for neither."""
    if np.isnan(row["mean"]):
        return ""
    interval = "" if np.isnan(row["low"]) else f" [{row['low']:.2f}, {row['high']:.2f}]"
    mark = {"better": " ✓", "worse": " ✗"}.get(row["verdict"], " ≠") if row["p_holm"] <= LEVEL else ""
    return f"{row['mean']:.3f}{interval}{mark}"


def _against(mine: np.ndarray, control: np.ndarray) -> dict[str, float]:
    """The paired difference to the random map, over images where both have a value."""
    keys = ("difference", "difference_low", "difference_high", "p_value")
    both = np.isfinite(mine) & np.isfinite(control)
    if not both.any():
        return dict.fromkeys(keys, np.nan)
    return dict(zip(keys, paired_test(mine[both], control[both]), strict=True))
