"""ROC curves: clean images that are let through against others that are."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from scs_eval.analyses.detect.roc import TPR, curve
from scs_eval.analyses.plotting import style
from scs_eval.analyses.plotting.lines import Dash, LineStyles

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from scs_eval.analyses.detect.result import DetectResult

COLUMNS = 3


def draw_roc(results: "Sequence[DetectResult]", detectors: Sequence[str], ax: "Axes | None" = None) -> "Figure":
    """A panel for each kind, on given axes the first: all detectors of one model, or the last and the first of many."""
    with style.paper_style():
        kinds = results[0].kinds
        rows = -(-len(kinds) // COLUMNS)
        below = 0.8 + 0.05 * max(0, len(results) - COLUMNS)  # inches of the legend and the note
        axes = [ax] if ax is not None else style.panels(rows, min(COLUMNS, len(kinds)), height=below + 2.1 * rows)
        for kind, panel in enumerate(axes):
            if kind >= len(kinds):
                panel.set_axis_off()
            elif len(results) == 1:
                _detectors(panel, results[0], detectors, kind)
            else:
                _models(panel, results, kind)
        first = results[0]
        note = f"{len(first.indices):,} clean images; dotted: {100 * TPR:.0f} % of them are let through; "
        note += f"Gaussians fitted on {first.fitted:,} others"
        if len(results) > 1:
            note += f"\nthick: {detectors[-1]}; thin: {detectors[0]}"
        return style.legend_below(axes[0], note, ncols=3)


def _detectors(ax: "Axes", result: "DetectResult", detectors: Sequence[str], kind: int) -> None:
    for detector, name in enumerate(detectors):
        _line(ax, result, kind, detector, style.CYCLE[detector], "-", name)
    _axes(ax, result, kind)


def _models(ax: "Axes", results: "Sequence[DetectResult]", kind: int) -> None:
    styles = LineStyles()
    for result in results:
        tint, _, dash = styles.next_for(result.label)
        _line(ax, result, kind, -1, tint, dash, result.label)
        _line(ax, result, kind, 0, tint, dash, "", lw=0.4)
    _axes(ax, results[0], kind)


def _line(
    ax: "Axes", result: "DetectResult", kind: int, detector: int, tint: str, dash: Dash, name: str, *, lw: float = 1.0
) -> None:
    clean, other = result.pair(kind, detector)
    if len(other):
        false, true = curve(clean, other)
        ax.plot(100 * false, 100 * true, color=tint, ls=dash, lw=lw, label=name or "_")
    elif name:
        ax.plot([], [], color=tint, ls=dash, lw=lw, label=name)


def _axes(ax: "Axes", result: "DetectResult", kind: int) -> None:
    ax.plot([0, 100], [0, 100], color=style.GREY, lw=0.5)
    ax.axhline(100 * TPR, color=style.GREY, lw=0.5, ls=":")
    others = len(result.pair(kind, -1)[1])
    ax.set(xlim=(0, 100), ylim=(0, 101), aspect="equal")
    ax.set_xlabel("others let through, %")
    ax.set_ylabel("clean let through, %")
    ax.grid(lw=0.3, color="0.88")
    ax.set_title(f"{result.kinds[kind]} (n = {others})", loc="left", fontsize=style.points(7))
