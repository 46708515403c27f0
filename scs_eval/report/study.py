"""A study as a folder: claims, exhibits, a folder for each part and analysis, and report.html."""

from collections.abc import Callable, Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

import pandas as pd
from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from scs_eval.analyses.catalogue import ENTRIES
from scs_eval.analyses.core.result import Comparison, Result
from scs_eval.analyses.core.training_table import training_summary
from scs_eval.analyses.study.result import PARTED, StudyResult, claim_summary, file_name
from scs_eval.report.html.pictures import file_uri
from scs_eval.report.write import write_result

PAGE = "report.html"


def write_study(
    result: StudyResult,
    out: str | Path,
    *,
    command: Sequence[str] = (),
    failures: list[str] | None = None,
    progress: Callable[[int, str], None] | None = None,
) -> Path:
    """Write a study into the directory `out` and return where its page is; see `write_comparison`."""

    def beside(folder: Path, run: dict[str, Any]) -> None:
        for key, part in result.results.items():
            name, _, analysis = key.partition(PARTED)
            _write_tables(part, folder / file_name(name) / analysis)
            if progress is not None:
                progress(1, key)
        (folder / PAGE).write_text(study_page(result, folder=folder, run=run), encoding="utf-8")

    return write_result(result, out, command=command, beside=beside, failures=failures) / PAGE


def _write_tables(part: Result, folder: Path) -> None:
    """The tables of one analysis of one part; its figures are drawn where an exhibit asks for them."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, frame in part.tables().items():
        frame.to_csv(folder / f"{name}.csv", index=False, float_format="%.6g", lineterminator="\n")


def study_page(result: StudyResult, *, folder: Path, run: Mapping[str, Any]) -> str:
    """The HTML of a study whose figures have been written to `folder`."""
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    claims = result.table()
    return environment.from_string(_read("study.html")).render(
        result=result,
        plan=result.parsed,
        css=Markup(_read("page.css")),
        counts=result.counts(),
        claims=claim_summary(claims[claims["main"]]).to_dict("records") if len(claims) else [],
        parts=claim_summary(claims[~claims["main"]]) if len(claims) and (~claims["main"]).any() else None,
        forest=_uri(folder / "figure.png"),
        exhibits=[_exhibit(shown, folder) for shown in result.exhibits],
        trainings=_trainings(result),
        run=run,
    )


def _exhibit(shown: Any, folder: Path) -> dict[str, Any]:
    return {"shown": shown, "uri": _uri(folder / f"{file_name(shown.name)}.png") if shown.draw is not None else ""}


def _trainings(result: StudyResult) -> list[tuple[str, pd.DataFrame]]:
    """Every part's networks over their trainings, where there are several."""
    found = []
    for key, part in result.results.items():
        if isinstance(part, Comparison) and len(table := part.trainings()):
            name, _, analysis = key.partition(PARTED)
            found.append((f"{name}: {ENTRIES[analysis].title.lower()}", training_summary(table)))
    return found


def _uri(path: Path) -> str:
    return file_uri(path) if path.exists() else ""


def _read(name: str) -> str:
    return (files("scs_eval.report.html") / name).read_text(encoding="utf-8")
