"""Pictures of corruptions: accuracy against severity, what each corruption costs, and what it looks like."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from scs_eval.analyses.core.statistics import wilson
from scs_eval.analyses.corruptions.corrupt import SEVERITIES, SHOWN
from scs_eval.analyses.plotting import style
from scs_eval.analyses.plotting.lines import LineStyles, shade

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from scs_eval.analyses.corruptions.result import CorruptionsResult

COLUMNS = 5
GRID = (0, *SEVERITIES)


def draw_curves(results: "Sequence[CorruptionsResult]", ax: "Axes | None" = None) -> "Figure":
    """Accuracy against severity (0: clean) with 95 % bands, a panel a corruption; on given axes the mean of all."""
    with style.paper_style():
        if ax is not None:
            _panel(ax, results, None)
            ax.legend(loc="best")
            return style.figure_of(ax)
        names = results[0].names
        columns = min(COLUMNS, len(names))
        rows = -(-len(names) // columns)
        axes = style.panels(rows, columns, height=0.6 + 1.35 * rows + 0.14 * len(results), sharex=True, sharey=True)
        for index, panel in enumerate(axes):
            _panel(panel, results, index) if index < len(names) else panel.set_axis_off()
        for panel in axes[::columns]:
            panel.set_ylabel("accuracy in %")
        for panel in axes[-columns:]:
            panel.set_xlabel("severity")
        note = f"{results[0].n:,} images, {results[0].source}; severity 0 is clean, 95 % bands"
        return style.legend_below(axes[0], note, ncols=3)


def _panel(ax: "Axes", results: "Sequence[CorruptionsResult]", index: int | None) -> None:
    styles = LineStyles()
    for result in results:
        tint, marker, dash = styles.next_for(result.label)
        right = result.right.mean(0) if index is None else result.right[index]
        accuracy, low, high = (100 * part for part in wilson([result.clean.sum(), *right.sum(1)], result.n))
        ax.fill_between(GRID, low, high, color=tint, alpha=shade(len(results)), lw=0)
        ax.plot(GRID, accuracy, ls=dash, marker=marker, ms=2.5, lw=0.9, color=tint, label=result.label)
    ax.set(xticks=GRID, ylim=(0, 100))
    ax.grid(lw=0.3, color="0.88")
    ax.set_axisbelow(True)
    ax.set_title(
        "mean of all corruptions" if index is None else _words(results[0].names[index]),
        loc="left",
        fontsize=style.points(7),
    )


def draw_heatmap(results: "Sequence[CorruptionsResult]") -> "Figure":
    """Points of accuracy that each corruption costs: of several models the mean over severities, of one by severity."""
    if len(results) > 1:
        names, values = [result.label for result in results], np.stack([result.drops.mean(1) for result in results])
    else:
        clean, accuracy = results[0].clean.mean(), results[0].accuracy.estimate
        names = [f"severity {severity}" for severity in SEVERITIES]
        values = (clean - accuracy).T
    with style.paper_style():
        ax = style.panels(1, 1, height=1.6 + 0.24 * len(names))[0]
        ax.imshow(100 * values, cmap="Reds", vmin=0, vmax=max(1.0, 100 * values.max()), aspect="auto")
        for row, column in np.ndindex(values.shape):
            dark = values[row, column] > 0.6 * values.max()
            text = style.format_number(100 * values[row, column], ".0f")
            ax.text(
                column,
                row,
                text,
                ha="center",
                va="center",
                fontsize=style.points(6.5),
                color="white" if dark else "black",
            )
        ax.set_yticks(range(len(names)), names)
        ax.set_xticks(range(values.shape[1]), [_words(name) for name in results[0].names], rotation=40, ha="right")
        ax.tick_params(length=0)
        ax.spines[:].set_visible(False)
        whose = results[0].label + ": p" if len(results) == 1 else "P"
        mean = "" if len(results) == 1 else ", mean over severities"
        ax.set_title(f"{whose}oints of accuracy that a corruption costs{mean}; {results[0].n:,} images", loc="left")
        return style.figure_of(ax)


def draw_examples(result: "CorruptionsResult") -> "Figure":
    """The first image under every corruption at severity SHOWN."""
    with style.paper_style():
        rows = -(-len(result.names) // COLUMNS)
        axes = style.panels(rows, COLUMNS, height=1.4 * rows + 0.2)
        for index, panel in enumerate(axes):
            panel.set_axis_off()
            if index < len(result.names):
                panel.imshow(result.pictures[index].transpose(1, 2, 0), interpolation="nearest")
                panel.set_title(_words(result.names[index]), fontsize=style.points(7))
        style.write_note(axes[0], f"The first image under every corruption at severity {SHOWN} of {SEVERITIES[-1]}.")
        return style.figure_of(axes[0])


def _words(name: str) -> str:
    return name.replace("_compression", "").replace("_transform", "").replace("_", " ")
