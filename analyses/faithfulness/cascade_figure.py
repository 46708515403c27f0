"""Figures of the cascade: similarity to the original map, and the maps themselves, as the network forgets."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from scs_eval.analyses.attribution.similarity import MEASURES
from scs_eval.analyses.faithfulness.figure import Model, draw_line, looks
from scs_eval.analyses.plotting import style
from scs_eval.analyses.plotting.map_columns import COLOURS, EMPTY, say_empty, unit_scaled

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

TITLES = ("Spearman of |map|", "Spearman of the signed map", "SSIM of |map|")  # of MEASURES
NOTE = (
    "Similarity of the map to the trained network's, mean with 95 % bootstrap band. From left to right ever more "
    "layers are re-initialised, from the head down. The edge map never looks at the network: a failing method stays up "
    "there. The random map is new each time: nothing is left of the original."
)
MAPS_NOTE = "Largest |value| of the channels; each map has its own scale, from 0 to its 99th percentile."
LEAST = -1.05  # where the axis ends: no similarity is below −1
COLUMNS = 9  # of maps that fit on a page
GAP, FIRST, HEAD = 0.06, 1.3, 0.6  # in cells: between them, where maps begin, room for the title and names


def draw_cascade(models: Sequence[Model], *, page: str = "") -> "Figure":
    """A row for each model, a column for each measure; names of the layers below."""
    with style.paper_style():
        look = looks(models)
        lines = [line for model in models for item in model.similarity.values() for line in item]
        low = min(-0.1, *(float(np.nan_to_num([line.mean, line.low]).min()) - 0.05 for line in lines))
        low = max(low, LEAST)  # an interval of few images can end beyond what a correlation can be
        axes = style.panels(len(models), 3, width=style.WIDTH + 0.9, height=0.4 + 2.25 * len(models), sharey=True)
        for row, model in enumerate(models):
            for ax, measure in zip(axes[3 * row :], MEASURES, strict=False):
                _draw_panel(ax, model, measure, look, low)
            axes[3 * row].set_ylabel(f"{model.label}\nsimilarity to the original")
        for ax, title in zip(axes, TITLES, strict=False):
            ax.set_title(title, loc="left")
        style.write_note(axes[0], f"{NOTE} {page}")
        style.figure_of(axes[0]).draw_without_rendering()
        for position, ax in enumerate(axes):  # when everything else has its place
            here = models[position // 3].similarity[MEASURES[position % 3]]
            ends = [(len(line.mean), line.mean[-1], line.method, look[line.method]["color"]) for line in here]
            style.label_ends(ax, ends, size=6.5, settled=True)
        return style.figure_of(axes[0])


def _draw_panel(ax: "Axes", model: Model, measure: str, look: Mapping[str, Mapping[str, Any]], low: float) -> None:
    """Lines from 1, which is the similarity of a map to itself."""
    x = np.arange(len(model.layers) + 1)
    for line in model.similarity[measure]:
        mean, low_end, high = (np.concatenate([[1.0], part]) for part in (line.mean, line.low, line.high))
        whole = line._replace(mean=mean, low=low_end, high=high)
        draw_line(ax, x, whole, look[line.method], marker="o", ms=2)
    ax.axhline(0, color="0.8", lw=0.5, zorder=0)
    ax.set(xlim=(-0.15, len(x) - 0.9), ylim=(low, 1.05))
    every = max(1, len(x) // 20)
    names = ["trained", *map(short, model.layers)]
    ax.set_xticks(
        x[::every], names[::every], rotation=90 if len(x) > 12 else 45, ha="center" if len(x) > 12 else "right"
    )
    ax.tick_params(axis="x", labelsize=style.points(6.5), pad=1)


def short(layer: str) -> str:
    """A layer's name without the part that all convolutions share."""
    return layer.removesuffix(".layer")


def draw_maps_of_cascade(
    image: np.ndarray, maps: np.ndarray, methods: Sequence[str], layers: Sequence[str], *, title: str
) -> "Figure":
    """An image (3, H, W) and its maps (methods, 1 + layers, H, W): a row for each method, the network forgetting."""
    shown = np.unique(np.linspace(0, len(layers), min(COLUMNS, len(layers) + 1)).round().astype(int))
    names = ["trained", *(f"+ {short(layer)}" for layer in layers)]
    cell = min(0.8, style.WIDTH / (len(shown) + FIRST) / (1 + GAP))
    wide, high = (len(shown) + FIRST) * (1 + GAP), len(methods) * (1 + GAP) + HEAD
    with style.drawing(width=max(cell * wide + 0.1, 3.6), height=cell * high + 0.35, rigid=True) as ax:
        ax.text(0, 0.12 - HEAD, title, fontsize=style.points(8), va="top")
        _cell(ax, image.transpose(1, 2, 0), column=0, row=0, head="image")
        for row, method in enumerate(methods):
            ax.text(
                FIRST * (1 + GAP) - 0.08,
                row * (1 + GAP) + 0.5,
                method,
                rotation=90,
                ha="right",
                va="center",
                fontsize=style.points(7),
            )
            for column, depth in enumerate(shown):
                _cell(ax, maps[row, depth], column=column + FIRST, row=row, head="" if row else names[depth])
        ax.set(xlim=(0, wide), ylim=(high - HEAD, -HEAD), aspect="equal")
        ax.axis("off")
        for text in ax.texts:
            text.set_in_layout(False)  # there is room for it: the layout must not squeeze the pictures
        style.write_note(ax, MAPS_NOTE)
        return style.figure_of(ax)


def _cell(ax: "Axes", picture: np.ndarray, *, column: float, row: int, head: str = "") -> None:
    """An image (H, W, 3), or a map (H, W) in its own scale; a map without any value above 0 says so."""
    left, top = column * (1 + GAP), row * (1 + GAP)
    shown = picture if picture.ndim == 3 else unit_scaled(np.nan_to_num(picture))
    ax.imshow(shown, extent=(left, left + 1, top + 1, top), cmap=COLOURS, vmin=0, vmax=1, interpolation="nearest")
    ax.text(left + 0.5, top - 0.06, head, ha="center", va="bottom", fontsize=style.points(6.5))
    if not shown.any():
        say_empty(ax, left + 0.5, top + 0.5, "no map" if np.isnan(picture).any() else EMPTY)
