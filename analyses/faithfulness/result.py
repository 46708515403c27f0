"""What faithfulness gives: scores of every method and control on every image, tables, figures."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pandas as pd

from scs_eval.analyses.attribution.metric_records import Metric, family
from scs_eval.analyses.attribution.metrics import simplicity
from scs_eval.analyses.attribution.score_table import cell, mean_of, score_table
from scs_eval.analyses.attribution.similarity import MEASURES
from scs_eval.analyses.core.axes import axes_of
from scs_eval.analyses.core.result import Comparison, Result
from scs_eval.analyses.core.statistics import SHARE, SIGNED_SHARE, Bounds, mean_interval
from scs_eval.analyses.faithfulness import cascade_figure
from scs_eval.analyses.faithfulness import figure as faithfulness_figure
from scs_eval.analyses.faithfulness.agreement import AGREEMENT_TABLES, Agreement
from scs_eval.analyses.faithfulness.agreement_figure import draw_agreement, draw_ranks
from scs_eval.analyses.faithfulness.figure import Line, Model
from scs_eval.analyses.faithfulness.pixel_curves import BASELINES, ORDERS, area
from scs_eval.analyses.plotting import style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

ROWS_PER_PAGE = 4  # models


@dataclass(frozen=True, eq=False, kw_only=True)
class FaithfulnessResult(Result):
    """Methods m (the last are the controls) put to the test on one model and n images.

    layers: names in the order in which the cascade randomises them; left_out: methods that cannot serve the model.
    indices: (n,) which images; targets: (n,) the classes explained, positions in `classes`.
    fractions: (steps + 1,) of the pixels replaced; deletion, insertion: (m, n, steps + 1) probabilities of the class.
    infidelity: (m, n) in squared logits, each map times its best factor; change: (n,) that of a map of zeros.
    spearman_absolute, spearman_signed, ssim: (m, layers, n) similarity to the original map after each layer; NaN where
        a map is constant.
    road: (m, n, shares) whether the class is recognised without a share of its first pixels; saco, rising: (m, n), see
        `saco` and `pixel_curves.rising_share`; emprt: (m, n), see `randomisation.complexity_rise`. None in results of
        before they were measured.
    own_scores: (m, k, n) values of k metrics from outside, `own_metrics` what each is: name, head, formula, source,
        better, words.
    sparseness, complexity: (m, n), see `more_scores`.
    maps: (m, k, H, W) signed, channels summed, of the first k images. images: (1, 3, H, W) the first;
    examples: (m, 1 + layers, 1, H, W) ≥ 0.
    """

    name = "faithfulness"
    axes: ClassVar = axes_of(
        "image: indices targets change", "fraction: fractions", "method, image, fraction: deletion insertion",
        "method, image: infidelity saco rising emprt sparseness complexity",
        "method, layer, image: spearman_absolute spearman_signed ssim", "method, kept, row, column: maps",
        "shown, channel, row, column: images", "method, depth, shown, row, column: examples",
        "method, image, share: road", "method, metric, image: own_scores",
    )  # fmt: skip
    methods: tuple[str, ...]
    layers: tuple[str, ...]
    classes: tuple[str, ...]
    indices: np.ndarray
    targets: np.ndarray
    fractions: np.ndarray
    deletion: np.ndarray
    insertion: np.ndarray
    infidelity: np.ndarray
    change: np.ndarray
    spearman_absolute: np.ndarray
    spearman_signed: np.ndarray
    ssim: np.ndarray
    maps: np.ndarray
    images: np.ndarray
    examples: np.ndarray
    left_out: dict[str, str] = field(default_factory=dict)
    road: np.ndarray | None = None
    saco: np.ndarray | None = None
    rising: np.ndarray | None = None
    emprt: np.ndarray | None = None
    sparseness: np.ndarray | None = None
    complexity: np.ndarray | None = None
    own_scores: np.ndarray | None = None
    own_metrics: tuple[dict[str, Any], ...] = ()

    @cached_property
    def scores(self) -> dict[str, np.ndarray]:
        """Each metric's values (m, n).

        Areas under the curves, the share of the change that a map leaves unexplained (0 perfect, 1 useless; NaN where
        the logit does not change), and the similarities once every layer is random.
        """
        with np.errstate(invalid="ignore", divide="ignore"):
            unexplained = np.where(self.change > 0, self.infidelity / self.change, np.nan)
        areas = {name: area(getattr(self, name), self.fractions) for name in ("deletion", "insertion")}
        last = {name: getattr(self, name)[:, -1] for name in MEASURES}
        return {**areas, "infidelity": unexplained, **last}

    @cached_property
    def more_scores(self) -> dict[str, np.ndarray]:
        """Further metrics' values (m, n): what removing pixels tells besides the curves, and how simple a map is.

        road: in what share of its steps the class is still recognised. sparseness: the Gini index of |map| (Chalasani
        et al. 2020); complexity: the entropy of |map| in nats (Bhatt et al. 2020).
        """
        if self.road is None or self.saco is None or self.rising is None:
            return {}
        simple = {"sparseness": self.sparseness, "complexity": self.complexity}
        if self.sparseness is None or self.complexity is None:  # of before they were kept, with the maps of all images
            simple = {**simplicity(self.maps)}
        return {
            "road": self.road.mean(-1),
            "saco": self.saco,
            "monotonicity": self.rising,
            **({} if self.emprt is None else {"emprt": self.emprt}),
            **simple,
        }

    @cached_property
    def _more_table(self) -> pd.DataFrame:
        if not self.more_scores:
            return pd.DataFrame()
        return score_table(self.label, self.methods, self.more_scores, family("further"))

    @property
    def outside(self) -> dict[str, Metric]:
        """The metrics from outside, as the result remembers them."""
        return {known["name"]: Metric(**known) for known in self.own_metrics}

    @cached_property
    def _own_table(self) -> pd.DataFrame:
        if self.own_scores is None:
            return pd.DataFrame()
        return score_table(self.label, self.methods, self._outside_scores, self.outside)

    @property
    def _outside_scores(self) -> dict[str, np.ndarray]:
        if self.own_scores is None:
            return {}
        return dict(zip(self.outside, self.own_scores.swapaxes(0, 1), strict=True))

    @cached_property
    def all_scores(self) -> dict[str, np.ndarray]:
        """Every metric's values (m, n), ours and those from outside."""
        return {**self.scores, **self.more_scores, **self._outside_scores}

    def own_values(self, metric: str) -> np.ndarray:
        """(n,) what a metric from outside gives the first method; none if it was not measured."""
        values = self._outside_scores.get(metric)
        return np.zeros(0) if values is None else values[0]

    def own_table(self) -> pd.DataFrame:
        """A row per method and metric from outside, as `table` has them; Holm's correction is over these."""
        return self._own_table.copy()

    def more_table(self) -> pd.DataFrame:
        """A row per method and further metric, as `table` has them of the first; Holm's correction is over these."""
        return self._more_table.copy()

    @cached_property
    def _table(self) -> pd.DataFrame:
        table = score_table(self.label, self.methods, self.scores, family("first"))
        table["conditions"] = table["metric"].map(self._conditions)
        return table

    def table(self) -> pd.DataFrame:
        """A row per method and metric: mean, 95 % interval, n; the paired difference to the random map and its p.

        p_holm is Holm's correction over all tests of the model. The conditions have the baseline of the curves.
        """
        return self._table.copy()

    def tables(self) -> dict[str, pd.DataFrame]:
        """The table; further metrics; similarity at every depth of the cascade; the mean curves; every image.

        Of at least four methods also how metrics agree, how methods rank over them, and which a control wins.
        """
        more = {"metrics": self.more_table()} if self.more_scores else {}
        more |= {"own_metrics": self.own_table()} if self.own_metrics else {}
        parts = {"cascade": self.cascade(), "curves": self.curves(), "images": self.per_image()}
        return {"table": self.table(), **more, **parts, **Agreement([self]).tables()}

    def summary(self) -> pd.DataFrame:
        """A row per method, means with intervals; ✓ better, ✗ worse, ≠ other than the random map (p ≤ 0.05, Holm)."""
        tables = [self._table, self._more_table, self._own_table]
        cells = {(row["method"], row["metric"]): cell(row) for table in tables for _, row in table.iterrows()}
        further = {name: metric for name, metric in family("further").items() if name in self.more_scores}
        metrics = family("first") | further | self.outside
        rows = []
        for method in self.methods:
            values = {metric.head.format(**self.settings): cells[method, name] for name, metric in metrics.items()}
            rows.append({"model": self.label, "method": method, "n": str(len(self.targets)), **values})
        return pd.DataFrame(rows)

    def cascade(self) -> pd.DataFrame:
        """Mean similarity to the original map, one row per method, measure and depth."""
        return pd.DataFrame(
            {"model": self.label, "method": method, "depth": depth, "layer": layer, "measure": measure}
            | mean_of(values, bounds=SIGNED_SHARE)
            for i, method in enumerate(self.methods)
            for measure in MEASURES
            for depth, (layer, values) in enumerate(
                zip(self.layers, getattr(self, measure)[i], strict=True), start=1
            )
        )  # fmt: skip

    def curves(self) -> pd.DataFrame:
        """Mean insertion and deletion curves with 95 % intervals."""
        parts = []
        for name in ("deletion", "insertion"):
            for line in self._lines(name):
                columns = {"fraction": self.fractions, "mean": line.mean, "low": line.low, "high": line.high}
                parts.append(pd.DataFrame({"model": self.label, "method": line.method, "curve": name, **columns}))
        return pd.concat(parts, ignore_index=True)

    def per_image(self) -> pd.DataFrame:
        """Every method on every image."""
        names = np.array(self.classes)[self.targets]
        return pd.concat(
            (
                pd.DataFrame(
                    {"model": self.label, "method": method, "index": self.indices, "target": names}
                    | {metric: values[i] for metric, values in self.scores.items()}
                    | {metric: values[i] for metric, values in self.more_scores.items()}
                    | {"infidelity_logits2": self.infidelity[i], "change_logits2": self.change}
                )
                for i, method in enumerate(self.methods)
            ),
            ignore_index=True,
        )

    def draw(self, ax: "Axes | None" = None) -> "Figure":
        """Deletion and insertion curves, mean with 95 % band; on given axes the deletion curves alone."""
        return faithfulness_figure.draw_curves([self.drawn], note=_note(self), ax=ax)

    def figures(self) -> dict[str, "Figure"]:
        """The curves, all scores, similarity along the cascade, and maps along the cascade."""
        return _figures([self])

    @cached_property
    def drawn(self) -> Model:
        """What the figures show of this model."""
        similarity = {
            name: [
                _line(method, getattr(self, name)[i].T, np.nan, bounds=SIGNED_SHARE)
                for i, method in enumerate(self.methods)
            ]
            for name in MEASURES
        }
        points: dict[str, dict[str, tuple[float, float, float]]] = {metric: {} for metric in family("first")}
        for _, row in self._table.iterrows():
            points[row["metric"]][row["method"]] = row["mean"], row["low"], row["high"]
        curves = {name: self._lines(name) for name in ("deletion", "insertion")}
        return Model(self.label, self.fractions, curves, self.layers, similarity, points)

    @property
    def _conditions(self) -> dict[str, str]:
        """What each metric depends on."""
        curves = "baseline {baseline}, {order} order, {steps} steps".format(**self.settings)
        noise = "σ = {infidelity_sigma:g}, {infidelity_samples} samples".format(**self.settings)
        known = {"deletion": curves, "insertion": curves, "infidelity": noise}
        return known | dict.fromkeys(MEASURES, "all layers re-initialised")

    def _lines(self, name: str) -> list[Line]:
        """The mean curve of every method with its interval and area.

        A mean of probabilities is one, so the interval ends at 0 and 1; of few images it would often reach beyond.
        """
        areas = self.scores[name].mean(1)
        lines = (_line(*row, bounds=SHARE) for row in zip(self.methods, getattr(self, name), areas, strict=True))
        return [line._replace(low=line.low.clip(0, 1), high=line.high.clip(0, 1)) for line in lines]


@dataclass(frozen=True, eq=False, kw_only=True)
class FaithfulnessComparison(Comparison[FaithfulnessResult]):
    """The same tests on several models."""

    name = "faithfulness"

    def draw(self, ax: "Axes | None" = None) -> "Figure":
        """Deletion and insertion curves, a row for each model."""
        return faithfulness_figure.draw_curves(
            [result.drawn for result in self.results], note=_note(self.results[0]), ax=ax
        )

    def tables(self) -> dict[str, pd.DataFrame]:
        """Every result's, one below the other; the agreement of metrics over all models."""
        own = {name: table for name, table in super().tables().items() if name not in AGREEMENT_TABLES}
        return {**own, **Agreement(self.results).tables()}

    def figures(self) -> dict[str, "Figure"]:
        """Curves, scores and similarity with a row for each model; maps along the cascade in a figure for each."""
        return _figures(self.results)


def _line(method: str, values: np.ndarray, value: float, *, bounds: Bounds) -> Line:
    """The mean of values (n, x) with its interval at every x."""
    means = [mean_of(column, bounds=bounds) for column in values.T] if np.isnan(values).any() else None
    if means is None:
        mean, low, high = mean_interval(values, bounds=bounds)
    else:
        mean, low, high = (np.array([item[key] for item in means]) for key in ("mean", "low", "high"))
    return Line(method, mean, low, high, value)


def _note(result: FaithfulnessResult) -> str:
    """What the curves are."""
    settings = result.settings
    return (
        f"Softmax probability of the class, mean over {len(result.targets)} images with 95 % bootstrap band; pixels "
        f"replaced by {BASELINES[settings['baseline']]}, ordered by {ORDERS[settings['order']].words}."
    )


def _figures(results: Sequence[FaithfulnessResult]) -> dict[str, "Figure"]:
    agreement = Agreement(results)
    drawn: dict[str, dict[str, Figure]] = {"figure": {}, "scores": {}, "cascade": {}}
    for suffix, part, words in style.pages([result.drawn for result in results], ROWS_PER_PAGE):
        note = f"{_note(results[0])} {words}"
        drawn["figure"][f"figure{suffix}"] = faithfulness_figure.draw_curves(part, note=note)
        drawn["cascade"][f"cascade{suffix}"] = cascade_figure.draw_cascade(part, page=words)
        drawn["scores"][f"scores{suffix}"] = faithfulness_figure.draw_scores(part, page=words)
    maps = {"maps" + (f"-{i}" if i > 1 else ""): _maps_figure(result) for i, result in enumerate(results, start=1)}
    return {
        **drawn["figure"],
        **drawn["scores"],
        **drawn["cascade"],
        **({"agreement": draw_agreement(agreement), "ranks": draw_ranks(agreement)} if agreement.enough else {}),
        **maps,
    }


def _maps_figure(result: FaithfulnessResult) -> "Figure":
    name = result.classes[result.targets[0]]
    title = f"{result.label}: maps of {name} as layers are re-initialised from the head down"
    return cascade_figure.draw_maps_of_cascade(
        result.images[0], result.examples[:, :, 0], result.methods, result.layers, title=title
    )
