"""A grid of pictures, images in the left column and maps of them in the others. One axes holds all of it."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from scs_eval.analyses.plotting import style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = "inferno"  # sequential, rises evenly in lightness: the same order in grey and for the colour-blind
PERCENTILE = 99
GAP, LINE = 0.06, 0.2  # between cells, and for a line of text under them, in cells
CELL, NARROWEST = 0.86, 2.4  # inches
LONGEST = 3  # rows of a figure with a single column of maps
EMPTY = "0 everywhere"


class MapColumn(NamedTuple):
    """One model's maps (k, H, W) with a title, what it predicted, and whether that was right, if that is known."""

    title: str
    maps: np.ndarray
    predictions: Sequence[str]
    right: Sequence[bool] | None


class _Strip(NamedTuple):
    """A column of pictures as it is drawn: images (H, W, 3) or scaled maps (H, W), and words below them."""

    title: str
    cells: Sequence[np.ndarray]
    words: Sequence[str]
    colours: Sequence[str]

    def part(self, rows: slice) -> "_Strip":
        return _Strip(self.title, self.cells[rows], self.words[rows], self.colours[rows])


def draw_maps(
    images: np.ndarray,
    names: Sequence[str],
    columns: Sequence[MapColumn],
    *,
    note: str,
    ax: "Axes | None" = None,
) -> "Figure":
    """Images (k, 3, H, W) with their true class below, and beside them each column's maps; `note` at the bottom.

    Many images beside a single column of maps are set in two halves, so that the figure is not a ribbon.
    """
    strips = [_image_strip(images, names), *map(_map_strip, columns)]
    if len(columns) == 1 and len(images) > LONGEST:
        half = -(-len(images) // 2)
        strips = [strip.part(rows) for rows in (slice(half), slice(half, None)) for strip in strips]
    wide, high = len(strips), len(strips[0].cells)
    titles = 0.17 * (1 + max(strip.title.count("\n") for strip in strips))
    width = max(CELL * wide * (1 + GAP), NARROWEST)
    lines = style.wrapped(style.note(note), width)
    height = CELL * high * (1 + LINE) + titles + 0.12 * len(lines) + 0.35
    with style.drawing(ax, width=width, height=height) as ax:
        for index, strip in enumerate(strips):
            _draw_strip(ax, index, strip)
        ax.set(xlim=(0, wide * (1 + GAP) - GAP), ylim=(high * (1 + LINE), 0), aspect="equal")
        ax.axis("off")
        _legend(ax, "\n".join(lines))
        return style.figure_of(ax)


def _image_strip(images: np.ndarray, names: Sequence[str]) -> _Strip:
    return _Strip("image", [image.transpose(1, 2, 0) for image in images], names, ["black"] * len(images))


def _map_strip(column: MapColumn) -> _Strip:
    words, colours = list(column.predictions), ["black"] * len(column.predictions)
    if column.right is not None:
        words = [f"{'✓' if ok else '✗'} {word}" for word, ok in zip(words, column.right, strict=True)]
        colours = ["black" if ok else style.RED for ok in column.right]
    return _Strip(column.title, [unit_scaled(values) for values in column.maps], words, colours)


def unit_scaled(values: np.ndarray) -> np.ndarray:
    """A map in [0, 1]: divided by its 99th percentile and cut there; by its maximum if the percentile is 0."""
    top = np.percentile(values, PERCENTILE) or values.max()
    return np.clip(values / top, 0, 1) if top > 0 else np.zeros_like(values)


def _draw_strip(ax: "Axes", index: int, strip: _Strip) -> None:
    left = index * (1 + GAP)
    ax.annotate(
        strip.title, (left + 0.5, 0), (0, 3), textcoords="offset points", ha="center", va="bottom",
        fontsize=style.points(7),
        annotation_clip=False,
    )  # fmt: skip
    for row, (cell, word, colour) in enumerate(zip(strip.cells, strip.words, strip.colours, strict=True)):
        top = row * (1 + LINE)
        extent = (left, left + 1, top + 1, top)
        ax.imshow(cell, extent=extent, cmap=COLOURS, vmin=0, vmax=1, interpolation="nearest")
        ax.text(
            left + 0.5, top + 1 + LINE * 0.45, word, ha="center", va="center", fontsize=style.points(6.5), color=colour
        )
        if cell.ndim == 2 and not cell.any():
            say_empty(ax, left + 0.5, top + 0.5)


def say_empty(ax: "Axes", x: float, y: float, words: str = EMPTY) -> None:
    """Words on a cell that would be black without them."""
    ax.text(x, y, words, ha="center", va="center", fontsize=style.points(6.5), color="white")


def _legend(ax: "Axes", note: str) -> None:
    """The colour scale and the note, below the grid."""
    from matplotlib.cm import ScalarMappable

    figure = style.figure_of(ax)
    bar = figure.colorbar(
        ScalarMappable(cmap=COLOURS), ax=ax, location="bottom", shrink=0.5, fraction=0.02, pad=0.01, aspect=25
    )
    bar.set_ticks([0, 1], labels=["0", f"{PERCENTILE}th percentile"])
    bar.ax.tick_params(labelsize=style.points(6.5), width=0.6, length=2)
    bar.outline.set_linewidth(0.4)
    bar.ax.set_xlabel(note, fontsize=style.points(6.5), loc="center")
