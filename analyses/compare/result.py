"""What a comparison says: every metric of every model with its interval, and which differences are shown.

Every model is compared with its reference on the same examples: McNemar's exact test for right or wrong, sign flips for
the rest, Holm's correction over all tests of the summary together. A better value is marked only where that says so.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pandas as pd

from scs_eval.analyses.attribution.score_table import mean_of
from scs_eval.analyses.compare.figure import draw_pixel_curves
from scs_eval.analyses.compare.metrics import HIGHER, LOWER, SummaryMetric, bounds_of
from scs_eval.analyses.core.reference_tests import compare_pair
from scs_eval.analyses.core.result import Comparison, Result
from scs_eval.analyses.core.statistics import RESAMPLES, holm, wilson
from scs_eval.analyses.plotting import style
from scs_eval.models.zoo.counterparts import references_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LEVEL = 0.05
COLUMNS = 4  # panels side by side


@dataclass(frozen=True, eq=False, kw_only=True)
class CompareResult(Result):
    """M metrics of K models on the same examples.

    models: their labels. metrics: as `Metric` has them. outcomes: (M, K, n) the value for every example; NaN where a
    model has none, and behind the last example of a metric.
    left_out: "analysis, model" → why there is nothing.
    parts: analysis → the results of all models, for tables and figures.
    image_indices: analysis → the indices of its images, in the set they come from.
    references: model → the model that it is compared with; without them, as the rule of `references_of` has it.
    """

    name = "compare"
    axes: ClassVar = {
        "outcomes": ("metric", "model", "example"),
    }
    models: tuple[str, ...]
    metrics: tuple[tuple[str, str, str, int, bool, bool], ...]
    outcomes: np.ndarray
    left_out: Mapping[str, str] = field(default_factory=dict)
    parts: Mapping[str, Result] = field(default_factory=dict)
    image_indices: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    references: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def lines(self) -> tuple[SummaryMetric, ...]:
        """The metrics by their names, which a file does not keep."""
        return tuple(SummaryMetric(*line) for line in self.metrics)

    @cached_property
    def _table(self) -> pd.DataFrame:
        rows = []
        for metric, values in zip(self.lines, self.outcomes, strict=True):
            for model, row in zip(self.models, values, strict=True):
                names = {"metric": metric.name, "analysis": metric.analysis, "model": model}
                rows.append({**names, **_estimate(row, metric), "main": metric.main})
        return pd.DataFrame(rows)

    def table(self) -> pd.DataFrame:
        """One row per metric and model: value, 95 % interval, n; main: whether the summary shows it."""
        return self._table.copy()

    @cached_property
    def _tests(self) -> pd.DataFrame:
        lines = [m for m, metric in enumerate(self.lines) if metric.main]
        pairs = [(m, *pair) for m in lines for pair in self.pairs]
        # So many resamples that the smallest p there is can still be below 5 % after Holm's correction.
        resamples = max(RESAMPLES, 100 * len(pairs))
        table = pd.DataFrame([self._test(*pair, resamples=resamples) for pair in pairs])
        if len(table):
            table["p_holm"] = holm(table["p_value"])
            table["winner"] = [self._winner(row) for _, row in table.iterrows()]
        return table

    @cached_property
    def pairs(self) -> list[tuple[str, str]]:
        """Each model and its reference, where that is among the models."""
        chosen = self.references or references_of({model: model for model in self.models})
        return [(model, other) for model, other in chosen.items() if other in self.models]

    @cached_property
    def without_reference(self) -> dict[str, str]:
        """Each model whose reference is not among the models, and that reference."""
        chosen = self.references or references_of({model: model for model in self.models})
        return {model: other for model, other in chosen.items() if other not in self.models}

    def tests(self) -> pd.DataFrame:
        """Every model (a) against its reference (b) by every metric of the summary: the difference, p, Holm's p.

        A row without a test says why in the column `test`.
        """
        return self._tests.copy()

    def _test(self, metric: int, a: str, b: str, *, resamples: int) -> dict[str, Any]:
        line, values = self.lines[metric], (self.outcomes[metric, self.models.index(model)] for model in (a, b))
        names = {"metric": line.name, "a": a, "b": b}
        return names | compare_pair(*values, shares=line.shares, unit="examples", resamples=resamples)

    def _winner(self, test: "pd.Series[Any]") -> str:
        """The better model (where neither way is better, the one that has more), if the test shows a difference."""
        if not test["p_holm"] <= LEVEL:
            return ""
        sign = test["difference"] * (self.metric(test["metric"]).better or HIGHER)
        return str(test["a"] if sign > 0 else test["b"])

    def metric(self, name: str) -> SummaryMetric:
        """The metric of that name."""
        return next(line for line in self.lines if line.name == name)

    def beaten(self, metric: str, model: str) -> list[str]:
        """The models that this one is shown to be better than (where neither way is better: to have more than)."""
        if not len(self._tests):
            return []
        won = self._tests[(self._tests["metric"] == metric) & (self._tests["winner"] == model)]
        return [b if a == model else a for a, b in zip(won["a"], won["b"], strict=True)]

    def beaten_by(self, metric: str, model: str) -> list[str]:
        """The models that are shown to be better than this one."""
        return [other for other in self.models if other != model and model in self.beaten(metric, other)]

    def marked(self, metric: str, model: str) -> bool:
        """Whether it is shown to be better than another model, and none to be better than it."""
        return bool(self.beaten(metric, model)) and not self.beaten_by(metric, model)

    def value(self, metric: str, model: str) -> float:
        """The estimate; NaN where there is none."""
        here = (self._table["metric"] == metric) & (self._table["model"] == model)
        return float(self._table.loc[here, "value"].iloc[0])

    def tables(self) -> dict[str, pd.DataFrame]:
        """The table, and the tests."""
        return {"table": self.table(), **({"tests": self.tests()} if len(self._tests) else {})}

    def summary(self) -> pd.DataFrame:
        """A row per metric, a column per model; ✓ where it is shown to be better than its reference (or its model)."""
        table = self._table.set_index(["metric", "model"])
        rows = []
        for metric in (line for line in self.lines if line.main):
            cells = {model: self._cell(metric, model, table.loc[(metric.name, model)]) for model in self.models}
            rows.append({"metric": f"{metric.name} {ARROWS[metric.better]}".strip(), **cells})
        return pd.DataFrame(rows)

    def _cell(self, metric: SummaryMetric, model: str, row: "pd.Series[Any]") -> str:
        if np.isnan(row["value"]):
            return "–"
        marked = self.marked(metric.name, model)
        interval = "" if np.isnan(row["low"]) else f" [{row['low']:.3f}, {row['high']:.3f}]"
        return f"{row['value']:.3f}{interval}" + (" ✓" if marked and metric.better else " ▴" if marked else "")

    def figures(self) -> dict[str, "Figure"]:
        """The panels; deletion and insertion curves of all models together."""
        tested = self.parts.get("faithfulness")
        more = {"pixel_curves": draw_pixel_curves(tested.results)} if isinstance(tested, Comparison) else {}
        return {"figure": self.figure(), **more}

    def draw(self, ax: "Axes | None" = None) -> "Figure":
        """A panel for each metric of the summary with every model's value and interval; on given axes the first."""
        main = [metric for metric in self.lines if metric.main]
        with style.paper_style():
            if ax is not None:
                self._panel(ax, main[0], first=True)
                return style.figure_of(ax)
            rows = -(-len(main) // COLUMNS)
            axes = style.panels(rows, COLUMNS, height=0.3 + rows * (0.62 + 0.13 * len(self.models)))
            for position, (panel, metric) in enumerate(zip(axes, main, strict=False)):
                self._panel(panel, metric, first=position % COLUMNS == 0)
            for panel in axes[len(main) :]:
                panel.set_axis_off()
            style.write_note(axes[0], NOTE + TESTED * bool(len(self._tests)))
            return style.figure_of(axes[0])

    def _panel(self, ax: "Axes", metric: SummaryMetric, *, first: bool) -> None:
        table = self._table[self._table["metric"] == metric.name]
        for y, (_, row) in enumerate(table.iterrows()):
            colour, marker = style.look_of(row["model"])
            if np.isfinite(row["value"]):
                ends = [[row["value"] - row["low"]], [row["high"] - row["value"]]] if np.isfinite(row["low"]) else None
                name = style.unlisted(row["model"])
                ax.errorbar(row["value"], y, xerr=ends, fmt=marker, color=colour, elinewidth=0.9, ms=3.5, label=name)
        ax.set_yticks(range(len(self.models)), self.models if first else [""] * len(self.models))
        ax.set_ylim(len(self.models) - 0.4, -0.6)
        ax.locator_params(axis="x", nbins=3)  # numbers such as 0.475 run into one another where there are more
        ax.set_title(f"{metric.name} {ARROWS[metric.better]}", loc="left", fontsize=style.points(7))


ARROWS = {HIGHER: "↑", LOWER: "↓", 0: ""}
NOTE = (
    "Values with 95 % intervals, where there are any: ↑ higher is better, ↓ lower. Every panel has a scale of its own."
)
TESTED = " Whether models differ is what the paired tests in tests.csv say."


def _estimate(values: np.ndarray, metric: SummaryMetric) -> dict[str, Any]:
    """Value, interval and n of the examples that there are."""
    there = values[np.isfinite(values)]
    if metric.shares and len(there):
        value, low, high = (float(part) for part in wilson(there.sum(), len(there)))
        return {"value": value, "low": low, "high": high, "n": len(there)}
    estimate = mean_of(there, bounds=bounds_of(metric))
    return {"value": estimate["mean"], "low": estimate["low"], "high": estimate["high"], "n": estimate["n"]}


def padded_stack(columns: list[list[np.ndarray]]) -> np.ndarray:
    """(M, K, n) from values of every metric and model of whatever length, NaN behind the last."""
    longest = max((len(values) for row in columns for values in row), default=0)
    outcomes = np.full((len(columns), len(columns[0]) if columns else 0, longest), np.nan)
    for m, row in enumerate(columns):
        for k, values in enumerate(row):
            outcomes[m, k, : len(values)] = values
    return outcomes
