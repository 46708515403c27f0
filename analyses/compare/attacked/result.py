"""What became of explanations under attack, as ε grows."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pandas as pd

from scs_eval.analyses.attribution.score_table import mean_of
from scs_eval.analyses.compare.attacked.figure import draw_curves, map_pages
from scs_eval.analyses.core.axes import axes_of
from scs_eval.analyses.core.result import Comparison, Result
from scs_eval.analyses.core.statistics import wilson

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

CURVES = ("localisation", "similarity", "ssim")


@dataclass(frozen=True, eq=False, kw_only=True)
class AttackedResult(Result):
    """What became of the maps of n images, and of G grids made of them, at E values of ε, the first of which is 0.

    eps: (E,). right: (E, n) whether the model is right. localisation: (E, G) the score of each grid; G = 0 without any.
    similarity, ssim: (E, n) Spearman's correlation of the signed maps and SSIM of the drawn ones, with those at ε = 0.
    floor: the score of chance. images: (E, 3, H, W), maps: (E, H, W) the first image and its signed map at each ε.
    """

    name = "attacked"
    axes: ClassVar = axes_of(
        "eps: eps", "image: indices labels", "eps, image: right similarity ssim", "eps, grid: localisation",
        "eps, channel, row, column: images", "eps, row, column: maps",
    )  # fmt: skip
    method: str
    classes: tuple[str, ...]
    eps: np.ndarray
    indices: np.ndarray
    labels: np.ndarray
    right: np.ndarray
    localisation: np.ndarray
    similarity: np.ndarray
    ssim: np.ndarray
    floor: float
    images: np.ndarray
    maps: np.ndarray

    def curve(self, kind: str) -> pd.DataFrame:
        """Mean and 95 % interval of one of CURVES at every ε."""
        return pd.DataFrame(
            [{"eps": eps, **mean_of(row)} for eps, row in zip(self.eps, getattr(self, kind), strict=True)]
        )

    def table(self) -> pd.DataFrame:
        """One row per ε: accuracy on these images, and every curve with its interval."""
        accuracy, low, high = wilson(self.right.sum(1), self.right.shape[1])
        columns: dict[str, Any] = {"model": self.label, "method": self.method, "eps": self.eps}
        columns |= {"n": self.right.shape[1], "accuracy": accuracy, "accuracy_low": low, "accuracy_high": high}
        for kind in CURVES:
            curve = self.curve(kind)
            columns |= {kind: curve["mean"], f"{kind}_low": curve["low"], f"{kind}_high": curve["high"]}
        return pd.DataFrame({**columns, "grids": self.localisation.shape[1]})

    def summary(self) -> pd.DataFrame:
        """One row per ε, intervals in brackets."""
        rows = []
        for _, row in self.table().iterrows():
            shown = {
                "model": self.label,
                "ε × 255": f"{255 * row['eps']:.3g}",
                "accuracy %": f"{100 * row['accuracy']:.0f}",
            }
            for kind in CURVES:
                shown[kind] = f"{row[kind]:.3f} [{row[f'{kind}_low']:.3f}, {row[f'{kind}_high']:.3f}]"
            rows.append(shown)
        return pd.DataFrame(rows)

    def draw(self, ax: "Axes | None" = None) -> "Figure":
        """Localisation and likeness against ε; on given axes localisation alone."""
        return draw_curves([self], ax)

    def figures(self) -> dict[str, "Figure"]:
        """The curves, and the first image's map at every ε."""
        return {"figure": self.figure(), **map_pages([self])}


@dataclass(frozen=True, eq=False, kw_only=True)
class AttackedComparison(Comparison[AttackedResult]):
    """The same for several models, each attacked for itself."""

    name = "attacked"

    def draw(self, ax: "Axes | None" = None) -> "Figure":
        """All curves."""
        return draw_curves(self.results, ax)

    def figures(self) -> dict[str, "Figure"]:
        """The curves, and a row of maps for each model."""
        return {"figure": self.figure(), **map_pages(self.results)}
