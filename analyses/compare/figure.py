"""Figures that show all models of a comparison on the same axes."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from scs_eval.analyses.core.statistics import SHARE, mean_interval
from scs_eval.analyses.faithfulness.figure import PANELS
from scs_eval.analyses.plotting import style
from scs_eval.analyses.plotting.lines import FEW, LineStyles, shade

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def draw_pixel_curves(results: Sequence[Any]) -> "Figure":
    """Deletion and insertion curves of the first method, one for each model's faithfulness result."""
    with style.paper_style():
        axes = style.panels(1, 2, height=2.9 + 0.14 * len(results), sharey=True)
        for ax, kind in zip(axes, PANELS, strict=True):
            styles = LineStyles()
            for result in results:
                _curve(ax, result, kind, styles, alpha=shade(len(results)))
                if len(results) <= FEW:
                    _random_curve(ax, result, kind)
            ax.set(xlim=(0, 1), ylim=(0, None))
            ax.grid(lw=0.3, color="0.88")
            ax.set_axisbelow(True)
            ax.set_title(PANELS[kind][0], loc="left")
            ax.set_xlabel(PANELS[kind][1])
        axes[0].set_ylabel("probability of the class")
        note = f"{results[0].methods[0]}, {len(results[0].targets)} images, 95 % bands"
        note += "; thin and dotted: a random map" if len(results) <= FEW else ""
        return style.legend_below(axes[0], note, ncols=2)


def _curve(ax: "Axes", result: Any, kind: str, styles: LineStyles, *, alpha: float) -> None:
    tint, _, dash = styles.next_for(result.label)
    values: np.ndarray = getattr(result, kind)
    mean, low, high = mean_interval(values[0], bounds=SHARE)
    ax.fill_between(result.fractions, low, high, color=tint, alpha=alpha, lw=0)
    ax.plot(result.fractions, mean, ls=dash, color=tint, label=result.label)


def _random_curve(ax: "Axes", result: Any, kind: str) -> None:
    values = getattr(result, kind)[result.methods.index("random")]
    ax.plot(result.fractions, values.mean(0), ls=":", lw=0.7, color=style.look_of(result.label)[0])
