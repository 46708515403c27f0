"""A study as a folder: claims, exhibits, a folder for each part and analysis, and report.html."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from scs_eval.analyses.catalogue import ENTRIES
from scs_eval.analyses.core.result import Comparison, Result
from scs_eval.analyses.core.training_table import training_summary
from scs_eval.analyses.study.exhibits import Shown, needed_words
from scs_eval.analyses.study.result import PARTED, StudyResult, claim_summary, file_name
from scs_eval.files import write_text
from scs_eval.report.html.figures import figure_part
from scs_eval.report.html.parts import ClaimRow, Claims, Code, Note, Part, Section, Table, make_page
from scs_eval.report.write import FigureError, write_result

PAGE = "report.html"
RULE = (
    "A claim about layers needs at least three pairs of networks that differ in the named factors and in nothing else: "
    'one architecture, seed and recipe. With fewer it stays undecided, and "observed" says what these networks show. '
    "Holm's correction is over all claims that expect a direction. Pairs of several architectures count alike; the "
    "table of parts has each alone."
)
FEW = "too few pairs of trainings to speak of layers"


def write_study(
    result: StudyResult,
    out: str | Path,
    *,
    command: Sequence[str] = (),
    failures: list[FigureError] | None = None,
    progress: Callable[[int, str], None] | None = None,
) -> Path:
    """Write a study into the directory `out` and return where its page is; see `write_comparison`."""

    def beside(folder: Path, run: dict[str, Any]) -> None:
        for key, part in result.results.items():
            name, _, analysis = key.partition(PARTED)
            _write_tables(part, folder / file_name(name) / analysis)
            if progress is not None:
                progress(1, key)
        write_text(folder / PAGE, study_page(result, folder=folder, run=run))

    return write_result(result, out, command=command, beside=beside, failures=failures) / PAGE


def _write_tables(part: Result, folder: Path) -> None:
    """The tables of one analysis of one part; its figures are drawn where an exhibit asks for them."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, frame in part.tables().items():
        frame.to_csv(folder / f"{name}.csv", index=False, float_format="%.6g", lineterminator="\n")


def study_page(result: StudyResult, *, folder: Path, run: Mapping[str, Any]) -> str:
    """The HTML of a study whose figures have been written to `folder`."""
    plan, trainings = result.parsed, _trainings(result)
    sections = [
        Section(name="claims", title="Claims", parts=_claims(result, folder)),
        Section(
            name="exhibits",
            title="Tables and figures",
            parts=[part for exhibit in result.exhibits for part in _exhibit(exhibit, folder)],
        ),
        *([Section(name="trainings", title="Trainings", parts=trainings, folded=True)] if trainings else []),
        Section(name="plan", title="Plan", parts=[*_left_out(result), Code(caption="The plan", text=result.plan)]),
    ]
    download = {"claims": result.table().to_dict("records"), "left_out": dict(result.left_out)}
    return make_page(
        title=plan.title, over=f"scs-eval study {plan.name}", sections=sections, run=run, download=download
    )


def _claims(result: StudyResult, folder: Path) -> list[Part]:
    """What became of the claims: over all parts in rows with verdicts, their effects as a chart, then part by part."""
    table = result.table()
    counts = ", ".join(f"{count} {word}" for word, count in result.counts().items())
    parts: list[Part] = [Note(text=f"{counts}. {RULE}")]
    if not len(table):
        return parts
    parts.append(Claims(name="claims", claims=[_claim(row) for _, row in table[table["main"]].iterrows()]))
    if (folder / "figure.png").exists():
        words = "Effects of the claims with their intervals"
        parts.append(figure_part(folder / "figure.png", name="effects", words=words))
    if (~table["main"]).any():
        own = table[~table["main"]]
        parts.append(Table(name="claims-by-part", frame=claim_summary(own), data=own, caption="The same for each part"))
    return parts


def _claim(row: "pd.Series[Any]") -> ClaimRow:
    line = claim_summary(pd.DataFrame([row])).iloc[0]
    decided = row["verdict"] in ("supported", "contradicted")
    effect = f"{line['metric']}: {line['effect']}" if line["effect"] else ""
    observed = f"observed: {line['observed']}" if line["observed"] and not decided else ""
    tested = np.isfinite(row["effect"])
    return ClaimRow(
        text=line["claim"],
        verdict=row["verdict"],
        effect="; ".join(filter(None, (effect, observed))),
        scope=f"{line['where']}; trainings: {line['trainings']}; n = {line['n']}" if tested else "",
        test=line["test"],
        command=line["shown by"],
        caveat="" if decided or not tested else FEW if not row["test"] else "",
    )


def _exhibit(shown: Shown, folder: Path) -> Iterator[Part]:
    """A table or figure of the paper, remade, or why not; and the networks of the paper's that are not trained."""
    words, name = f"{shown.name}: {shown.words}", file_name(shown.name)
    path, missing = folder / f"{name}.png", needed_words(shown.not_trained)
    if shown.table is not None:
        yield Table(name=name, frame=shown.table, caption=words)
    elif shown.draw is not None and path.exists():
        yield figure_part(path, name=name, words=words)
    else:
        why = shown.why_not or "the figure could not be drawn"
        yield Note(text=f"{words} Not remade: {why.removesuffix('.')}. {missing}".strip())
        return
    if missing:
        yield Note(text=f"{shown.name}: {missing}")


def _trainings(result: StudyResult) -> list[Part]:
    """Every part's networks over their trainings, where there are several."""
    tables: list[Part] = []
    for key, part in result.results.items():
        if isinstance(part, Comparison) and len(table := part.trainings()):
            name, _, analysis = key.partition(PARTED)
            caption, file = f"{name}: {ENTRIES[analysis].title.lower()}", f"trainings-{file_name(name)}-{analysis}"
            tables.append(Table(name=file, frame=training_summary(table), data=table, caption=caption))
    return tables


def _left_out(result: StudyResult) -> list[Part]:
    lines = [f"{what}: {why}" for what, why in result.left_out.items()]
    return [Note(text=f"Left out: {'; '.join(lines)}.")] if lines else []
