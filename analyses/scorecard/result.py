"""What a scorecard says of one model: its checks, the attacks tried, and what is left of the accuracy."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pandas as pd

from scs_eval.analyses.core.axes import axes_of
from scs_eval.analyses.core.result import Result
from scs_eval.analyses.core.statistics import Interval, wilson
from scs_eval.analyses.scorecard.check import ORDER, Check, worst
from scs_eval.analyses.scorecard.figure import draw_scorecard

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


@dataclass(frozen=True, eq=False, kw_only=True)
class Scorecard(Result):
    """The checks of one model at one ε.

    eps, norm: where the other attacks were tried. checks: name, verdict, figure and sentence of each.
    right: (m,) whether the model is right when clean. reported: (m,) whether the curve counts the image as wrong.
    attacks: the A other attacks tried. is_adversarial: (A, m) whether each succeeded; what is wrong when clean counts.
    """

    name = "scorecard"
    axes: ClassVar = axes_of("image: right reported", "attack, image: is_adversarial")
    eps: float
    norm: str
    checks: tuple[tuple[str, str, str, str], ...]
    right: np.ndarray
    reported: np.ndarray
    attacks: tuple[str, ...]
    is_adversarial: np.ndarray

    @property
    def verdict(self) -> str:
        """The worst of all."""
        return worst(self.lines)

    @property
    def lines(self) -> tuple[Check, ...]:
        """The checks by their names, which a file does not keep."""
        return tuple(Check(*check) for check in self.checks)

    @property
    def worst_case(self) -> np.ndarray:
        """(m,) whether any attack broke the image at eps: the curve's or another."""
        worst_case: np.ndarray = self.reported | self.is_adversarial.any(0)
        return worst_case

    @property
    def robust_accuracy(self) -> Interval:
        """The share of images that every attack left right."""
        return wilson((~self.worst_case).sum(), len(self.worst_case))

    @property
    def reported_accuracy(self) -> Interval:
        """The share of the same images that the curve says are right."""
        return wilson((~self.reported).sum(), len(self.reported))

    def counts(self) -> dict[str, int]:
        """How many checks have each verdict, worst first."""
        return {verdict: sum(check.verdict == verdict for check in self.lines) for verdict in ORDER}

    def table(self) -> pd.DataFrame:
        """One row per check."""
        columns = {"model": self.label, "eps": self.eps, "n": len(self.right)}
        return pd.DataFrame([{**columns, **check._asdict()} for check in self.lines])

    def attack_table(self) -> pd.DataFrame:
        """One row per attack: its robust accuracy at eps and how many images the curve's attack missed."""
        names = ("the curve's", *self.attacks, "all together")
        rows = zip(names, (self.reported, *self.is_adversarial, self.worst_case), strict=True)
        return pd.DataFrame([self._attack_row(name, is_adversarial) for name, is_adversarial in rows])

    def _attack_row(self, name: str, is_adversarial: np.ndarray) -> dict[str, Any]:
        accuracy, low, high = map(float, wilson((~is_adversarial).sum(), len(is_adversarial)))
        missed = int((is_adversarial & ~self.reported).sum())
        return {"model": self.label, "eps": self.eps, "attack": name, "n": len(is_adversarial),
                "robust_accuracy": accuracy, "low": low, "high": high, "missed_by_curve": missed}  # fmt: skip

    def tables(self) -> dict[str, pd.DataFrame]:
        """The checks, and the attacks."""
        return {"table": self.table(), "attacks": self.attack_table()}

    def summary(self) -> pd.DataFrame:
        """Check, verdict, figure, sentence."""
        return self.table().drop(columns=["eps", "n"])

    def draw(self, ax: "Axes | None" = None) -> "Figure":
        """The checks as a table with a word and a colour each."""
        return draw_scorecard([self], ax)
