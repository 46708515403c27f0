"""What a study says: claims with their evidence, and the paper's tables and figures remade."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pandas as pd

from scs_eval.analyses.core.reference_tests import model_of
from scs_eval.analyses.core.result import Comparison, Result
from scs_eval.analyses.study.accuracy_table import PaperTables
from scs_eval.analyses.study.claims import SUPPORTED, UNDECIDED, claim_table
from scs_eval.analyses.study.exhibits import Material, Shown, make_exhibits
from scs_eval.analyses.study.figure import draw_claims
from scs_eval.analyses.study.plan import Plan, parse_plan

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PARTED = "/"  # between the part and the analysis in a key of `results`


@dataclass(frozen=True, eq=False, kw_only=True)
class StudyResult(Result):
    """All results of a study.

    plan: the TOML text. results: "part/analysis" → that analysis of the part's models. eps: of the attacks.
    left_out: "part, analysis, model" → why there is nothing. paper: what the SCS paper's tables have of networks.
    """

    name = "study"
    axes: ClassVar = {}
    plan: str
    results: Mapping[str, Result]
    eps: tuple[float, ...]
    left_out: Mapping[str, str] = field(default_factory=dict)
    paper: PaperTables = field(default_factory=dict)

    @cached_property
    def parsed(self) -> Plan:
        """The plan."""
        return parse_plan(self.plan, name=self.label)

    @cached_property
    def by_part(self) -> dict[str, dict[str, dict[str, Result]]]:
        """Part → analysis → model → result."""
        parts: dict[str, dict[str, dict[str, Result]]] = {}
        for key, result in self.results.items():
            part, _, analysis = key.partition(PARTED)
            members = result.results if isinstance(result, Comparison) else (result,)
            parts.setdefault(part, {})[analysis] = {model_of(member): member for member in members}
        return parts

    @cached_property
    def _claims(self) -> pd.DataFrame:
        return claim_table(self.parsed.claims, self.by_part, self.eps)

    def table(self) -> pd.DataFrame:
        """The claims: a main row each, and a row per part."""
        return self._claims.copy()

    @cached_property
    def exhibits(self) -> tuple[Shown, ...]:
        """The paper's tables and figures, ours beside the paper's."""
        return make_exhibits(self.parsed.exhibits, Material(self.by_part, self.paper))

    def tables(self) -> dict[str, pd.DataFrame]:
        """The claims, and every exhibit that is a table."""
        shown = {file_name(exhibit.name): exhibit.table for exhibit in self.exhibits if exhibit.table is not None}
        return {"table": self.table(), **shown}

    def summary(self) -> pd.DataFrame:
        """The claims for a reader: one line each."""
        return claim_summary(self._claims[self._claims["main"]] if len(self._claims) else self._claims)

    def draw(self, ax: "Axes | None" = None) -> "Figure":
        """Every claim's effect with its interval, in standard deviations of the images."""
        return draw_claims(self._claims, ax)

    def figures(self) -> dict[str, "Figure"]:
        """The claims, and every exhibit that is a figure."""
        drawn = {file_name(exhibit.name): exhibit.draw() for exhibit in self.exhibits if exhibit.draw is not None}
        return ({"figure": self.figure()} if len(self._claims) else {}) | drawn

    def counts(self) -> dict[str, int]:
        """How many claims are supported, contradicted and undecided."""
        main = self._claims[self._claims["main"]]["verdict"] if len(self._claims) else []
        return {word: int(np.sum(np.asarray(main) == word)) for word in (SUPPORTED, "contradicted", UNDECIDED)}


def claim_summary(claims: pd.DataFrame) -> pd.DataFrame:
    """Rows of claims as text."""
    return pd.DataFrame([_line(row) for _, row in claims.iterrows()])


def _line(row: "pd.Series[Any]") -> dict[str, str]:
    effect = "" if np.isnan(row["effect"]) else f"{row['effect']:+.3f}"
    interval = "" if np.isnan(row["low"]) else f" [{row['low']:+.3f}, {row['high']:+.3f}]"
    return {
        "claim": row["claim"], "verdict": row["verdict"], "observed": row["observed"], "metric": row["metric"],
        "effect": effect + interval, "n": str(row["n"]), "trainings": str(row["trainings"]), "where": row["part"],
        "test": row["test"] if np.isfinite(row["effect"]) else "", "shown by": row["command"],
    }  # fmt: skip


def file_name(name: str) -> str:
    """Figure 5 → figure-5."""
    return "-".join("".join(sign if sign.isalnum() else " " for sign in name.lower()).split())
