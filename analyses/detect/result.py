"""What detectors said of clean and of other images."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pandas as pd

from scs_eval.analyses.core.axes import axes_of
from scs_eval.analyses.core.interval_words import named_interval, percent_cell
from scs_eval.analyses.core.result import Comparison, Result
from scs_eval.analyses.detect.figure import draw_roc
from scs_eval.analyses.detect.roc import auroc, detection_accuracy, placements, tnr_at_tpr

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

DETECTORS = ("max softmax", "energy", "ODIN", "Mahalanobis, last stage", "Mahalanobis, all stages")
MEASURES = {"auroc": auroc, "tnr_at_95_tpr": tnr_at_tpr, "detection_accuracy": detection_accuracy}


@dataclass(frozen=True, eq=False, kw_only=True)
class DetectResult(Result):
    """Scores of n clean and of other images by five detectors (DETECTORS), larger for images like those known.

    kinds: of the other images: adversarial ones at each of eps (E,), then images from elsewhere. stages: the layers
    that Mahalanobis looks at. attack, noise: of the adversarial images, and of the input pre-processing. fitted_on,
    fitted: where the images for the Gaussians came from, and how many they were.
    indices: (n,) the tested clean images. known: (kind, detector, n) their scores; the regression's differ by kind.
    other: (kind, detector, m) those of the tested other images; NaN where an attack changed nothing, and behind the
    last. weights: (kind, stage) of the regression, which is trained with images of the same kind.
    """

    name = "detect"
    axes: ClassVar = axes_of(
        "eps: eps", "image: indices", "kind, detector, image: known", "kind, detector, other: other",
        "kind, stage: weights",
    )  # fmt: skip
    classes: tuple[str, ...]
    kinds: tuple[str, ...]
    stages: tuple[str, ...]
    attack: str
    noise: float
    fitted_on: str
    fitted: int
    eps: np.ndarray
    indices: np.ndarray
    known: np.ndarray
    other: np.ndarray
    weights: np.ndarray

    def pair(self, kind: int, detector: int) -> tuple[np.ndarray, np.ndarray]:
        """Scores of clean (n,) and of the other images that there are (≤ m,)."""
        other = self.other[kind, detector]
        return self.known[kind, detector], other[~np.isnan(other)]

    def detectability(self, eps: int) -> np.ndarray:
        """(n,) of each adversarial image, the share of clean ones that score higher by the last detector; else NaN."""
        other = self.other[eps, -1, : len(self.indices)]
        shares = np.full(len(other), np.nan)
        there = ~np.isnan(other)
        if there.any():
            shares[there] = placements(self.known[eps, -1], other[there])[1]
        return shares

    def table(self) -> pd.DataFrame:
        """One row per kind and detector: how many images, AUROC, TNR at 95 % TPR and detection accuracy."""
        rows = []
        for kind, detector in np.ndindex(len(self.kinds), len(DETECTORS)):
            clean, other = self.pair(kind, detector)
            row: dict[str, Any] = {"model": self.label, "kind": self.kinds[kind], "detector": DETECTORS[detector]}
            row |= {"n_clean": len(clean), "n_other": len(other), "fitted_on": self.fitted_on, "fitted": self.fitted}
            for name, measure in MEASURES.items():
                row |= named_interval(name, measure(clean, other) if len(other) else (np.nan,) * 3)
            rows.append(row)
        return pd.DataFrame(rows)

    def summary(self) -> pd.DataFrame:
        """A row per kind: AUROC of every detector in per cent, and TNR at 95 % TPR of the last."""
        table, rows = self.table(), []
        for kind in self.kinds:
            part = table[table["kind"] == kind].set_index("detector")
            row = {"model": self.label, "against": kind, "n": f"{part['n_clean'].iloc[0]} / {part['n_other'].iloc[0]}"}
            row |= {f"{name} AUROC %": percent_cell(part.loc[name], "auroc") for name in DETECTORS}
            rows.append(row | {"its TNR at 95 % TPR": percent_cell(part.loc[DETECTORS[-1]], "tnr_at_95_tpr")})
        return pd.DataFrame(rows)

    def draw(self, ax: "Axes | None" = None) -> "Figure":
        """ROC curves of every detector, a panel for each kind."""
        return draw_roc([self], DETECTORS, ax)


@dataclass(frozen=True, eq=False, kw_only=True)
class DetectComparison(Comparison[DetectResult]):
    """Detectors on several models."""

    name = "detect"

    def draw(self, ax: "Axes | None" = None) -> "Figure":
        """ROC curves of the best known and of the simplest detector of every model."""
        return draw_roc(self.results, DETECTORS, ax)
