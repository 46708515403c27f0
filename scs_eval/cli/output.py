"""What a command writes and prints: the result's folder, its summary, and single lines."""

import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from scs_eval.errors import NotApplicableError, printable

if TYPE_CHECKING:
    from scs_eval.analyses.core.result import Result

LONGEST = 120  # characters of a folder that is named after models
out_option = click.option(
    "--out", type=click.Path(path_type=Path), help="Where the result goes.  [default: results/<analysis>/<model>]"
)


def checked_out(out: Path | None, *, analysis: str, names: Sequence[str]) -> Path:
    """Where a command without models writes: --out, or results/<analysis>/<what was asked for>."""
    from scs_eval.report.folder import check_space, check_target

    chosen = out or Path("results", analysis, folder_name(names))
    check_space(check_target(chosen))
    return chosen


def folder_name(names: Sequence[str]) -> str:
    """What was asked for as the name of a folder: a path's or pattern's special characters become dashes."""
    parts = (re.sub(r"[^\w.=]+", "-", name).strip("-.") for name in names)
    return "+".join(part for part in parts if part)[:LONGEST] or "all"


def command_words() -> list[str]:
    """The command as it was typed, for run.json."""
    return ["scs-eval", *sys.argv[1:]]


def finish(result: "Result", out: Path) -> None:
    """Write the result; print its summary and, last, where it is."""
    from scs_eval.analyses.core.parallel import barrier
    from scs_eval.analyses.core.result import Comparison
    from scs_eval.analyses.core.training_table import training_summary
    from scs_eval.report.folder import available_target
    from scs_eval.report.markdown import markdown
    from scs_eval.report.write import FigureError, join_errors, write_result

    failures: list[FigureError] = []
    path = write_result(result, available_target(out), command=command_words(), failures=failures)
    click.echo(markdown(result.summary()))
    if isinstance(result, Comparison) and len(trainings := result.trainings()):
        click.echo(markdown(training_summary(trainings)))
    click.echo(path)
    barrier()  # what is written now makes unfinished work superfluous
    if failures:
        raise join_errors(failures, path)


def say(message: object, *, err: bool = False) -> None:
    """One line; of several processes that torchrun started, only the first prints it."""
    if os.environ.get("RANK", "0") == "0":
        click.echo(printable(str(message)), err=err)


def report_left_out(results: Sequence[object], reasons: Sequence[str]) -> None:
    """A line on stderr for each; if there is no result at all, they are why."""
    if not results:
        raise NotApplicableError("; ".join(reasons))
    for reason in reasons:
        say(f"Left out: {' '.join(reason.split())}", err=True)
