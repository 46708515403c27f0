"""Figures of a search: parallel coordinates, accuracy against p, contours over p and the learning rate."""

from typing import TYPE_CHECKING

import numpy as np

from scs_eval.analyses.plotting import style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from scs_eval.search.result import SearchResult

LOGARITHMIC = ("lr",)


def draw_parallel(result: "SearchResult", ax: "Axes | None" = None) -> "Figure":
    """A line per trial from its accuracy through its parameters, the better the darker; pruned ones dashed."""
    from matplotlib import colormaps

    names = ("accuracy", *result.parameters)
    columns = [100 * result.accuracies, *result.values.T]
    scaled = [_unit(column, log=name in LOGARITHMIC) for name, column in zip(names, columns, strict=True)]
    with style.drawing(ax, height=2.8) as axes:
        ranks = scaled[0]
        for trial in np.argsort(ranks):
            whole = bool(result.complete[trial])
            colour = colormaps["viridis_r"](0.15 + 0.8 * ranks[trial])
            heights = [column[trial] for column in scaled]
            axes.plot(range(len(names)), heights, color=colour, lw=1.1 if whole else 0.6, ls="-" if whole else ":")
        for index, column in enumerate(columns):
            axes.axvline(index, color=style.GREY, lw=0.7)
            _ends(axes, index, column)
        axes.set_xticks(range(len(names)), [f"{label} %" if label == "accuracy" else label for label in names])
        axes.set_yticks([])
        axes.set_ylim(-0.12, 1.12)
        axes.spines["left"].set_visible(False)
        axes.set_title(f"{result.model}: {len(result.values)} trials (dotted: pruned)", loc="left")
        return style.figure_of(axes)


def draw_values(result: "SearchResult", ax: "Axes | None" = None) -> "Figure":
    """Accuracy against p, a point per trial; those that were pruned hollow, with the accuracy they had reached."""
    with style.drawing(ax, height=2.6) as axes:
        for whole, face in ((True, style.BLUE), (False, "none")):
            here = result.complete == whole
            label = f"trained {result.planned} epochs" if whole else "pruned"
            points = result.values[here, 0], 100 * result.accuracies[here]
            axes.scatter(*points, s=16, facecolors=face, edgecolors=style.BLUE, linewidths=0.8, label=label)
        axes.axvline(1, color=style.GREY, lw=0.7, ls=":")
        axes.set_xlabel("p, fixed and the same in all layers")
        axes.set_ylabel("accuracy on held-out images %")
        axes.legend()
        return style.figure_of(axes)


def draw_contour(result: "SearchResult", ax: "Axes | None" = None) -> "Figure":
    """Accuracy over p and the learning rate, between the trials that were trained to the end."""
    whole = result.complete
    p, rate = result.values[whole].T
    with style.drawing(ax, height=3.0) as axes:
        filled = axes.tricontourf(p, np.log10(rate), 100 * result.accuracies[whole], levels=10, cmap="viridis")
        axes.scatter(p, np.log10(rate), s=10, c="white", edgecolors="black", linewidths=0.5, clip_on=False, zorder=3)
        ticks = np.unique(np.round(np.linspace(np.log10(rate).min(), np.log10(rate).max(), 4), 1))
        axes.set_yticks(ticks, [f"{10**tick:.2g}" for tick in ticks])
        axes.set_xlabel("p")
        axes.set_ylabel("learning rate")
        style.figure_of(axes).colorbar(filled, ax=axes, label="accuracy on held-out images %")
        return style.figure_of(axes)


def _unit(column: np.ndarray, *, log: bool) -> np.ndarray:
    values = np.log(column) if log else column
    span = np.ptp(values)
    return (values - values.min()) / span if span else np.full_like(values, 0.5)


def _ends(ax: "Axes", index: int, column: np.ndarray) -> None:
    for height, value, side in ((0, column.min(), "top"), (1, column.max(), "bottom")):
        ax.annotate(
            f"{value:.3g}", (index, height), (0, -3 if side == "top" else 3), textcoords="offset points", ha="center",
            va=side, fontsize=style.points(7),
        )  # fmt: skip
