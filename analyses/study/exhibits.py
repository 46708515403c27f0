"""A paper's tables and figures, remade from the results of a study: one function for each kind of exhibit."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from scs_eval.analyses.core.reference_tests import headlines, values_of_headline
from scs_eval.analyses.core.result import Result, side_by_side
from scs_eval.analyses.core.statistics import mean_interval
from scs_eval.analyses.study.contrasts import network_of
from scs_eval.analyses.study.figure import draw_robustness
from scs_eval.analyses.study.plan import Exhibit
from scs_eval.errors import InputError
from scs_eval.models.loading.load import weights_index
from scs_eval.models.zoo.names import split_seed
from scs_eval.models.zoo.recipes import recipe_words

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ByPart = Mapping[str, Mapping[str, Mapping[str, Result]]]  # part → analysis → model → result
RIGHT_ENOUGH = 0.6  # the SCS paper shows maps of networks that are right at least that often
COLUMNS = 6  # networks in a figure of maps


@dataclass(frozen=True)
class Shown:
    """An exhibit as it is on the page: a table, or what draws a figure, or why there is neither."""

    name: str
    words: str
    table: pd.DataFrame | None = None
    draw: "Callable[[], Figure] | None" = None
    why_not: str = ""


def make_exhibits(exhibits: Sequence[Exhibit], results: ByPart) -> tuple[Shown, ...]:
    """All of them, in the order of the plan."""
    return tuple(_make(exhibit, results) for exhibit in exhibits)


def _make(exhibit: Exhibit, results: ByPart) -> Shown:
    shown = Shown(exhibit.name, exhibit.words)
    if exhibit.kind not in KINDS:
        raise InputError(f"expected an exhibit of kind {', '.join(KINDS)}, got {exhibit.kind!r}")
    try:
        return KINDS[exhibit.kind](exhibit, shown, results)
    except LookupError as error:
        return replace(shown, why_not=str(error.args[0]))


def _elsewhere(exhibit: Exhibit, shown: Shown, results: ByPart) -> Shown:
    return replace(shown, why_not=exhibit.elsewhere)


def _accuracy(exhibit: Exhibit, shown: Shown, results: ByPart) -> Shown:
    """A table of the paper, a row per network: the paper's accuracy, ours over its trainings, and their recipe."""
    rows = [row for part in exhibit.parts for row in _accuracy_rows(exhibit, _of_part(results, part, "accuracy"))]
    if not rows:
        raise LookupError("no network of this table is trained")
    return replace(shown, table=pd.DataFrame(rows))


def _accuracy_rows(exhibit: Exhibit, models: Mapping[str, Result]) -> Iterator[dict[str, Any]]:
    groups: dict[str, list[Any]] = {}
    for label, result in models.items():
        network = network_of(label)
        if network is not None and network.trained and _chosen(label, exhibit.models):
            groups.setdefault(split_seed(label)[0], []).append(result)
    for name, members in groups.items():
        paper = _paper_accuracy(members[0].known, exhibit.table)
        shares = [100 * float(member.accuracy.estimate) for member in members]
        span = f" ({min(shares):.1f} to {max(shares):.1f})" if len(shares) > 1 else ""
        yield {
            "network": name, "paper %": "" if paper is None else f"{100 * paper:.1f}",
            "ours %": f"{np.mean(shares):.1f}{span}", "trainings": len(members), "images": len(members[0].labels),
            "recipe": "; ".join(dict.fromkeys(recipe_words(_recipe(member.label)) for member in members)),
        }  # fmt: skip


def _paper_accuracy(known: Mapping[str, Any], table: int) -> float | None:
    """What the paper has of a network in that table; of Rohrer100K there are two."""
    for prefix in ("", "earlier_"):
        if known.get(f"{prefix}paper_table") == table:
            return float(known[f"{prefix}paper_accuracy"])
    return None


def _robustness(exhibit: Exhibit, shown: Shown, results: ByPart) -> Shown:
    """Accuracy against ε: a row of panels for each part, a panel for each layer."""
    panels: dict[str, dict[str, list[Result]]] = {}
    for part in exhibit.parts:
        for label, result in _of_part(results, part, "pgd").items():
            network = network_of(label)
            if network is not None and network.trained and _chosen(label, exhibit.models):
                row = panels.setdefault(network.variant.architecture, {})
                row.setdefault(network.variant.layer, []).append(result)
    if not panels:
        raise LookupError("no network of this figure is trained")
    return replace(shown, draw=lambda: draw_robustness(panels))


def _figure(exhibit: Exhibit, shown: Shown, results: ByPart) -> Shown:
    """A figure of an analysis, of the chosen models of all its parts in the order in which they are named."""
    members = [
        result
        for part in exhibit.parts
        for pattern in exhibit.models
        for label, result in _of_part(results, part, exhibit.analysis).items()
        if fnmatchcase(label, pattern) and _right_enough(label, exhibit.analysis)
    ]
    if not members:
        raise LookupError("no network of this figure is trained, or right often enough")
    together = side_by_side(members[: COLUMNS if exhibit.analysis in ("saliency", "contributions") else None])
    figures = together.figures()
    if exhibit.figure not in figures:
        raise LookupError(f"{exhibit.analysis} has no figure {exhibit.figure!r} of these networks")
    return replace(shown, draw=lambda: figures[exhibit.figure])


def _summary(exhibit: Exhibit, shown: Shown, results: ByPart) -> Shown:
    """The summary of an analysis, of the chosen models of all its parts."""
    parts = [_of_part(results, part, exhibit.analysis) for part in exhibit.parts]
    tables = [result.summary() for part in parts for label, result in part.items() if _chosen(label, exhibit.models)]
    if not tables:
        raise LookupError("no network of this table is trained")
    return replace(shown, table=pd.concat(tables, ignore_index=True).fillna(""))


def _headlines(exhibit: Exhibit, shown: Shown, results: ByPart) -> Shown:
    """What an analysis is summed up by, of the chosen models of all its parts."""
    rows = []
    for part in exhibit.parts:
        for label, result in _of_part(results, part, exhibit.analysis).items():
            if _chosen(label, exhibit.models):
                cells = {headline.words: _mean(values_of_headline(result, headline)) for headline in headlines(result)}
                rows.append({"model": label, **cells})
    if not rows:
        raise LookupError("no network of this table is trained")
    return replace(shown, table=pd.DataFrame(rows))


def _mean(values: np.ndarray) -> str:
    there = values[np.isfinite(values)]
    if not len(there):
        return ""
    mean, low, high = (float(part) for part in mean_interval(there))
    return f"{mean:.3f}" + ("" if np.isnan(low) else f" [{low:.3f}, {high:.3f}]")


Kind = Callable[[Exhibit, Shown, ByPart], Shown]
KINDS: dict[str, Kind] = {
    "accuracy": _accuracy,
    "robustness": _robustness,
    "figure": _figure,
    "summary": _summary,
    "headlines": _headlines,
    "elsewhere": _elsewhere,
}


def _of_part(results: ByPart, part: str, analysis: str) -> Mapping[str, Result]:
    if part not in results or analysis not in results[part]:
        raise LookupError(f"{analysis} of {part} is not part of this study (a quick one has fewer parts)")
    return results[part][analysis]


def _chosen(label: str, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(label, pattern) for pattern in patterns)


def _right_enough(label: str, analysis: str) -> bool:
    """Whether maps of the network are shown: not where it is known to be wrong too often; untrained ones are."""
    accuracy = weights_index().get(label, {}).get("accuracy")
    return analysis != "saliency" or accuracy is None or accuracy >= RIGHT_ENOUGH


def _recipe(label: str) -> Mapping[str, Any]:
    recipe: Mapping[str, Any] = weights_index().get(label, {}).get("recipe", {})
    return recipe
