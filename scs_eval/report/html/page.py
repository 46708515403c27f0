"""A comparison as one self-contained page: summary, curves, gallery, scorecard, models, every table and figure."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from scs_eval.analyses.catalogue import ENTRIES
from scs_eval.analyses.compare.metrics import HIGHER, LOWER, SummaryMetric
from scs_eval.analyses.compare.result import CompareResult
from scs_eval.analyses.core.result import Comparison
from scs_eval.analyses.plotting import style
from scs_eval.report.html.figures import figure_part
from scs_eval.report.html.gallery import gallery
from scs_eval.report.html.parts import Figure, Section, Table, chart_points, csv_of, render

# What stands under "Curves" besides the analyses' own: figures of the comparison, and what they tell.
CURVES = (
    ("pixel_curves", "Do the maps name the pixels that matter? Pixels are taken away (deletion) or shown "
     "(insertion) in the order of each model's map."),
)  # fmt: skip
DRAWN_TABLES = ("scorecard",)  # figures that are tables, which the page has as tables
UNITS = {"image": "images", "grid": "grids", "cell": "images in grids"}
CAVEAT = (
    "Each column is one trained network. A difference shown here is one between these networks on images like these; "
    "it says nothing yet of other trainings of the same networks, or of their kinds of layers."
)


def comparison_page(
    result: CompareResult,
    *,
    folder: Path,
    cards: Mapping[str, Mapping[str, str]],
    run: Mapping[str, Any],
    images: Mapping[str, Sequence[int]],
    gates: Sequence[tuple[str, bool]] = (),
) -> str:
    """The HTML of a comparison whose figures have been written to `folder`.

    cards: label → facts about the model. run: what run.json says. images: analysis → the indices of its images.
    gates: conditions of --fail-if, and whether each is met.
    """
    shown, curves, sections = gallery(result.parts), _curves(folder), _sections(result, folder)
    scorecards = _scorecards(result)
    tests = Table(
        name="tests", frame=_tests(result), data=result.tests(), caption="Every model (a) and its reference (b)"
    )
    colours = {name: style.look_of(name)[0] for name in result.models}
    inks = {name: ink_on(colour) for name, colour in colours.items()}
    numbers = {name: i for i, name in enumerate(result.models, 1)} if len(result.models) > 2 else {}
    everything = [tests, *curves, *(part for section in sections for part in section.parts)]
    return render(
        "compare.html",
        data={
            "tables": {
                "summary": Table(name="summary", frame=result.table()).csv,
                **({} if scorecards is None else {"scorecard": scorecards["table"].csv}),
                **csv_of(everything),
            },
            "points": chart_points(everything),
            "gallery": None if shown is None else shown.data(),
            "models": [
                {"colour": colours[name], "ink": inks[name], "number": numbers.get(name, "")} for name in result.models
            ],
            "run": {"run": run, "models": cards, **_numbers(result), "gates": dict(gates), "images": images},
        },
        title=f"{', '.join(result.models)} compared",
        over="scs-eval compare",
        result=result,
        run=run,
        colours=colours,
        inks=inks,
        numbers=numbers,
        findings=findings(result),
        groups=_groups(result),
        curves=curves,
        gallery=shown,
        classes=sorted({entry.truth for entry in shown.entries}) if shown else [],
        scorecards=scorecards,
        cards=cards,
        sections=sections,
        tests=tests,
        tested=int(np.isfinite(result.tests()["p_value"]).sum()) if len(result.tests()) else 0,
        caveat=CAVEAT,
        images={name: _spans(indices) for name, indices in images.items()},
        gates=gates,
    )


def ink_on(colour: str) -> str:
    """Black or white, whichever is read more easily on a colour (WCAG's relative luminance)."""
    from matplotlib.colors import to_rgb

    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in to_rgb(colour)]
    luminance = float(np.dot(linear, (0.2126, 0.7152, 0.0722)))
    return "#000" if (luminance + 0.05) ** 2 > 1.05 * 0.05 else "#fff"


def findings(result: CompareResult) -> list[str]:
    """A sentence for every difference that the tests show, with what it rests on."""
    tests = result.tests()
    if not len(tests):
        return []
    sentences = []
    for _, test in tests[tests["winner"] != ""].iterrows():
        metric, winner = result.metric(test["metric"]), test["winner"]
        other = test["b"] if winner == test["a"] else test["a"]
        word = {HIGHER: "is better than", LOWER: "is better than"}.get(metric.better, "has more than")
        numbers = f"{result.value(metric.name, winner):.3f} against {result.value(metric.name, other):.3f}"
        basis = f"{_p(test['p_holm'])}, {test['n']} {_unit(metric)}"
        sentences.append(f"{winner} {word} {other} in {metric.name}: {numbers} ({basis}).")
    return sentences


def _groups(result: CompareResult) -> list[dict[str, Any]]:
    """The summary, analysis by analysis."""
    lines = groupby((line for line in result.lines if line.main), key=lambda line: line.analysis)
    rows = {analysis: list(_rows(result, list(metrics))) for analysis, metrics in lines}
    return [{"title": ENTRIES[analysis].title, "rows": some} for analysis, some in rows.items()]


def _rows(result: CompareResult, metrics: Sequence[SummaryMetric]) -> Iterator[dict[str, Any]]:
    """The metric, a cell for each model, what the numbers rest on, and why there is no test if there is none."""
    table = result.table().set_index(["metric", "model"])
    for metric in metrics:
        here = [table.loc[(metric.name, model)] for model in result.models]
        counts = {int(row["n"]) for row in here} - {0}
        scope = f"{max(counts, default=0)} {_unit(metric)}" if len(counts) < 2 else ""
        cells = [
            _cell(result, metric, model, row, scoped=len(counts) > 1)
            for model, row in zip(result.models, here, strict=True)
        ]
        yield {"metric": metric, "cells": cells, "scope": scope, "untested": _untested(result, metric.name)}


def _unit(metric: SummaryMetric) -> str:
    """What a metric's examples are."""
    entry, name = ENTRIES[metric.analysis], metric.name.partition("@")[0]
    own = next((headline.unit for headline in entry.metrics if headline.name == name), None)
    return UNITS[own or entry.unit]


def _untested(result: CompareResult, metric: str) -> str:
    """Why nothing is said about a difference in this metric; empty where something is."""
    if len(result.models) < 2:
        return "there is one model"
    tests = result.tests()
    if not len(tests):
        return "no model's reference is among the models"
    here = tests[tests["metric"] == metric]
    reasons = here.loc[here["p_value"].isna(), "test"]
    return ", ".join(dict.fromkeys(reasons)) if len(reasons) == len(here) else ""


def _cell(
    result: CompareResult, metric: SummaryMetric, model: str, row: "pd.Series[Any]", *, scoped: bool
) -> dict[str, Any]:
    there, interval = np.isfinite(row["value"]), np.isfinite(row["low"])
    beaten = result.beaten(metric.name, model)
    return {
        "value": _number(row["value"]) if there else "–",
        "number": f"{row['value']:.6g}" if there else "",
        "interval": f"{_number(row['low'])} to {_number(row['high'])}" if there and interval else "",
        "scope": f"{int(row['n'])} {_unit(metric)}" if scoped else "",
        "marked": result.marked(metric.name, model),
        "beaten": ", ".join(beaten),
        "numbers": ", ".join(str(result.models.index(other) + 1) for other in beaten),
    }


def _number(value: float) -> str:
    """Three decimals, with a minus sign rather than a hyphen."""
    return f"{value:.3f}".replace("-", "−")


def _tests(result: CompareResult) -> pd.DataFrame:
    """The tests for a reader; a row without one says why."""
    tests = result.tests()
    if not len(tests):
        return tests
    shown = tests[["metric", "a", "b", "n", "test"]].copy()
    shown["difference a − b"] = [
        f"{d:+.3f} [{low:+.3f}, {high:+.3f}]" if np.isfinite(d) else "–"
        for d, low, high in tests[["difference", "low", "high"]].to_numpy()
    ]
    shown["p (Holm)"] = [_p(p) if np.isfinite(p) else "–" for p in tests["p_holm"]]
    shown["shown"] = [winner or "–" for winner in tests["winner"]]
    return shown


def _curves(folder: Path) -> list[Figure]:
    """The analyses' figures that the catalogue calls curves, and the comparison's own."""
    paths = [(name, folder / name / "figure.png", entry.curve) for name, entry in ENTRIES.items() if entry.curve]
    paths += [(name, folder / f"{name}.png", words) for name, words in CURVES]
    return [figure_part(path, name=name, words=words) for name, path, words in paths if path.exists()]


def _sections(result: CompareResult, folder: Path) -> list[Section]:
    """Each analysis with its tables and its figures; the figure that stands among the curves is not repeated."""
    return [_section(name, part, folder / name) for name, part in result.parts.items()]


def _section(name: str, part: Any, folder: Path) -> Section:
    entry = ENTRIES[name]
    summary = None if entry.row_per_image else part.summary()
    table = Table(name=f"{name}-table", frame=summary, data=part.table(), caption=entry.question)
    figures = [
        figure_part(
            path, name=f"{name}-{path.stem}", words="" if path.stem == "figure" else path.stem.replace("_", " ")
        )
        for path in sorted(folder.glob("*.png"))
        if not (entry.curve and path.stem == "figure") and not path.stem.startswith(DRAWN_TABLES)
    ]
    return Section(name=f"details-{name}", title=entry.title, parts=[table, *figures])


def _numbers(result: CompareResult) -> dict[str, Any]:
    """All numbers and tests, for machines."""
    tables = {"metrics": result.table(), "tests": result.tests()}
    return {**{name: frame.to_dict("records") for name, frame in tables.items()}, "left_out": dict(result.left_out)}


def _scorecards(result: CompareResult) -> dict[str, Any] | None:
    """The checks in rows, the models in columns."""
    robust = result.parts.get("pgd")
    cards = (
        [member.scorecard for member in robust.results if member.scorecard] if isinstance(robust, Comparison) else []
    )
    if not cards:
        return None
    checks = [{"name": lines[0].name, "cells": lines} for lines in zip(*(card.lines for card in cards), strict=True)]
    ends = {"the curve there": "reported_accuracy", "worst of all attacks": "robust_accuracy"}
    shares = {words: [_percent(getattr(card, name)) for card in cards] for words, name in ends.items()}
    table = Table(name="scorecard", frame=pd.concat([card.table() for card in cards], ignore_index=True))
    return {"cards": cards, "checks": checks, "shares": shares, "table": table}


def _percent(interval: Any) -> str:
    value, low, high = (100 * float(part) for part in interval)
    return f"{value:.1f} % [{low:.1f}, {high:.1f}]"


def _p(value: float) -> str:
    return "p < 0.001" if value < 0.001 else f"p = {value:.2g}"


def _spans(indices: Sequence[int]) -> str:
    """Whole numbers between commas, in rising order."""
    return ", ".join(map(str, sorted(int(index) for index in indices)))
