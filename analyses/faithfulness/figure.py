"""Figures of faithfulness: insertion and deletion curves, and every method's scores with their intervals."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from scs_eval.analyses.faithfulness.controls import CONTROLS, UNTRAINED
from scs_eval.analyses.plotting import style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = (style.BLUE, style.RED, style.GREEN, style.PINK, style.ORANGE, style.SKY)
DASHES = ("-", (0, (5, 1.5)))
PANELS = {
    "deletion": ("deletion: important pixels go first", "fraction of pixels replaced", "area (low is good)"),
    "insertion": ("insertion: important pixels come first", "fraction of pixels shown", "area (high is good)"),
}
SCORES = {
    "deletion": "deletion area\n← better",
    "insertion": "insertion area\nbetter →",
    "infidelity": "infidelity (share unexplained)\n← better",
}


class Line(NamedTuple):
    """A method's mean over the images at every x, with its interval, and one number for the legend."""

    method: str
    mean: np.ndarray
    low: np.ndarray
    high: np.ndarray
    value: float


class Model(NamedTuple):
    """What figures show of one model: curves by kind, similarity by measure, (mean, low, high) by metric and method."""

    label: str
    fractions: np.ndarray
    curves: Mapping[str, Sequence[Line]]
    layers: Sequence[str]
    similarity: Mapping[str, Sequence[Line]]
    points: Mapping[str, Mapping[str, tuple[float, float, float]]]


def looks(models: Sequence[Model]) -> dict[str, dict[str, Any]]:
    """Colour and dash of every method, the same in all panels; the controls are grey and black."""
    methods = dict.fromkeys(line.method for model in models for line in model.curves["deletion"])
    own = [method for method in methods if method not in CONTROLS]
    ranges: dict[str, dict[str, Any]] = {
        method: {"color": COLOURS[i % 6], "ls": DASHES[i // 6 % 2]} for i, method in enumerate(own)
    }
    return ranges | {
        "random": {"color": style.GREY, "ls": (0, (3, 1.5))},
        "edges": {"color": style.BLACK, "ls": (0, (1, 1))},
        UNTRAINED: {"color": "0.35", "ls": (0, (4, 1, 1, 1))},
    }


def draw_line(ax: "Axes", x: np.ndarray, line: Line, look: Mapping[str, Any], **more: Any) -> None:
    """The mean with its band."""
    ax.fill_between(x, line.low, line.high, color=look["color"], alpha=0.13, lw=0)
    ax.plot(x, line.mean, **look, **more)


def draw_curves(models: Sequence[Model], *, note: str, ax: "Axes | None" = None) -> "Figure":
    """A row for each model, deletion left, insertion right; on given axes the first model's deletion."""
    with style.paper_style():
        look = looks(models)
        if ax is not None:
            _draw_panel(ax, models[0], "deletion", look)
            return style.figure_of(ax)
        axes = style.panels(len(models), 2, height=0.35 + 2.1 * len(models), sharex=True, sharey=True)
        for row, model in enumerate(models):
            for column, kind in enumerate(PANELS):
                _draw_panel(axes[2 * row + column], model, kind, look)
            axes[2 * row].set_ylabel(f"{model.label}\nprobability of the class")
        for column, (title, label, _) in enumerate(PANELS.values()):
            axes[column].set_title(title, loc="left")
            axes[2 * (len(models) - 1) + column].set_xlabel(label)
        style.write_note(axes[0], note)
        return style.figure_of(axes[0])


def _draw_panel(ax: "Axes", model: Model, kind: str, look: Mapping[str, Mapping[str, Any]]) -> None:
    """One model's curves; the legend in the order of their areas, best first."""
    ranked = sorted(model.curves[kind], key=lambda line: line.value, reverse=kind == "insertion")
    for line in ranked:
        draw_line(ax, model.fractions, line, look[line.method], label=f"{line.method} {line.value:.3f}")
    ax.set(xlim=(0, 1), ylim=(0, None))
    ax.legend(
        loc="center left", bbox_to_anchor=(1, 0.5), title=PANELS[kind][2], title_fontsize=style.points(7),
        handlelength=1.6,
        labelspacing=0.35, handletextpad=0.5, borderaxespad=0.3, alignment="left",
    )  # fmt: skip


def draw_scores(models: Sequence[Model], *, page: str = "") -> "Figure":
    """Areas and infidelity of every method with 95 % intervals, a mark for each model; the random map as a line."""
    methods = list(dict.fromkeys(line.method for model in models for line in model.curves["deletion"]))
    methods = [*(name for name in methods if name not in CONTROLS), *CONTROLS]
    with style.paper_style():
        height = 1.05 + len(methods) * (0.1 + 0.11 * len(models)) + 0.14 * len(models)
        offsets = 0.6 / len(models) * (np.arange(len(models)) - (len(models) - 1) / 2)
        marks = _marks(models)
        axes = style.panels(1, len(SCORES), height=height, sharey=True)
        for ax, (metric, label) in zip(axes, SCORES.items(), strict=True):
            for model, offset, mark in zip(models, offsets, marks, strict=True):
                _draw_points(ax, model, metric, methods, offset, mark)
            ax.set_xlabel(label)
            ax.grid(axis="x", lw=0.3, color="0.88")
            ax.set_axisbelow(True)
        axes[0].set_yticks(range(len(methods)), methods)
        axes[0].set_ylim(len(methods) - 0.4, -0.6)
        figure = style.figure_of(axes[0])
        figure.legend(*axes[0].get_legend_handles_labels(), loc="outside upper left", ncols=3, handletextpad=0.3)
        style.write_note(axes[0], f"Means with 95 % bootstrap intervals. Dashed: the random map. {page}")
        return figure


def _draw_points(
    ax: "Axes", model: Model, metric: str, methods: Sequence[str], offset: float, mark: tuple[str, str]
) -> None:
    """One model's values of a metric, and its random map's as a dashed line."""
    colour, marker = mark
    there = [(y, model.points[metric][name]) for y, name in enumerate(methods) if name in model.points[metric]]
    ys = np.array([y for y, _ in there]) + offset
    mean, low, high = np.array([point for _, point in there], dtype=float).T
    ax.errorbar(
        mean, ys, xerr=np.nan_to_num(np.stack([mean - low, high - mean])), fmt=marker, color=colour, ms=3.2,
        elinewidth=0.8, label=model.label,
    )  # fmt: skip
    ax.axvline(model.points[metric]["random"][0], color=colour, lw=0.6, ls=(0, (3, 2)), zorder=0)


def _marks(models: Sequence[Model]) -> list[tuple[str, str]]:
    """Colour and marker by the kind of layer; by place where kinds repeat."""
    kinds = [style.look_of(model.label) for model in models]
    if len(set(kinds)) == len(kinds):
        return kinds
    return [(style.CYCLE[position % 7], "os^vDPX"[position % 7]) for position in range(len(models))]
