"""The parts that pages are made of: tables, figures, claims with their verdicts, facts; and the page around them.

A page is one file that needs nothing else: what can be saved (each table as CSV, each figure as PNG or SVG, the run as
JSON) is inside it, and so is the script that sorts, filters and saves. Filters and sorting are in its address.
`make_page` makes a page of sections of parts; compare.html shows how a template uses the same parts through parts.html.
"""

import base64
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from itertools import groupby
from typing import Any, Literal

import numpy as np
import pandas as pd
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from scs_eval.analyses.compare.metrics import spell_eps

Verdict = Literal["supported", "contradicted", "undecided", "not tested"]
SCRIPTS = ("parts.js", "gallery.js")
MANY = 8  # values of a setting that are written out


@dataclass(frozen=True, kw_only=True)
class Table:
    """A table that readers sort and save.

    name: of its CSV file, one of its own on the page. frame: what is shown. data: what the file holds where that is
    more than what is shown, such as unrounded numbers. caption: a line above it.
    """

    name: str
    frame: pd.DataFrame | None
    data: pd.DataFrame | None = None
    caption: str = ""
    part: str = field(default="table", init=False)

    @property
    def csv(self) -> str:
        """What the file holds."""
        frame = self.frame if self.data is None else self.data
        return "" if frame is None else frame.to_csv(index=False, float_format="%.6g", lineterminator="\n")


@dataclass(frozen=True, kw_only=True)
class Figure:
    """A figure: see `figures.figure_of` for one that `write_result` wrote.

    name: of its file, one of its own on the page. uri: the picture. chart: lines on white, which a dark page may
    invert. words: what it tells. points: of a chart, what stands where (`figures.points_of`), to be read by hovering.
    """

    name: str
    uri: str
    chart: bool = False
    words: str = ""
    points: Sequence[Mapping[str, Any]] = ()
    part: str = field(default="figure", init=False)


@dataclass(frozen=True, kw_only=True)
class ClaimRow:
    """A sentence and what became of it.

    text: the claim. source: who says so. verdict: see `Verdict`. effect: the number that decides, with its interval.
    scope: what it covers ("this network", "5 trainings, 500 images"). test: which, and its p. command: what shows it.
    caveat: what a reader must not conclude, such as that one training speaks for a kind of layer.
    """

    text: str
    verdict: Verdict
    source: str = ""
    effect: str = ""
    scope: str = ""
    test: str = ""
    command: str = ""
    caveat: str = ""


@dataclass(frozen=True, kw_only=True)
class Claims:
    """Claims, one a row, with their verdicts."""

    name: str
    claims: Sequence[ClaimRow]
    part: str = field(default="claims", init=False)

    @property
    def csv(self) -> str:
        """All fields of every claim."""
        return pd.DataFrame([vars(claim) for claim in self.claims]).to_csv(index=False, lineterminator="\n")


@dataclass(frozen=True, kw_only=True)
class Note:
    """A paragraph."""

    text: str
    part: str = field(default="note", init=False)


@dataclass(frozen=True, kw_only=True)
class Code:
    """Text as it was typed, closed until a reader opens it."""

    caption: str
    text: str
    part: str = field(default="code", init=False)


Part = Table | Figure | Claims | Note | Code


@dataclass(frozen=True, kw_only=True)
class Section:
    """Parts under a title. name: its place in the address. folded: closed until a reader opens it."""

    name: str
    title: str
    parts: Sequence[Part]
    folded: bool = False

    @property
    def runs(self) -> list[tuple[bool, list[Part]]]:
        """The parts in order, figures that follow one another together: they stand side by side."""
        return [(same, list(some)) for same, some in groupby(self.parts, lambda part: isinstance(part, Figure))]


def make_page(
    *,
    title: str,
    over: str,
    sections: Sequence[Section],
    run: Mapping[str, Any],
    download: Mapping[str, Any] | None = None,
) -> str:
    """The HTML of a page of sections.

    over: a few words above the title, such as the command. run: what run.json says. download: the rest of the JSON that
    a reader can save.
    """
    parts = [part for section in sections for part in section.parts]
    return render(
        "sections.html", title=title, over=over, sections=sections, run=run,
        data={"tables": csv_of(parts), "points": chart_points(parts), "run": {"run": run, **(download or {})}},
    )  # fmt: skip


def csv_of(parts: Sequence[Part]) -> dict[str, str]:
    """The files of all tables by name; two of one name are a mistake."""
    tables = [part for part in parts if isinstance(part, Table | Claims)]
    _check_names([table.name for table in tables])
    return {table.name: table.csv for table in tables}


def chart_points(parts: Sequence[Part]) -> dict[str, Any]:
    """The points of all charts by name."""
    figures = [part for part in parts if isinstance(part, Figure)]
    _check_names([figure.name for figure in figures])
    return {figure.name: figure.points for figure in figures if figure.points}


def render(template: str, *, data: Mapping[str, Any], run: Mapping[str, Any], **content: Any) -> str:
    """A template with the style, the script and the data that the script reads.

    Everything is escaped. Nothing may be fetched, and no script run but the page's own, whatever a label holds: its
    hash is in the policy. data: tables (name → CSV), points, run (what the JSON file holds), what else scripts read.
    """
    environment = Environment(
        loader=PackageLoader("scs_eval.report.html", ""), autoescape=True, undefined=StrictUndefined,
        trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    script = "".join(map(_read, SCRIPTS))
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    settings = {what: in_words(value) for what, value in run["settings"].items()}
    return environment.get_template(template).render(
        css=Markup(_read("page.css")),
        script=Markup(script),
        script_hash=f"sha256-{digest}",
        data=Markup(as_json(data)),
        run=run,
        settings=settings,
        **content,
    )


def as_json(data: Any) -> str:
    """JSON that is safe inside a script element: no text can end it. NaN and infinity are null."""
    text = json.dumps(_plain(data), ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def in_words(value: Any) -> str:
    """A setting: of many distances the first two and the last."""
    if not isinstance(value, tuple | list):
        return str(value)
    words = [spell_eps(item) if isinstance(item, float) else str(item) for item in value]
    return ", ".join(words) if len(words) <= MANY else f"{words[0]}, {words[1]} … {words[-1]} ({len(words)} values)"


def _plain(value: Any) -> Any:
    """Numpy's numbers and arrays as Python's, what is not finite as None."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, np.ndarray):
        return _plain(value.tolist())
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    if isinstance(value, np.generic):
        return _plain(value.item())
    return None if isinstance(value, float) and not np.isfinite(value) else value


def _check_names(names: Sequence[str]) -> None:
    if twice := {name for name in names if names.count(name) > 1}:
        raise ValueError(f"expected parts of distinct names, got {sorted(twice)} twice")


def _read(name: str) -> str:
    return (files("scs_eval.report.html") / name).read_text(encoding="utf-8")
