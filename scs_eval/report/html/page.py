"""A comparison as one self-contained page: text, tables, pictures and the script that sorts them, and no network."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from scs_eval.analyses.catalogue import ENTRIES
from scs_eval.analyses.compare.metrics import HIGHER, LOWER, spell_eps
from scs_eval.analyses.compare.result import CompareResult
from scs_eval.analyses.core.result import Comparison
from scs_eval.analyses.plotting import style
from scs_eval.report.html.gallery import KINDS, gallery
from scs_eval.report.html.pictures import file_uri

MANY = 8  # values of a setting that are written out
CHARTS = {"figure", "scores", "cascade", "top", "sweep", "pixel_curves"}  # lines on white: a dark page may invert them
# What stands under "Curves" besides the analyses' own: figures of the comparison, and what they tell.
CURVES = (
    ("pixel_curves", "Do the maps name the pixels that matter? Pixels are taken away (deletion) or shown "
     "(insertion) in the order of each model's map."),
)  # fmt: skip


@dataclass(frozen=True)
class Drawn:
    """A figure in the page: what it is called, its data URI, whether it is a chart, and a sentence."""

    name: str
    uri: str
    chart: bool
    words: str = ""


def page(
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
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    entries = gallery(result.parts)
    return environment.from_string(_read("page.html")).render(
        result=result,
        css=Markup(_read("page.css")),
        script=Markup(_read("page.js")),
        colours={name: style.look_of(name)[0] for name in result.models},
        numbers={name: i for i, name in enumerate(result.models, 1)} if len(result.models) > 2 else {},
        findings=findings(result),
        rows=_rows(result),
        curves=_curves(folder),
        entries=entries,
        classes=sorted({entry.truth for entry in entries}),
        kinds={
            kind: words for kind, words in KINDS.items() if any(kind in a.maps for e in entries for a in e.predictions)
        },
        scorecards=_scorecards(result),
        cards=cards,
        sections=_sections(result, folder),
        tests=_tests(result),
        run=run,
        settings={what: _setting(value) for what, value in run["settings"].items()},
        images={name: _spans(indices) for name, indices in images.items()},
        gates=gates,
    )


def findings(result: CompareResult) -> list[str]:
    """A sentence for every difference that the tests show."""
    tests = result.tests()
    if not len(tests):
        return []
    sentences = []
    for _, test in tests[tests["winner"] != ""].iterrows():
        metric, winner = result.metric(test["metric"]), test["winner"]
        other = test["b"] if winner == test["a"] else test["a"]
        word = {HIGHER: "is better than", LOWER: "is better than"}.get(metric.better, "has more than")
        numbers = f"{result.value(metric.name, winner):.3f} against {result.value(metric.name, other):.3f}"
        sentences.append(f"{winner} {word} {other} in {metric.name}: {numbers} ({_p(test['p_holm'])}).")
    return sentences


def _rows(result: CompareResult) -> list[dict[str, Any]]:
    """The lines of the summary: the metric, a cell for each model, n, and a title where another analysis begins."""
    table = result.table().set_index(["metric", "model"])
    rows: list[dict[str, Any]] = []
    before = ""
    for metric in (line for line in result.lines if line.main):
        here = [table.loc[(metric.name, model)] for model in result.models]
        cells = [_cell(result, metric.name, model, row) for model, row in zip(result.models, here, strict=True)]
        title = "" if metric.analysis == before else ENTRIES[metric.analysis].title
        rows.append({"metric": metric, "cells": cells, "n": max(int(row["n"]) for row in here), "title": title})
        before = metric.analysis
    return rows


def _cell(result: CompareResult, metric: str, model: str, row: "pd.Series[Any]") -> dict[str, Any]:
    there, interval = np.isfinite(row["value"]), np.isfinite(row["low"])
    beaten = result.beaten(metric, model)
    return {
        "value": f"{row['value']:.3f}" if there else "–",
        "interval": f"{row['low']:.3f} – {row['high']:.3f}" if there and interval else "",
        "marked": result.marked(metric, model),
        "beaten": ", ".join(beaten),
        "numbers": ", ".join(str(result.models.index(other) + 1) for other in beaten),
    }


def _tests(result: CompareResult) -> pd.DataFrame:
    """The tests for a reader."""
    tests = result.tests()
    if not len(tests):
        return tests
    shown = tests[["metric", "a", "b", "n", "test"]].copy()
    shown["difference a − b"] = [
        f"{d:+.3f} [{low:+.3f}, {high:+.3f}]" for d, low, high in tests[["difference", "low", "high"]].to_numpy()
    ]
    shown["p (Holm)"] = tests["p_holm"].map(_p)
    shown["shown"] = [winner or "–" for winner in tests["winner"]]
    return shown


def _curves(folder: Path) -> list[Drawn]:
    analyses = [("figure", folder / name / "figure.png", entry.curve) for name, entry in ENTRIES.items() if entry.curve]
    own = [(name, folder / f"{name}.png", words) for name, words in CURVES]
    return [Drawn(name, file_uri(path), True, words) for name, path, words in (*analyses, *own) if path.exists()]


def _sections(result: CompareResult, folder: Path) -> list[dict[str, Any]]:
    """Each analysis with its summary and its figures."""
    return [
        {
            "title": ENTRIES[name].title,
            "summary": None if ENTRIES[name].row_per_image else part.summary(),
            "figures": [_drawn(name, path) for path in sorted((folder / name).glob("*.png"))],
        }
        for name, part in result.parts.items()
    ]


def _drawn(analysis: str, path: Path) -> Drawn:
    return Drawn(
        path.stem, file_uri(path), path.stem in CHARTS and not (path.stem == "figure" and ENTRIES[analysis].pictures)
    )


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
    return {"cards": cards, "checks": checks, "shares": shares}


def _percent(interval: Any) -> str:
    value, low, high = (100 * float(part) for part in interval)
    return f"{value:.1f} % [{low:.1f}, {high:.1f}]"


def _p(value: float) -> str:
    return "p < 0.001" if value < 0.001 else f"p = {value:.2g}"


def _setting(value: Any) -> str:
    """A setting in words: of many distances the first two and the last."""
    if not isinstance(value, tuple | list):
        return str(value)
    words = [spell_eps(item) if isinstance(item, float) else str(item) for item in value]
    return ", ".join(words) if len(words) <= MANY else f"{words[0]}, {words[1]} … {words[-1]} ({len(words)} values)"


def _spans(indices: Sequence[int]) -> str:
    """Whole numbers between commas, in rising order."""
    return ", ".join(map(str, sorted(int(index) for index in indices)))


def _read(name: str) -> str:
    return (files("scs_eval.report.html") / name).read_text(encoding="utf-8")
