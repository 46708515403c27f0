"""The metrics of a comparison: the catalogue's headlines, those that depend on ε once for every ε."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from scs_eval.analyses.catalogue import HIGHER as HIGHER
from scs_eval.analyses.catalogue import LOWER as LOWER
from scs_eval.analyses.catalogue import Analysis, Headline, compared
from scs_eval.analyses.core.statistics import ANY, Bounds

if TYPE_CHECKING:
    from scs_eval.analyses.attribution.metric_records import Metric

NAMED = (1 / 255, 2 / 255, 4 / 255, 8 / 255)  # values of ε that have a line in the summary
TINY = 1e-12


class SummaryMetric(NamedTuple):
    """One line of the summary: a `Headline`, at one ε if it depends on that.

    main: whether it is in the summary and its tests; the others are in the table, and gates may ask for them.
    """

    name: str
    analysis: str
    words: str
    better: int
    shares: bool = False
    main: bool = True


def metrics_of(analyses: Iterable[str], eps: Sequence[float], own: Sequence["Metric"] = ()) -> list[SummaryMetric]:
    """All metrics of some analyses in the order of the catalogue; those at a distance are called pgd@8/255.

    own: metrics of maps from outside, which stand behind those of faithfulness.
    """
    chosen = set(analyses)
    lines = []
    for entry in (entry for name, entry in compared().items() if name in chosen):
        lines += [metric for headline in entry.metrics for metric in _lines(entry, headline, eps)]
        if "metrics" in entry.needs:
            lines += [SummaryMetric(metric.name, entry.name, metric.formula, metric.better) for metric in own]
    return lines


def _lines(entry: Analysis, headline: Headline, eps: Sequence[float]) -> Iterator[SummaryMetric]:
    if not headline.at_eps:
        yield SummaryMetric(headline.name, entry.name, headline.words, headline.better, headline.shares)
        return
    shown = distances(eps)
    for radius in eps if headline.at_eps == "all" else shown:
        at = spell_eps(radius)
        words = f"{headline.words} at {at}"
        yield SummaryMetric(
            f"{headline.name}@{at}", entry.name, words, headline.better, headline.shares, radius in shown
        )


def distances(eps: Sequence[float]) -> list[float]:
    """The values of ε that the summary shows and explanations are attacked at: the named ones, else the largest."""
    return [radius for radius in eps if any(abs(radius - named) < TINY for named in NAMED)] or [eps[-1]]


def spell_eps(eps: float) -> str:
    """8/255 or 0.5/255 where that is what it is, else the number."""
    halves = 510 * eps
    return f"{round(halves) / 2:g}/255" if eps and abs(halves - round(halves)) < 1e-8 else f"{eps:.6g}"


def bounds_of(metric: SummaryMetric) -> Bounds:
    """Between which its values can lie, as far as that is known."""
    headline = _headline(metric)
    return ANY if headline is None else headline.bounds


def _headline(metric: SummaryMetric) -> Headline | None:
    """The catalogue's; metrics from outside have none, nor have analyses that are not known here."""
    name, _, at = metric.name.partition("@")
    entry = compared().get(metric.analysis)
    lines = () if entry is None else entry.metrics
    return next((line for line in lines if line.name == name and bool(line.at_eps) == bool(at)), None)


def values_of(metric: SummaryMetric, results: Mapping[str, Any]) -> np.ndarray:
    """The metric's value for every example, from a model's results by analysis; none if the analysis is missing."""
    if metric.analysis not in results:
        return np.zeros(0)
    at = metric.name.partition("@")[2]
    result = results[metric.analysis]
    headline = _headline(metric)
    if headline is None:
        return np.asarray(result.own_values(metric.name), dtype=float)
    position = ([spell_eps(float(radius)) for radius in result.eps].index(at),) if at else ()
    return np.asarray(headline.values(result, *position), dtype=float)
