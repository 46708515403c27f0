"""The trials of a search for p: what each was, how far it got, and how often it was right on held-out images."""

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import pandas as pd

from scs_eval.analyses.core.result import Result
from scs_eval.search.figure import draw_contour, draw_parallel, draw_values

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COMPLETE, PRUNED = "complete", "pruned"
BINS = (0.0, 0.9, 1.1, 2.0, 3.0, np.inf)  # of p: below 1, about 1, and above


@dataclass(frozen=True, eq=False, kw_only=True)
class SearchResult(Result):
    """T trials.

    parameters: names, p first. states: complete, or pruned: stopped early as it fell behind. values: (T, parameters).
    accuracies: (T,) after its last epoch, on `images` held-out images. epochs: (T,) trained; planned: of a whole trial.
    """

    name = "search"
    axes: ClassVar = {"values": ("trial", "parameter"), "accuracies": ("trial",), "epochs": ("trial",)}
    model: str
    parameters: tuple[str, ...]
    states: tuple[str, ...]
    planned: int
    images: int
    values: np.ndarray
    accuracies: np.ndarray
    epochs: np.ndarray

    @property
    def complete(self) -> np.ndarray:
        """(T,) which trials were trained to the end."""
        return np.array([state == COMPLETE for state in self.states], dtype=bool)

    def table(self) -> pd.DataFrame:
        """One row per trial, the best first; pruned ones behind."""
        columns = {name: self.values[:, index] for index, name in enumerate(self.parameters)}
        table = pd.DataFrame({"trial": np.arange(len(self.values)), "state": self.states, **columns})
        table["accuracy"], table["epochs"] = self.accuracies, self.epochs
        return table.sort_values(["state", "accuracy"], ascending=[True, False], kind="stable", ignore_index=True)

    def by_p(self) -> pd.DataFrame:
        """Trials by p, below, about and above 1: how many, how many were pruned, and the accuracy of the others."""
        p, rows = self.values[:, 0], []
        for low, high in pairwise(BINS):
            here = (p >= low) & (p < high)
            if here.any():
                whole = self.accuracies[here & self.complete]
                best, mean, least = (whole.max(), whole.mean(), whole.min()) if len(whole) else (np.nan,) * 3
                span = f"p < {high:g}" if low == 0 else f"p ≥ {low:g}" if np.isinf(high) else f"{low:g} ≤ p < {high:g}"
                rows.append(
                    {"p": span, "trials": int(here.sum()), "pruned": int((here & ~self.complete).sum())}
                    | {"best": best, "mean": mean, "least": least}
                )
        return pd.DataFrame(rows)

    def tables(self) -> dict[str, pd.DataFrame]:
        """The trials, and the same by p."""
        return {"table": self.table(), "by_p": self.by_p()}

    def summary(self) -> pd.DataFrame:
        """By p, in per cent."""
        table = self.by_p()
        for column in ("best", "mean", "least"):
            table[column] = [f"{100 * value:.1f}" if np.isfinite(value) else "" for value in table[column]]
        return table.astype(str)

    def draw(self, ax: "Axes | None" = None) -> "Figure":
        """Parallel coordinates: a line per trial through its parameters to its accuracy, as in the paper's Figure 8."""
        return draw_parallel(self, ax)

    def figures(self) -> dict[str, "Figure"]:
        """Parallel coordinates, accuracy against p, and a contour over p and the learning rate if both are searched."""
        drawn = {"figure": self.figure(), "values": draw_values(self)}
        enough = len(self.parameters) == 2 and self.complete.sum() >= 4  # points of a triangulation with an inside
        return drawn | ({"contour": draw_contour(self)} if enough else {})
