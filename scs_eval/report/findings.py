"""A study's claims as sentences in a Markdown page, between two marks, each as strong as its row.

The rows stand beside the page as a table, so that a reader (and a test) can hold one against the other.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from scs_eval.analyses.study.claims import CONTRADICTED, SUPPORTED, UNDECIDED
from scs_eval.errors import InputError
from scs_eval.files import write_text

VERDICTS = (SUPPORTED, CONTRADICTED, UNDECIDED)


def marks(plan: str) -> tuple[str, str]:
    """Between which lines the sentences of a plan stand."""
    return f"<!-- claims of {plan}: written by scs-eval study {plan} --findings -->", f"<!-- end of {plan} -->"


def write_findings(claims: pd.DataFrame, plan: str, page: Path) -> Path:
    """Replace what stands between the marks of the plan, write the rows beside the page, and return their file."""
    before, after = around(plan, page)
    first, last = marks(plan)
    rows = page.with_name(f"claims-{plan}.csv")
    rows.unlink(missing_ok=True)
    claims.to_csv(rows, index=False, float_format="%.4g", lineterminator="\n")
    write_text(page, f"{before}{first}\n\n{claim_list(pd.read_csv(rows))}\n{last}{after}")
    return rows


def around(plan: str, page: Path) -> tuple[str, str]:
    """What stands before and behind the sentences; raises for a page without the marks."""
    first, last = marks(plan)
    if not page.is_file():
        raise InputError(f"expected a Markdown page, got {page}")
    before, begun, rest = page.read_text(encoding="utf-8").partition(first)
    _, ended, after = rest.partition(last)
    if not (begun and ended):
        raise InputError(f"expected the lines {first!r} and {last!r} in {page}")
    return before, after


def claim_list(claims: pd.DataFrame) -> str:
    """The claims as a list, those that are decided first."""
    main = claims[claims["main"]]
    lines = [_line(row) for verdict in VERDICTS for _, row in main[main["verdict"] == verdict].iterrows()]
    return "\n".join(lines) + "\n"


def _line(row: "pd.Series[Any]") -> str:
    command = row["command"] if isinstance(row["command"], str) else ""
    if np.isnan(row["effect"]):
        return f"- {row['claim']} **Undecided**: {row['observed']}. {_shown(command)}".rstrip()
    verdict = row["verdict"].capitalize()
    weak = f" ({row['observed']} in {row['scope'].removesuffix(' only')})" if row["verdict"] == UNDECIDED else ""
    return f"- {row['claim']} **{verdict}**{weak}: {number(row)}, {_basis(row)}. {_shown(command)}"


def number(row: "pd.Series[Any]") -> str:
    """The effect with its interval."""
    ends = "" if np.isnan(row["low"]) else f" [{_signed(row['low'])}, {_signed(row['high'])}]"
    return f"{row['metric']} {row['effect']:+.3f}{ends}".replace("-", "−")


def _signed(value: float) -> str:
    return f"{value:.3f}"


def _basis(row: "pd.Series[Any]") -> str:
    pairs = f"{row['trainings']} pair{'s' if row['trainings'] > 1 else ''} of networks"
    p = f", p = {row['p_holm']:.2g} after Holm's correction" if np.isfinite(row["p_holm"]) else ""
    return f"{pairs}, n = {row['n']}{p}"


def _shown(command: str) -> str:
    """Commands as code, each by itself: they are separated by a semicolon."""
    return "; ".join(f"`{part}`" for part in command.split("; ")) if command.startswith("scs-eval") else command
