"""Saliency maps with their metrics: tables, the test against the convolution twin, figures."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from scs_eval.analyses.result import Comparison, Result
from scs_eval.analyses.saliency_figure import draw
from scs_eval.analyses.statistics import bootstrap_mean, holm, paired_bootstrap
from scs_eval.analyses.twins import twins

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

METRICS = ("gini", "entropy", "top_mass", "class_correlation", "max_sensitivity")
HEADS = ("Gini", "entropy", "top 5 % mass", "class correlation", "max-sensitivity")
COLUMNS_PER_PAGE = 6


@dataclass(frozen=True, eq=False, kw_only=True)
class SaliencyResult(Result):
    """The maps of one model by one method, for n images.

    method, reduce, target: the attribution, what becomes of its channels, and which class was asked about.
    indices: (n,) which images; labels, predictions, targets: (n,) positions in `classes`.
    maps: (n, H, W) ≥ 0. images: (k, 3, H, W) the first k, which the figure shows.
    gini, entropy, top_mass, class_correlation, max_sensitivity: (n,) as in `map_metrics`; NaN where there is none.
    seconds: per image, for the maps alone. network: its name in the zoo, if the model is called otherwise.
    accuracy, class_accuracy: for the titles, what is known of the model overall, and by class on the data at hand.
    """

    name = "saliency"
    model: str
    method: str
    reduce: str
    target: str
    classes: tuple[str, ...]
    indices: np.ndarray
    labels: np.ndarray
    predictions: np.ndarray
    targets: np.ndarray
    maps: np.ndarray
    images: np.ndarray
    gini: np.ndarray
    entropy: np.ndarray
    top_mass: np.ndarray
    class_correlation: np.ndarray
    max_sensitivity: np.ndarray
    seconds: float
    network: str = ""
    accuracy: float | None = None
    class_accuracy: Mapping[str, float] = field(default_factory=dict)

    def table(self) -> pd.DataFrame:
        """One row: the mean and 95 % interval of every metric, seconds per image, how many maps are 0 everywhere."""
        row: dict[str, object] = {"model": self.model, "method": self.method, "n": len(self.maps)}
        for metric in METRICS:
            row.update(zip((metric, f"{metric}_low", f"{metric}_high"), self._mean(metric), strict=True))
        blank = int((self.maps.reshape(len(self.maps), -1).max(1) == 0).sum())
        return pd.DataFrame([{**row, "seconds_per_image": self.seconds, "blank_maps": blank}])

    def summary(self) -> pd.DataFrame:
        """Means with their intervals in brackets."""
        row = {"model": self.model, "method": self.method, "n": str(len(self.maps))}
        for head, metric in zip(HEADS, METRICS, strict=True):
            mean, low, high = self._mean(metric)
            row[head] = "" if np.isnan(mean) else f"{mean:.3f}" + ("" if np.isnan(low) else f" [{low:.3f}, {high:.3f}]")
        milliseconds = 1000 * self.seconds
        return pd.DataFrame([{**row, "ms/image": f"{milliseconds:,.{0 if milliseconds >= 100 else 1}f}"}])

    def tables(self) -> dict[str, pd.DataFrame]:
        """The table, and every image with its classes and metrics."""
        names = {key: np.array(self.classes)[getattr(self, key)] for key in ("labels", "predictions", "targets")}
        metrics = {metric: getattr(self, metric) for metric in METRICS}
        columns = {"model": self.model, "method": self.method, "index": self.indices, **names, **metrics}
        return {"table": self.table(), "images": pd.DataFrame(columns)}

    def figure(self, ax: "Axes | None" = None) -> "Figure":
        """Each image beside its map."""
        return draw([self], ax)

    def _mean(self, metric: str) -> tuple[float, float, float]:
        """Over the images that have a value."""
        values = getattr(self, metric)
        values = values[np.isfinite(values)]
        if not len(values):
            return np.nan, np.nan, np.nan
        mean, low, high = (float(part) for part in bootstrap_mean(values))
        return mean, low, high


@dataclass(frozen=True, eq=False, kw_only=True)
class SaliencyComparison(Comparison[SaliencyResult]):
    """The maps of several models, methods or both."""

    name = "saliency"

    def tests(self) -> pd.DataFrame:
        """Sparseness against the convolution twin on the same images by the same method: paired bootstrap, Holm."""
        rows = [_test(result, twin) for result, twin in _pairs(self.results)]
        table = pd.DataFrame(rows)
        if rows:
            table["p_holm"] = holm(table["p_value"])
            table["verdict"] = [
                "no difference shown" if p > 0.05 else "sparser" if difference > 0 else "less sparse"
                for p, difference in zip(table["p_holm"], table["gini_difference"], strict=True)
            ]
        return table

    def tables(self) -> dict[str, pd.DataFrame]:
        """The results' tables; the tests if a convolution twin is there."""
        tests = self.tests()
        return super().tables() | ({"tests": tests} if len(tests) else {})

    def summary(self) -> pd.DataFrame:
        """The results' summaries; beside them how each compares with its convolution twin."""
        summary, tests = super().summary(), self.tests()
        for _, test in tests.iterrows():
            text = f"{test['gini_difference']:+.3f}, p {_p(test['p_holm'])}: {test['verdict']}"
            here = (summary["model"] == test["model"]) & (summary["method"] == test["method"])
            summary.loc[here, "Gini − conv twin's"] = text
        return summary.fillna("")

    def figure(self, ax: "Axes | None" = None) -> "Figure":
        """Rows are images, columns are models or methods."""
        return draw(self.results, ax)

    def figures(self) -> dict[str, "Figure"]:
        """All columns, six to a page: figure, figure-2 …"""
        starts = range(0, len(self.results), COLUMNS_PER_PAGE)
        pages = [self.results[start : start + COLUMNS_PER_PAGE] for start in starts]
        return {"figure" + (f"-{i}" if i > 1 else ""): draw(page) for i, page in enumerate(pages, start=1)}


def _pairs(results: Sequence[SaliencyResult]) -> Iterator[tuple[SaliencyResult, SaliencyResult]]:
    """Each result whose twin is there by the same method on the same images, with that twin."""
    for one in results:
        there = {other.network or other.model: other for other in results if _same_question(one, other)}
        if twin := next((there[name] for name in twins(one.network or one.model) if name in there), None):
            yield one, twin


def _same_question(one: SaliencyResult, other: SaliencyResult) -> bool:
    same = (one.method, one.reduce, one.target) == (other.method, other.reduce, other.target)
    return same and np.array_equal(one.indices, other.indices)


def _test(result: SaliencyResult, twin: SaliencyResult) -> dict[str, object]:
    difference, low, high, p_value = paired_bootstrap(result.gini, twin.gini)
    names = {"model": result.model, "twin": twin.model, "method": result.method, "n": len(result.gini)}
    return {**names, "gini_difference": difference, "low": low, "high": high, "p_value": p_value}


def _p(value: float) -> str:
    return "< 0.001" if value < 0.001 else f"= {value:.2g}"
