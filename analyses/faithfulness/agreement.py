"""Which metric to trust? Whether metrics rank methods alike, what all of them say together, and which a control wins.

A metric of maps has no ground truth to be checked against. What can be asked: whether two metrics order the methods
alike (Spearman's correlation over the methods, mean over the models); whether a map that knows nothing of what was
learned comes out best, in which case the metric rewards something else; and how methods rank over all metrics.
Intervals are percentiles over resamples of the images: of these networks and methods, other images.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from scs_eval.analyses.attribution.metric_records import LOWER, NEITHER, Metric, family
from scs_eval.analyses.faithfulness.controls import CONTROLS

if TYPE_CHECKING:
    from scs_eval.analyses.faithfulness.result import FaithfulnessResult

Floats = NDArray[np.float64]

FEWEST = 4  # methods besides the controls: fewer have hardly an order
RESAMPLES, SEED = 1000, 0
TIE = 1e-5  # maps are in single precision, and some numbers are sums of thousands of values
FORGETS = "spearman_absolute"  # of the cascade: nearer 0 is better, which the random map is by construction
AGREEMENT_TABLES = ("agreement", "ranks", "controls")
ALIKE = ("spearman_signed", "ssim")  # the cascade's other measures of the same maps


@dataclass(frozen=True)
class Agreement:
    """Results of one or several models, at least FEWEST methods on each."""

    results: "Sequence[FaithfulnessResult]"

    @cached_property
    def methods(self) -> tuple[str, ...]:
        """The methods and controls that every model has, controls last."""
        shared = [name for name in self.results[0].methods if all(name in other.methods for other in self.results)]
        return (*(name for name in shared if name not in CONTROLS), *(name for name in shared if name in CONTROLS))

    @cached_property
    def metrics(self) -> dict[str, Metric]:
        """Those that every model has; of the cascade one."""
        known = family("first") | family("further") | self.results[0].outside
        shared = [name for name in known if all(name in result.all_scores for result in self.results)]
        return {name: known[name] for name in shared if name not in ALIKE}

    @cached_property
    def directed(self) -> list[str]:
        """The metrics of which one end is better."""
        return [name for name, metric in self.metrics.items() if metric.better != NEITHER or name == FORGETS]

    @property
    def enough(self) -> bool:
        """Whether there is an order to speak of."""
        return len(self.own_methods) >= FEWEST and len(self.directed) > 1

    @property
    def own_methods(self) -> list[str]:
        """Those that are no control."""
        return [name for name in self.methods if name not in CONTROLS]

    def _goodness(self, result: "FaithfulnessResult", metric: str) -> Floats:
        """(m, n), more is better; as it is measured where neither end is."""
        rows = result.all_scores[metric][[result.methods.index(name) for name in self.methods]]
        if metric == FORGETS:
            return -np.abs(rows)
        return -rows if self.metrics[metric].better == LOWER else rows

    @cached_property
    def _means(self) -> dict[str, Floats]:
        """Metric → (1 + RESAMPLES, models, m): the mean goodness over the images, then over each resample of them."""
        return {name: np.stack([self._resampled(item, name) for item in self.results], 1) for name in self.metrics}

    def _resampled(self, result: "FaithfulnessResult", metric: str) -> Floats:
        values = self._goodness(result, metric)
        n = values.shape[1]
        draws = np.random.default_rng(SEED).multinomial(n, np.full(n, 1 / n), RESAMPLES)  # the same for equal n
        counts = np.concatenate([np.ones((1, n)), draws])
        there = np.isfinite(values)
        number = counts @ there.T
        sums = counts @ np.where(there, values, 0).T
        return without_rounding(np.divide(sums, number, out=np.full_like(number, np.nan), where=number > 0))

    @cached_property
    def _ranks(self) -> dict[str, Floats]:
        """Metric → (1 + RESAMPLES, models, m), 1 the best of methods and controls; NaN if one of them has no value."""
        from scipy.stats import rankdata

        return {
            name: np.where(np.isnan(means).any(-1, keepdims=True), np.nan, rankdata(-means, axis=-1))
            for name, means in self._means.items()
        }

    def agreement(self) -> pd.DataFrame:
        """A row for each two metrics: Spearman's correlation over the methods without controls, mean over models."""
        from scipy.stats import rankdata

        own = len(self.own_methods)
        ranks = {name: rankdata(means[..., :own], axis=-1) for name, means in self._means.items()}
        rows = []
        names = list(ranks)
        for position, first in enumerate(names):
            for second in names[position + 1 :]:
                value = _known_mean(_correlation(ranks[first], ranks[second]))
                rows.append({"metric": first, "other": second, **_with_interval(value, "correlation")})
        return self._described(rows)

    def ranks(self) -> pd.DataFrame:
        """A row for each method and control: its mean rank over the metrics and models, best first."""
        stacked = np.concatenate([self._ranks[name] for name in self.directed], axis=1)
        known = np.isfinite(stacked[0]).all(-1)  # of a metric that gives some method no value there is no order
        ranks = stacked[:, known].mean(1)
        rows = [
            {"method": name, "control": name in CONTROLS, **_with_interval(ranks[:, i], "rank"), "orders": known.sum()}
            for i, name in enumerate(self.methods)
        ]
        return self._described(rows).sort_values("rank", ignore_index=True)

    def controls(self) -> pd.DataFrame:
        """A row for each metric and model: its best method, its best control, and whether the control wins.

        share: of the resamples in which a control is at least as good as every method. beaten: methods that the best
        control beats.
        """
        own = len(self.own_methods)
        known = dict(enumerate(self.methods[own:], start=own))
        rows = []
        for metric in self.directed:
            for position, result in enumerate(self.results):
                means = self._means[metric][:, position]
                best, control = _largest(means[:, :own]), _largest(means[:, own:])
                won = control >= best
                rows.append(
                    {"metric": metric, "model": result.label}
                    | {"best_method": _name_of(self.methods[:own], means[0, :own])}
                    | {"best_control": _name_of(self.methods[own:], means[0, own:])}
                    | {f"rank_{name}": self._ranks[metric][0, position, i] for i, name in known.items()}
                    | {"beaten": int((means[0, :own] <= control[0]).sum()), "methods": own}
                    | {"control_wins": bool(won[0]), "share": float(won[1:].mean()), "n": len(result.targets)}
                )  # fmt: skip
        return pd.DataFrame(rows)

    def tables(self) -> dict[str, pd.DataFrame]:
        """All three by file name; none of too few methods."""
        if not self.enough:
            return {}
        return {name: getattr(self, name)() for name in AGREEMENT_TABLES}

    def _described(self, rows: Sequence[Mapping[str, object]]) -> pd.DataFrame:
        """With what the rows are about."""
        models = ", ".join(result.label for result in self.results)
        return pd.DataFrame(rows).assign(methods=len(self.own_methods), models=models)


def without_rounding(values: Floats) -> Floats:
    """Neighbours along the last axis that differ by less than TIE of the largest |value| made equal; NaN stays.

    Some methods are the same by some metrics (gradient and input × gradient by infidelity): that is no order.
    """
    order = np.argsort(values, axis=-1)  # NaN last
    ordered = np.take_along_axis(values, order, -1)
    apart = np.diff(ordered, axis=-1) > TIE * np.abs(np.nan_to_num(values)).max(-1, keepdims=True)
    begins = np.concatenate([np.ones_like(apart[..., :1]), apart | np.isnan(ordered[..., 1:])], axis=-1)
    first = np.maximum.accumulate(np.where(begins, np.arange(values.shape[-1]), 0), axis=-1)
    level = np.empty_like(values)
    np.put_along_axis(level, order, np.take_along_axis(ordered, first, -1), -1)
    return level


def _correlation(first: Floats, second: Floats) -> Floats:
    """Pearson's correlation along the last axis; NaN where one of them is constant."""
    a, b = (values - values.mean(-1, keepdims=True) for values in (first, second))
    size = np.sqrt((a**2).sum(-1) * (b**2).sum(-1))
    return np.divide((a * b).sum(-1), size, out=np.full_like(size, np.nan), where=size > 0)


def _known_mean(values: Floats) -> Floats:
    """The mean over the models (…, models) that have a value; NaN where none has."""
    there = np.isfinite(values)
    count = there.sum(1)
    return np.divide(np.where(there, values, 0).sum(1), count, out=np.full(len(values), np.nan), where=count > 0)


def _with_interval(values: Floats, name: str) -> dict[str, float]:
    """The first, and percentiles of the others."""
    low, high = np.nanpercentile(values[1:], [2.5, 97.5]) if np.isfinite(values[1:]).any() else (np.nan, np.nan)
    return {name: float(values[0]), f"{name}_low": float(low), f"{name}_high": float(high)}


def _largest(values: Floats) -> Floats:
    return np.where(np.isnan(values), -np.inf, values).max(-1)


def _name_of(names: Sequence[str], values: Floats) -> str:
    return names[int(np.where(np.isnan(values), -np.inf, values).argmax())]
