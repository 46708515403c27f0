"""Accuracy against the L2 radius: proven from below, found from above, and the truth between."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from scs_eval.analyses.plotting import style
from scs_eval.analyses.plotting.lines import LineStyles, shade

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from scs_eval.analyses.certify.result import CertifyResult

POINTS = 400  # of a curve


def draw_bounds(results: "Sequence[CertifyResult]", ax: "Axes | None" = None) -> "Figure":
    """A panel for each σ, on given axes the first: certified accuracy, what no attack broke, and the space between."""
    with style.paper_style():
        count = 1 if ax is not None else len(results[0].sigma)
        axes = [ax] if ax is not None else style.panels(1, count, height=3.2 + 0.14 * len(results), sharey=True)
        for s, panel in enumerate(axes):
            _panel(panel, results, s)
        axes[0].set_ylabel("accuracy in %")
        first = results[0]
        note = f"{first.n} images, {first.samples:,} noisy copies each, certificates wrong with p ≤ {first.alpha:g}"
        if first.attacked:
            note += "\nthick: proven; thin: not broken by an attack on the smoothed model"
        return style.legend_below(axes[0], note, ncols=3)


def _panel(ax: "Axes", results: "Sequence[CertifyResult]", s: int) -> None:
    radii = np.linspace(0, _last(results, s), POINTS)
    styles = LineStyles()
    for result in results:
        tint, _, dash = styles.next_for(result.label)
        low = 100 * result.certified(s, radii).estimate
        ax.plot(radii, low, color=tint, ls=dash, label=result.label)
        if result.attacked:
            high = 100 * result.unbroken(s, radii).estimate
            ax.plot(radii, high, color=tint, ls=dash, lw=0.5)
            ax.fill_between(radii, low, high, color=tint, alpha=shade(len(results)), lw=0)
    ax.set(xlim=(0, radii[-1]), ylim=(0, 100))
    ax.grid(lw=0.3, color="0.88")
    ax.set_axisbelow(True)
    ax.set_xlabel("L2 radius, pixels in [0, 1]")
    ax.set_title(f"smoothed with σ = {results[0].sigma[s]:g}", loc="left")


def _last(results: "Sequence[CertifyResult]", s: int) -> float:
    """Up to the largest certificate, and to where an attack has found most."""
    proven = max(float(result.proven[s].max()) for result in results)
    distances = [result.distance[s][np.isfinite(result.distance[s])] for result in results if result.attacked]
    reached = [float(np.quantile(values, 0.98)) for values in distances if len(values)]
    return 1.05 * max(proven, *reached, 0.01) if reached else 1.05 * max(proven, 0.01)
