"""The numbers that models are compared by: what each is called, which way is better, and every example's value."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

HIGHER, LOWER, NEITHER = 1, -1, 0
NAMED = (1 / 255, 2 / 255, 4 / 255, 8 / 255)  # values of ε that have a line in the summary
TINY = 1e-12


class Metric(NamedTuple):
    """One line of the summary.

    name: what a gate calls it. better: HIGHER, LOWER, or NEITHER where a difference is all there is to say.
    shares: whether an example is right or wrong (Wilson's interval, McNemar's test) or has a number (bootstrap).
    main: whether it is in the summary and its tests; the others are in the table, and gates may ask for them.
    """

    name: str
    analysis: str
    words: str
    better: int
    shares: bool = False
    main: bool = True


FIXED = (
    Metric("accuracy", "accuracy", "right answers", HIGHER, True),
    Metric("sparseness", "saliency", "sparseness of saliency maps (Gini)", NEITHER),
    Metric("class_correlation", "saliency", "correlation of the maps of two classes", LOWER),
    Metric("max_sensitivity", "saliency", "change of maps under small noise", LOWER),
    Metric("complete", "contributions", "maps that account for the logit", HIGHER, True),
    Metric("bias_share", "contributions", "share of biases in what makes the logit", LOWER),
    Metric("localisation", "localisation", "attribution in the right cell", HIGHER),
    Metric("robust_area", "pgd", "area under accuracy against ε", HIGHER),
    Metric("deletion", "faithfulness", "deletion: area as important pixels go", LOWER),
    Metric("insertion", "faithfulness", "insertion: area as important pixels come", HIGHER),
    Metric("infidelity", "faithfulness", "change of the logit that maps miss", LOWER),
)
AT_EPS = (
    ("pgd", "pgd", "right answers when attacked", True),
    ("localisation", "attacked", "attribution in the right cell when attacked", False),
    ("similarity", "attacked", "likeness of attacked and clean maps", False),
)


def metrics_of(analyses: Iterable[str], eps: Sequence[float]) -> list[Metric]:
    """All metrics of some analyses in the order of the summary; those at a distance are called pgd@8/255."""
    chosen = set(analyses)
    shown = distances(eps)
    found = []
    for metric in FIXED:
        found.append(metric)
        if metric.name == "robust_area":
            found += [
                Metric(
                    f"{name}@{spell_eps(each)}",
                    analysis,
                    f"{words} at {spell_eps(each)}",
                    HIGHER,
                    shares,
                    each in shown,
                )
                for name, analysis, words, shares in AT_EPS
                for each in eps
                if analysis == "pgd" or each in shown
            ]
    return [metric for metric in found if metric.analysis in chosen]


def distances(eps: Sequence[float]) -> list[float]:
    """The values of ε that the summary shows and explanations are attacked at: the named ones, else the largest."""
    return [each for each in eps if any(abs(each - named) < TINY for named in NAMED)] or [eps[-1]]


def spell_eps(eps: float) -> str:
    """8/255 or 0.5/255 where that is what it is, else the number."""
    halves = 510 * eps
    return f"{round(halves) / 2:g}/255" if eps and abs(halves - round(halves)) < 1e-8 else f"{eps:.6g}"


def values_of(metric: Metric, results: Mapping[str, Any]) -> np.ndarray:
    """The metric's value for every example, from a model's results by analysis; none if the analysis is missing."""
    if metric.analysis not in results:
        return np.zeros(0)
    name, _, distance = metric.name.partition("@")
    result = results[metric.analysis]
    return np.asarray(_AT[name](result, distance) if distance else _PLAIN[name](result), dtype=float)


def _bias_share(result: Any) -> np.ndarray:
    """|bias| over everything that is added up, in absolute values: the part that a map cannot show."""
    inside = np.abs(result.weights * result.inputs).sum((1, 2, 3))
    bias = np.abs(result.bias)
    share: np.ndarray = bias / np.maximum(inside + bias, TINY)
    return share


def _score(name: str) -> Callable[[Any], np.ndarray]:
    """A score of faithfulness, of the first method (the others are controls)."""
    return lambda result: result.scores[name][0]


def _place(result: Any, distance: str) -> int:
    """Where an ε stands on the result's grid."""
    return [spell_eps(float(eps)) for eps in result.eps].index(distance)


_PLAIN: dict[str, Callable[[Any], np.ndarray]] = {
    "accuracy": lambda result: result.correct,
    "sparseness": lambda result: result.gini,
    "class_correlation": lambda result: result.class_correlation,
    "max_sensitivity": lambda result: result.max_sensitivity,
    "complete": lambda result: result.complete,
    "bias_share": _bias_share,
    "localisation": lambda result: result.grid_scores,
    "robust_area": lambda result: result.areas,
    "deletion": _score("deletion"),
    "insertion": _score("insertion"),
    "infidelity": _score("infidelity"),
}
_AT: dict[str, Callable[[Any, str], np.ndarray]] = {
    "pgd": lambda result, distance: ~result.broken[_place(result, distance)],
    "localisation": lambda result, distance: result.localisation[_place(result, distance)],
    "similarity": lambda result, distance: result.similarity[_place(result, distance)],
}
