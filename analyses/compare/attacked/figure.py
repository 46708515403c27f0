"""Figures of explanations under attack: curves against ε, and one image's map as ε grows."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from scs_eval.analyses.plotting import colour, style
from scs_eval.analyses.plotting.image_grid import SHOWN, Grid, PictureColumn
from scs_eval.analyses.plotting.lines import LineStyles, shade

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from scs_eval.analyses.compare.attacked.result import AttackedResult

PANELS = {
    "localisation": "localisation on attacked grids",
    "similarity": "likeness to the clean map (Spearman)",
}


def draw_curves(results: "Sequence[AttackedResult]", ax: "Axes | None" = None) -> "Figure":
    """Localisation and likeness against ε with 95 % bands; on given axes localisation alone."""
    with style.paper_style():
        kinds = list(PANELS) if results[0].localisation.shape[1] else ["similarity"]
        axes = [ax] if ax is not None else style.panels(1, len(kinds), height=2.9 + 0.14 * len(results))
        for panel, kind in zip(axes, kinds, strict=False):
            _panel(panel, results, kind)
        _legend(axes[0], results)
        return style.figure_of(axes[0])


def _panel(ax: "Axes", results: "Sequence[AttackedResult]", kind: str) -> None:
    styles = LineStyles()
    for result in results:
        tint, marker, dash = styles.next_for(result.label)
        curve, x = result.curve(kind), 255 * result.eps
        ax.fill_between(x, *curve[["low", "high"]].to_numpy().T, color=tint, alpha=shade(len(results)), lw=0)
        ax.plot(x, curve["mean"], ls=dash, marker=marker, ms=3.5, color=tint, label=result.label)
    if kind == "localisation" and results[0].floor:
        ax.axhline(results[0].floor, color=style.GREY, lw=0.7, ls=":")
        ax.annotate(
            "chance", (0.02, results[0].floor), (0, -8), xycoords=ax.get_yaxis_transform(), textcoords="offset points",
            fontsize=style.points(6.5), color=style.GREY,
        )  # fmt: skip
    ax.set(xlim=(0, None), ylim=(min(0.0, ax.get_ylim()[0]), 1.02 if kind == "similarity" else None))
    ax.grid(lw=0.3, color="0.88")
    ax.set_axisbelow(True)
    ax.set_xlabel("ε × 255 (L∞)")
    ax.set_title(PANELS[kind], loc="left")


def _legend(ax: "Axes", results: "Sequence[AttackedResult]") -> None:
    handles, names = ax.get_legend_handles_labels()
    note = f"{results[0].method}, {results[0].right.shape[1]} images that every model has right when clean, 95 % bands"
    style.figure_of(ax).legend(
        handles, names, loc="outside lower center", ncols=2, title=style.note(note), title_fontsize=style.points(6.5)
    )


def draw_maps(results: "Sequence[AttackedResult]", ax: "Axes | None" = None) -> "Figure":
    """A row for each model: the first image, and the map of its class at every ε; ✗ where the model is fooled."""
    first = results[0]
    columns = [
        PictureColumn(title="image", pictures=np.stack([result.images[0].transpose(1, 2, 0) for result in results]))
    ]
    for index, eps in enumerate(first.eps):
        marks = ["✓ right" if result.right[index, 0] else "✗ fooled" for result in results]
        maps = colour.signed(np.stack([result.maps[index] for result in results])) if _same_size(results) else None
        pictures = maps if maps is not None else np.stack([_at(result, index, first) for result in results])
        columns.append(
            PictureColumn(title="clean" if eps == 0 else f"ε = {255 * eps:.3g}/255", pictures=pictures, captions=marks)
        )
    note = f"{first.method} of the true class ({first.classes[first.labels[0]]}). Each map has its own scale."
    return Grid(columns=columns, texts=[result.label for result in results], note=note).draw(ax)


def map_pages(results: "Sequence[AttackedResult]") -> "dict[str, Figure]":
    """All models, as many to a page as a grid has rows: maps, maps-2 …"""
    pages = [results[start : start + SHOWN] for start in range(0, len(results), SHOWN)]
    return {"maps" + (f"-{i}" if i > 1 else ""): draw_maps(page) for i, page in enumerate(pages, start=1)}


def _same_size(results: "Sequence[AttackedResult]") -> bool:
    return len({result.maps.shape[1:] for result in results}) == 1


def _at(result: "AttackedResult", index: int, like: "AttackedResult") -> np.ndarray:
    """A map in the size of another model's, by the nearest pixel."""
    height, width = like.maps.shape[1:]
    rows = np.arange(height) * result.maps.shape[1] // height
    columns = np.arange(width) * result.maps.shape[2] // width
    return colour.signed(result.maps[index][None])[0][rows][:, columns]
