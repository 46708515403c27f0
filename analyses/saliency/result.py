"""Saliency maps with their metrics: tables, sparseness against the reference, figures."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import pandas as pd

from scs_eval.analyses.attribution.completeness import percent, ratio
from scs_eval.analyses.attribution.methods import known_method
from scs_eval.analyses.core.axes import axes_of
from scs_eval.analyses.core.result import Comparison, Result
from scs_eval.analyses.core.statistics import SHARE, SIGNED_SHARE, mean_interval
from scs_eval.analyses.plotting import style
from scs_eval.analyses.saliency.figure import draw

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

METRICS = ("gini", "entropy", "top_mass", "class_correlation", "max_sensitivity")
BOUNDS = dict(zip(METRICS, (SHARE, SHARE, SHARE, SIGNED_SHARE, (0.0, None)), strict=True))
HEADS = ("Gini", "entropy", "top 5 % mass", "class correlation", "max-sensitivity")
COLUMNS_PER_PAGE = 6


@dataclass(frozen=True, eq=False, kw_only=True)
class SaliencyResult(Result):
    """The maps of one model by one method, for n images.

    method, reduce, target: the attribution, what becomes of its channels, and which class was asked about.
    indices: (n,) which images; labels, predictions, targets: (n,) positions in `classes`; labels −1 where unknown.
    maps: (m, H, W) ≥ 0, of the first m images (16,384 of 32 pixels, 334 of 224). images: (k, 3, H, W) the first k,
        which the figure shows. blank, even: (n,) whether a map is 0, or the same, everywhere.
    gini, entropy, top_mass, class_correlation, max_sensitivity: (n,) as in `map_metrics`; NaN where there is none.
    seconds: per image, for the maps alone. network: its name in the zoo, if the model is called otherwise.
    totals, left_out: (n,) what the maps should add up to (the logit, or its change from black), and what of that is not
        in them (biases, rounding, steps that were too few); None for methods whose maps need not add up.
    accuracy, class_accuracy: for the titles, what is known of the model overall, and by class on the data at hand.
    """

    name = "saliency"
    axes: ClassVar = axes_of(
        "image: indices labels predictions targets gini entropy top_mass"
        " class_correlation max_sensitivity totals left_out blank even",
        "kept, row, column: maps", "shown, channel, row, column: images",
    )  # fmt: skip
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
    totals: np.ndarray | None = None
    left_out: np.ndarray | None = None
    blank: np.ndarray | None = None
    even: np.ndarray | None = None

    def __post_init__(self) -> None:
        """Before they were kept, there were the maps of all images."""
        flat = self.maps.reshape(len(self.maps), -1)
        for name, of_maps in (("blank", lambda: flat.max(1) == 0), ("even", lambda: np.ptp(flat, axis=1) == 0)):
            if getattr(self, name) is None:
                object.__setattr__(self, name, of_maps())
        super().__post_init__()

    @property
    def left_out_share(self) -> float | None:
        """Mean |total − Σ map| / mean |total|, if the method's maps should add up to something."""
        if self.totals is None or self.left_out is None:
            return None
        return float(ratio(np.abs(self.left_out).mean(), np.abs(self.totals).mean()))

    def notes(self) -> list[str]:
        """What a reader should know of these maps: those that are empty or even, and what the others leave out."""
        method = known_method(self.method)
        empty, even = np.asarray(self.blank), np.asarray(self.even)
        whose, lines = f"of {len(empty)} maps of {self.model} by {self.method}", []
        if empty.any():
            why = method.empty if method else "the method finds nothing"
            lines.append(f"{empty.sum()} {whose} are 0 everywhere: {why}")
        if (even & ~empty).any():
            lines.append(f"{(even & ~empty).sum()} {whose} are the same everywhere: they prefer no pixel")
        if self.left_out_share is not None and method:
            share = percent(self.left_out_share)
            lines.append(f"maps of {self.model} by {self.method} leave out {share} of the {method.adds_up_to}")
        return lines

    def table(self) -> pd.DataFrame:
        """One row: the mean and 95 % interval of every metric, how many maps are 0 everywhere."""
        row: dict[str, object] = {"model": self.model, "method": self.method, "n": len(self.targets)}
        for metric in METRICS:
            row.update(zip((metric, f"{metric}_low", f"{metric}_high"), self._mean(metric), strict=True))
        blank = int(np.asarray(self.blank).sum())
        more = {} if self.left_out_share is None else {"left_out_share": self.left_out_share}
        return pd.DataFrame([{**row, "blank_maps": blank, **more}])

    def summary(self) -> pd.DataFrame:
        """Means with their intervals in brackets."""
        row = {"model": self.model, "method": self.method, "n": str(len(self.targets))}
        for head, metric in zip(HEADS, METRICS, strict=True):
            mean, low, high = self._mean(metric)
            row[head] = "" if np.isnan(mean) else f"{mean:.3f}" + ("" if np.isnan(low) else f" [{low:.3f}, {high:.3f}]")
        if self.left_out_share is not None:
            row["left out"] = percent(self.left_out_share)
        return pd.DataFrame([row])

    def tables(self) -> dict[str, pd.DataFrame]:
        """The table, and every image with its classes and metrics."""
        names = {key: np.array([*self.classes, ""])[getattr(self, key)] for key in ("labels", "predictions", "targets")}
        metrics = {metric: getattr(self, metric) for metric in METRICS}
        columns = {"model": self.model, "method": self.method, "index": self.indices, **names, **metrics}
        return {"table": self.table(), "images": pd.DataFrame(columns)}

    def draw(self, ax: "Axes | None" = None) -> "Figure":
        """Each image beside its map."""
        return draw([self], ax)

    def _mean(self, metric: str) -> tuple[float, float, float]:
        """Over the images that have a value."""
        values = getattr(self, metric)
        values = values[np.isfinite(values)]
        if not len(values):
            return np.nan, np.nan, np.nan
        mean, low, high = (float(part) for part in mean_interval(values, bounds=BOUNDS[metric]))
        return mean, low, high


@dataclass(frozen=True, eq=False, kw_only=True)
class SaliencyComparison(Comparison[SaliencyResult]):
    """The maps of several models, methods or both."""

    name = "saliency"

    def summary(self) -> pd.DataFrame:
        """The results' summaries; beside them how sparse each is against its reference."""
        summary, tests = super().summary(), self.tests()
        for _, test in (tests[tests["metric"] == "sparseness"] if len(tests) else tests).iterrows():
            numbers = f"{test['difference']:+.3f}, p {_p(test['p_holm'])}: " if np.isfinite(test["p_holm"]) else ""
            other = ", other recipe" if test["recipes"].startswith("differ") and numbers else ""
            text = f"{numbers}{test['verdict']} (reference {test['reference']}{other})"
            here = (summary["model"] == test["model"]) & (summary["method"] == test["method"])
            summary.loc[here, "Gini − reference's"] = text
        return summary.fillna("")

    def draw(self, ax: "Axes | None" = None) -> "Figure":
        """Rows are images, columns are models or methods."""
        return draw(self.results, ax)

    def figures(self) -> dict[str, "Figure"]:
        """All columns, six to a page: figure, figure-2 …"""
        pages = style.pages(self.results, COLUMNS_PER_PAGE)
        return {f"figure{suffix}": draw(part, page=words) for suffix, part, words in pages}


def _p(value: float) -> str:
    return "< 0.001" if value < 0.001 else f"= {value:.2g}"
