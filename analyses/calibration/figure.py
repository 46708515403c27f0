"""Reliability curves: accuracy against confidence, where the diagonal is what a calibrated model would have."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from scs_eval.analyses.calibration.bins import debiased_ece
from scs_eval.analyses.plotting import style
from scs_eval.analyses.plotting.lines import FEW, LineStyles

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from scs_eval.analyses.calibration.result import CalibrationResult

PANELS = ("as the models are", "with a temperature, fitted on the other half")


def draw_reliability(results: "Sequence[CalibrationResult]", ax: "Axes | None" = None) -> "Figure":
    """Bins of equal mass, raw and with the temperature, intervals (Wilson) if models are few; on given axes raw."""
    with style.paper_style():
        axes = [ax] if ax is not None else style.panels(1, 2, height=3.2 + 0.14 * len(results), sharey=True)
        for scaling, (panel, title) in enumerate(zip(axes, PANELS, strict=False)):
            _panel(panel, results, scaling, title)
        axes[0].set_ylabel("accuracy in %" + (", 95 % interval" if len(results) <= FEW else ""))
        first = results[0]
        note = (
            f"{len(first.labels):,} images in {first.bins} bins of equal mass; below the diagonal: too sure of itself"
        )
        note += "" if len(results) <= FEW else "; the table `curve` has the intervals"
        return style.legend_below(axes[0], note, ncols=2)


def _panel(ax: "Axes", results: "Sequence[CalibrationResult]", scaling: int, title: str) -> None:
    ax.plot([0, 100], [0, 100], color=style.GREY, lw=0.7, ls=":")
    styles = LineStyles()
    for result in results:
        tint, marker, dash = styles.next_for(result.label)
        bins = result.binned[scaling]
        accuracy, low, high = (100 * part for part in bins.accuracy)
        ends = [accuracy - low, high - accuracy] if len(results) <= FEW else None
        ax.errorbar(
            100 * bins.confidence, accuracy, yerr=ends, color=tint, ls=dash, marker=marker, ms=3, elinewidth=0.5,
            lw=0.9, label=_name(result),
        )  # fmt: skip
    least = min(result.binned[part].confidence[0] for result in results for part in (0, 1))
    ax.set(xlim=(max(0, 100 * least - 5), 101), ylim=(0, 101))
    ax.grid(lw=0.3, color="0.88")
    ax.set_axisbelow(True)
    ax.set_xlabel("confidence in %")
    ax.set_title(title, loc="left")


def _name(result: "CalibrationResult") -> str:
    raw, tempered = (100 * debiased_ece(bins) for bins in result.binned)
    return f"{result.label}: error {raw:.1f} %, then {tempered:.1f} %"
