"""A paper's tables and figures, remade from the results of a study: one function for each kind of exhibit.

Every exhibit knows which networks the paper shows: the rows of its tables, and those that the plan names. Those that
nobody has trained are said beside what is there.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from scs_eval.analyses.core.reference_tests import headlines, values_of_headline
from scs_eval.analyses.core.result import Result, side_by_side
from scs_eval.analyses.core.statistics import mean_interval
from scs_eval.analyses.core.storage import load_result
from scs_eval.analyses.study.accuracy_table import PaperTables, accuracy_rows, has_weights, trained_groups
from scs_eval.analyses.study.contrasts import UNTRAINED, network_of
from scs_eval.analyses.study.figure import draw_robustness
from scs_eval.analyses.study.plan import Exhibit
from scs_eval.errors import InputError
from scs_eval.models.loading.load import weights_index

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ByPart = Mapping[str, Mapping[str, Mapping[str, Result]]]  # part → analysis → model → result
RIGHT_ENOUGH = 0.6  # the SCS paper shows maps of networks that are right at least that often
COLUMNS = 6  # networks in a figure of maps
PATTERN = "*?["


@dataclass(frozen=True)
class Material:
    """What exhibits are made of: the study's results, and the accuracies that the paper reports."""

    results: ByPart
    paper: PaperTables = field(default_factory=dict)

    def of_part(self, part: str, analysis: str) -> Mapping[str, Result]:
        """Model → result; raises where the study has none."""
        if part not in self.results or analysis not in self.results[part]:
            raise LookupError(f"{analysis} of {part} is not part of this study (a quick one has fewer parts)")
        return self.results[part][analysis]

    def chosen(self, exhibit: Exhibit, analysis: str) -> Iterator[tuple[str, Result]]:
        """The exhibit's networks in the order in which it names them, those of its first part first.

        A part is passed over where the study has none of it, as a method may serve no network; not if there is none.
        """
        patterns = exhibit.models or self.wanted(exhibit) or ("*",)
        there = [part for part in exhibit.parts if analysis in self.results.get(part, {})]
        for part in there or exhibit.parts:
            models = self.of_part(part, analysis)
            labels = [label for pattern in patterns for label in models if fnmatchcase(label, pattern)]
            yield from ((label, models[label]) for label in dict.fromkeys(labels))

    def wanted(self, exhibit: Exhibit) -> tuple[str, ...]:
        """The networks that the paper shows there."""
        rows = [name for number in exhibit.tables for name in self.paper.get(str(number), {})]
        named = [name for name in (*exhibit.models, *exhibit.needs) if not any(sign in name for sign in PATTERN)]
        return tuple(dict.fromkeys([*rows, *exhibit.paper, *named]))


@dataclass(frozen=True)
class Shown:
    """An exhibit as it is on the page: a table, or what draws a figure, or why there is neither.

    not_trained: networks of the paper's exhibit that there are no weights of.
    """

    name: str
    words: str
    table: pd.DataFrame | None = None
    draw: "Callable[[], Figure] | None" = None
    why_not: str = ""
    not_trained: tuple[str, ...] = ()


def make_exhibits(exhibits: Sequence[Exhibit], material: Material) -> tuple[Shown, ...]:
    """All of them, in the order of the plan."""
    return tuple(_make(exhibit, material) for exhibit in exhibits)


def _make(exhibit: Exhibit, material: Material) -> Shown:
    names = material.wanted(exhibit)
    shown = Shown(
        exhibit.name,
        exhibit.words,
        not_trained=tuple(name for name in names if not (name.endswith(UNTRAINED) or has_weights(name))),
    )
    if exhibit.kind not in KINDS:
        raise InputError(f"expected an exhibit of kind {', '.join(KINDS)}, got {exhibit.kind!r}")
    try:
        return KINDS[exhibit.kind](exhibit, shown, material)
    except LookupError as error:
        return replace(shown, why_not=str(error.args[0]))


def _elsewhere(exhibit: Exhibit, shown: Shown, material: Material) -> Shown:
    return replace(shown, why_not=exhibit.elsewhere)


def _accuracy(exhibit: Exhibit, shown: Shown, material: Material) -> Shown:
    """A table of the paper, a row per network: the paper's numbers, and ours over its trainings where there are any."""
    parts = [part for part in exhibit.parts if part in material.results]
    groups = trained_groups(result for part in parts for result in material.of_part(part, "accuracy").values())
    names = material.wanted(exhibit) or tuple(groups)
    if not names:
        raise LookupError("no network of this table is trained")
    return replace(shown, table=accuracy_rows(names, groups, exhibit, material.paper))


def _robustness(exhibit: Exhibit, shown: Shown, material: Material) -> Shown:
    """Accuracy against ε: a row of panels for each architecture, a panel for each layer."""
    panels: dict[str, dict[str, list[Result]]] = {}
    for label, result in material.chosen(replace(exhibit, models=exhibit.models or ("*",)), "pgd"):
        network = network_of(label)
        if network is not None and network.trained:
            row = panels.setdefault(network.variant.architecture, {})
            row.setdefault(network.variant.layer, []).append(result)
    if not panels:
        raise LookupError("no network of this figure is trained")
    return replace(shown, draw=lambda: draw_robustness(panels))


def _figure(exhibit: Exhibit, shown: Shown, material: Material) -> Shown:
    """A figure of an analysis, of the chosen models of all its parts in the order in which they are named."""
    members = [
        result for label, result in material.chosen(exhibit, exhibit.analysis) if _right_enough(label, exhibit.analysis)
    ]
    if not members:
        raise LookupError("no network of this figure is trained, or right often enough")
    together = side_by_side(members[: COLUMNS if exhibit.analysis in ("saliency", "contributions") else None])
    return replace(shown, draw=_drawer(together, exhibit))


def _saved(exhibit: Exhibit, shown: Shown, material: Material) -> Shown:
    """A figure of a result that comes with the package: of trainings, which a study does not do."""
    folder = Path(str(files("scs_eval.analyses.study") / "saved" / exhibit.saved))
    return replace(shown, draw=_drawer(load_result(folder), exhibit))


def _drawer(result: Result, exhibit: Exhibit) -> "Callable[[], Figure]":
    figures = result.figures()
    if exhibit.figure not in figures:
        raise LookupError(
            f"{result.name} has no figure {exhibit.figure!r} of these networks, only {', '.join(figures)}"
        )
    return lambda: figures[exhibit.figure]


def _summary(exhibit: Exhibit, shown: Shown, material: Material) -> Shown:
    """The summary of an analysis, of the chosen models of all its parts."""
    tables = [result.summary() for _, result in material.chosen(exhibit, exhibit.analysis)]
    if not tables:
        raise LookupError("no network of this table is trained")
    return replace(shown, table=pd.concat(tables, ignore_index=True).fillna(""))


def _headlines(exhibit: Exhibit, shown: Shown, material: Material) -> Shown:
    """What an analysis is summed up by, of the chosen models of all its parts."""
    rows = []
    for label, result in material.chosen(exhibit, exhibit.analysis):
        cells = {headline.words: _mean(values_of_headline(result, headline)) for headline in headlines(result)}
        rows.append({"model": label, **cells})
    if not rows:
        raise LookupError("no network of this table is trained")
    return replace(shown, table=pd.DataFrame(rows))


def _scorecard(exhibit: Exhibit, shown: Shown, material: Material) -> Shown:
    """What the scorecards of a part's networks found: reasons to doubt its curves of robustness."""
    cards = [
        result.scorecard.summary().assign(model=label)  # type: ignore[attr-defined]
        for label, result in material.chosen(exhibit, "pgd")
    ]
    if not cards:
        raise LookupError("no network of this table is trained")
    table = pd.concat(cards, ignore_index=True)
    return replace(shown, table=table[["model", *(name for name in table if name != "model")]])


def _mean(values: np.ndarray) -> str:
    there = values[np.isfinite(values)]
    if not len(there):
        return ""
    mean, low, high = (float(part) for part in mean_interval(there))
    return f"{mean:.3f}" + ("" if np.isnan(low) else f" [{low:.3f}, {high:.3f}]")


Kind = Callable[[Exhibit, Shown, Material], Shown]
KINDS: dict[str, Kind] = {
    "accuracy": _accuracy,
    "robustness": _robustness,
    "figure": _figure,
    "saved": _saved,
    "summary": _summary,
    "headlines": _headlines,
    "scorecard": _scorecard,
    "elsewhere": _elsewhere,
}


def _right_enough(label: str, analysis: str) -> bool:
    """Whether maps of the network are shown: not where it is known to be wrong too often; untrained ones are."""
    accuracy = weights_index().get(label, {}).get("accuracy")
    return analysis != "saliency" or accuracy is None or accuracy >= RIGHT_ENOUGH


def needed_words(names: Iterable[str]) -> str:
    """Which networks are missing, and what trains them."""
    listed = list(names)
    return f"Not trained: {', '.join(listed)} (scs-eval zoo train NAME --data cifar10)." if listed else ""
