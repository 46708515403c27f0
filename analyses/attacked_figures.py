"""Figures of explanations under attack: curves against ε, and one image's map as ε grows."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from scs_eval.analyses import colour, style
from scs_eval.analyses.grid import SHOWN, Column, Grid
from scs_eval.analyses.robustness_figures import DASHES

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from scs_eval.analyses.attacked_explanations import AttackedResult

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
    used: dict[str, int] = {}
    for result in results:
        tint, marker = style.look_of(result.label)
        dash = DASHES[used.setdefault(tint, 0) % len(DASHES)]
        used[tint] += 1
        curve, x = result.curve(kind), 255 * result.eps
        ax.fill_between(x, curve["low"].to_numpy(), curve["high"].to_numpy(), color=tint, alpha=0.14, lw=0)
        ax.plot(x, curve["mean"], ls=dash, marker=marker, ms=3.5, color=tint, label=result.label)
    if kind == "localisation" and results[0].floor:
        ax.axhline(results[0].floor, color=style.GREY, lw=0.7, ls=":")
        ax.annotate(
            "chance", (0.02, results[0].floor), (0, -8), xycoords=ax.get_yaxis_transform(), textcoords="offset points",
            fontsize=6.5, color=style.GREY,
        )  # fmt: skip
    ax.set(xlim=(0, None), ylim=(min(0.0, ax.get_ylim()[0]), 1.02 if kind == "similarity" else None))
    ax.grid(lw=0.3, color="0.88")
    ax.set_axisbelow(True)
    ax.set_xlabel("ε × 255 (L∞)")
    ax.set_title(PANELS[kind], loc="left")


def _legend(ax: "Axes", results: "Sequence[AttackedResult]") -> None:
    handles, names = ax.get_legend_handles_labels()
    note = f"{results[0].method}, {results[0].right.shape[1]} images that every model has right when clean, 95 % bands"
    style.figure_of(ax).legend(handles, names, loc="outside lower center", ncols=2, title=note, title_fontsize=6.5)


def draw_maps(results: "Sequence[AttackedResult]", ax: "Axes | None" = None) -> "Figure":
    """A row for each model: the first image, and the map of its class at every ε; ✗ where the model is fooled."""
    first = results[0]
    columns = [Column(title="image", pictures=np.stack([one.images[0].transpose(1, 2, 0) for one in results]))]
    for place, eps in enumerate(first.eps):
        marks = ["✓ right" if one.right[place, 0] else "✗ fooled" for one in results]
        maps = colour.signed(np.stack([one.maps[place] for one in results])) if _same_size(results) else None
        pictures = maps if maps is not None else np.stack([_at(one, place, first) for one in results])
        columns.append(
            Column(title="clean" if eps == 0 else f"ε = {255 * eps:.3g}/255", pictures=pictures, captions=marks)
        )
    note = f"{first.method} of the true class ({first.classes[first.labels[0]]}). Each map has its own scale."
    return Grid(columns=columns, texts=[one.label for one in results], note=note).draw(ax)


def map_pages(results: "Sequence[AttackedResult]") -> "dict[str, Figure]":
    """All models, as many to a page as a grid has rows: maps, maps-2 …"""
    pages = [results[start : start + SHOWN] for start in range(0, len(results), SHOWN)]
    return {"maps" + (f"-{i}" if i > 1 else ""): draw_maps(page) for i, page in enumerate(pages, start=1)}


def _same_size(results: "Sequence[AttackedResult]") -> bool:
    return len({one.maps.shape[1:] for one in results}) == 1


def _at(one: "AttackedResult", place: int, like: "AttackedResult") -> np.ndarray:
    """A map in the size of another model's, by the nearest pixel."""
    height, width = like.maps.shape[1:]
    rows = np.arange(height) * one.maps.shape[1] // height
    columns = np.arange(width) * one.maps.shape[2] // width
    return colour.signed(one.maps[place][None])[0][rows][:, columns]
