"""What calibration says: confidence and correctness of every image, before and after a temperature."""

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pandas as pd

from scs_eval.analyses.calibration.bins import Bins, ece_interval, equal_mass, plugin_ece
from scs_eval.analyses.core.axes import axes_of
from scs_eval.analyses.core.interval_words import named_interval, percent_cell
from scs_eval.analyses.core.result import Comparison, Result
from scs_eval.analyses.core.statistics import mean_interval, wilson

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

RAW, TEMPERED = 0, 1
SCALINGS = ("raw", "temperature")


@dataclass(frozen=True, eq=False, kw_only=True)
class CalibrationResult(Result):
    """How sure a model was of n images, as it is (raw) and with a temperature.

    bins: of equal mass. temperatures: of half 0 and 1, each fitted on the other half. half: (n,) which half.
    indices: (n,) which images; labels, predictions: (n,) positions in `classes`.
    confidence, brier, log_loss: (2, n) raw and with the temperature; the largest probability, Σ (p − y)² over classes,
    and −log p of the right class.
    """

    name = "calibration"
    axes: ClassVar = axes_of("image: indices labels predictions half", "scaling, image: confidence brier log_loss")
    classes: tuple[str, ...]
    bins: int
    temperatures: tuple[float, float]
    indices: np.ndarray
    labels: np.ndarray
    predictions: np.ndarray
    half: np.ndarray
    confidence: np.ndarray
    brier: np.ndarray
    log_loss: np.ndarray

    @property
    def correct(self) -> np.ndarray:
        """(n,) whether the model was right."""
        return self.predictions == self.labels

    @cached_property
    def binned(self) -> tuple[Bins, Bins]:
        """The reliability curve, raw and with the temperature."""
        raw, tempered = (equal_mass(values, self.correct, bins=self.bins) for values in self.confidence)
        return raw, tempered

    def curve(self) -> pd.DataFrame:
        """One row per bin: its images, mean confidence, and accuracy with its interval."""
        parts = []
        for name, bins in zip(SCALINGS, self.binned, strict=True):
            accuracy, low, high = bins.accuracy
            columns = {"n": bins.images, "confidence": bins.confidence, "accuracy": accuracy, "low": low, "high": high}
            parts.append(pd.DataFrame({"model": self.label, "scaling": name, "bin": range(self.bins), **columns}))
        return pd.concat(parts, ignore_index=True)

    def table(self) -> pd.DataFrame:
        """Two rows, raw and with the temperature: calibration errors, Brier score and log loss with intervals."""
        accuracy = wilson(self.correct.sum(), len(self.labels))
        rows = []
        for scaling, name in enumerate(SCALINGS):
            row: dict[str, Any] = {"model": self.label, "scaling": name, "n": len(self.labels), "bins": self.bins}
            row |= named_interval("ece", ece_interval(self.binned[scaling]))
            row["ece_plugin"] = plugin_ece(self.binned[scaling])
            row |= named_interval("brier", mean_interval(self.brier[scaling]))
            row |= named_interval("log_loss", mean_interval(self.log_loss[scaling]))
            row["confidence"] = float(self.confidence[scaling].mean())
            row |= named_interval("accuracy", accuracy)
            row |= dict(
                zip(("temperature_0", "temperature_1"), (1.0, 1.0) if not scaling else self.temperatures, strict=True)
            )
            rows.append(row)
        return pd.DataFrame(rows)

    def per_image(self) -> pd.DataFrame:
        """One row per image."""
        names = np.array(self.classes)
        columns: dict[str, Any] = {"model": self.label, "index": self.indices, "label": names[self.labels]}
        columns |= {"prediction": names[self.predictions], "half": self.half}
        for scaling, name in enumerate(SCALINGS):
            columns |= {f"confidence_{name}": self.confidence[scaling], f"brier_{name}": self.brier[scaling]}
        return pd.DataFrame(columns)

    def summary(self) -> pd.DataFrame:
        """Errors in per cent, intervals in brackets; with the temperature of the other half beside the raw values."""
        first, second = (row for _, row in self.table().iterrows())
        row = {
            "model": self.label,
            "n": str(first["n"]),
            "accuracy %": f"{100 * first['accuracy']:.1f}",
            "confidence %": f"{100 * first['confidence']:.1f}",
            "calibration error %": percent_cell(first, "ece"),
            "Brier": _plain(first, "brier"),
            "log loss": _plain(first, "log_loss"),
            "temperature": " and ".join(f"{value:.2f}" for value in self.temperatures),
            "error with it %": percent_cell(second, "ece"),
            "Brier with it": _plain(second, "brier"),
        }
        return pd.DataFrame([row])

    def tables(self) -> dict[str, pd.DataFrame]:
        """The table, the reliability curve, every image."""
        return {"table": self.table(), "curve": self.curve(), "images": self.per_image()}

    def draw(self, ax: "Axes | None" = None) -> "Figure":
        """Accuracy against confidence, raw and with the temperature."""
        from scs_eval.analyses.calibration.figure import draw_reliability

        return draw_reliability([self], ax)


@dataclass(frozen=True, eq=False, kw_only=True)
class CalibrationComparison(Comparison[CalibrationResult]):
    """The calibration of several models on the same images."""

    name = "calibration"

    def draw(self, ax: "Axes | None" = None) -> "Figure":
        """All models' curves: raw in one panel, with the temperature in the other."""
        from scs_eval.analyses.calibration.figure import draw_reliability

        return draw_reliability(self.results, ax)


def _plain(row: "pd.Series[Any]", name: str) -> str:
    return f"{row[name]:.3f} [{row[f'{name}_low']:.3f}, {row[f'{name}_high']:.3f}]"
