"""Features in rows, the images that activate them most in columns, and below each what its pixels add (Fig. 12)."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from scs_eval.analyses.plotting import colour, style
from scs_eval.analyses.plotting.image_grid import GAP, LINE, foot, foot_height, inset, split_name, wrapped_note

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from scs_eval.analyses.contributions.neurons.result import NeuronsResult

PER_PAGE = 4  # features
CELL, LABEL, STEP = 0.71, 0.98, 0.12  # inches: a picture, the column of names, between features
SMALLEST, FAINT = 8, 0.03  # a cut-out: pixels at least; the share of the largest weight that counts as seen


def draw_features(wanted: Sequence[tuple["NeuronsResult", int]], ax: "Axes | None" = None) -> "Figure":
    """Features of results, each given by its position, on the given axes or on a new figure of the size they need."""
    several = len({member.label for member, _ in wanted}) > 1
    columns = max(member.indices.shape[1] for member, _ in wanted)
    row_height = 2 * (CELL + LINE) + GAP / 2 + STEP
    signed = not all(member.coloured for member, _ in wanted)
    width = max(LABEL + columns * (CELL + GAP), 4.0)
    note = wrapped_note(style.note(_note(wanted)), width, signed=signed)
    head = 0.05 if several else 0.24
    below = head + row_height * len(wanted)
    height = below + foot_height(note, signed=signed)
    with style.drawing(ax, width=width, height=height, rigid=True) as ax:
        ax.set_axis_off()
        ax.set(xlim=(0, width), ylim=(height, 0))  # inches, from the top left
        if not several:
            ax.text(0, 0.02, _heading(wanted[0][0]), va="top", fontsize=style.points(8))
        for row, (result, position) in enumerate(wanted):
            _feature(ax, result, position, top=head + row * row_height, several=several)
        foot(ax, below, note, signed=signed)
        for written in ax.texts:
            written.set_in_layout(False)  # there is room for it: the layout must not squeeze the pictures
        return style.figure_of(ax)


def _feature(ax: "Axes", result: "NeuronsResult", position: int, *, top: float, several: bool) -> None:
    ax.text(
        0, top + 0.02, _name(result, position, several=several), va="top", fontsize=style.points(7), linespacing=1.3
    )
    corners, side = windows(result.rows[position])
    pictures = _pictures(result, position, corners, side)
    table = result.table()
    table = table[table["feature"] == result.features[position]].reset_index(drop=True)
    for column, cell in table.iterrows():
        left = LABEL + int(column) * (CELL + GAP)
        image = inset(ax, left, top, CELL, CELL)
        image.imshow(np.moveaxis(result.images[position, column], 0, -1), interpolation="nearest", aspect="auto")
        _square(image, corners[column], side, result.images.shape[-2:])
        below = inset(ax, left, top + CELL + LINE, CELL, CELL)
        below.imshow(pictures[column].clip(0, 1), interpolation="nearest", aspect="auto")
        for item in (image, below):
            item.set(xticks=[], yticks=[])
        shade, mark = ("black", "") if cell["complete"] else (style.RED, " !")
        for text, down in ((_short(cell["class"]), CELL), (f"{cell['activation']:.3g}{mark}", 2 * CELL + LINE)):
            ax.text(
                left + CELL / 2,
                top + down + 0.015,
                text,
                ha="center",
                va="top",
                fontsize=style.points(6.5),
                color=shade,
            )


def _short(name: str, longest: int = 13) -> str:
    return name if len(name) <= longest else f"{name[: longest - 1]}…"


def windows(rows: np.ndarray) -> tuple[np.ndarray, int]:
    """Squares around what a neuron sees, where W(x) (T, C, H, W) is not faint: upper left corners (T, 2) and one side.

    One side for all, at least 8 pixels; the whole image for a neuron that sees nearly all of it.
    """
    strengths = np.abs(rows).max(1)
    seen = strengths > FAINT * strengths.max((1, 2), keepdims=True)
    side = min(
        max(SMALLEST, *(max(_extent(result.any(1))[1], _extent(result.any(0))[1]) for result in seen)), *seen.shape[1:]
    )
    corners = []
    for result in seen:
        starts = []
        for line in (result.any(1), result.any(0)):
            first, extent = _extent(line)
            starts.append(int(np.clip(first - (side - extent) // 2, 0, len(line) - side)))
        corners.append(starts)
    return np.array(corners), int(side)


def _extent(line: np.ndarray) -> tuple[int, int]:
    """The first true element and how far it is to the last one, inclusive; all if none is."""
    true = np.flatnonzero(line)
    return (int(true[0]), int(true[-1] - true[0] + 1)) if len(true) else (0, len(line))


def _pictures(result: "NeuronsResult", position: int, corners: np.ndarray, side: int) -> np.ndarray:
    """The cut-outs (T, side, side, 3): W(x) as colours, or the signed contributions at the scale of the cut-out."""
    whole = colour.on_white(result.rgba()[position]) if result.coloured else result.maps[position]
    cut = np.stack([item[y : y + side, x : x + side] for item, (y, x) in zip(whole, corners, strict=True)])
    return cut if result.coloured else colour.signed(cut)


def _square(ax: "Axes", corner: np.ndarray, side: int, size: tuple[int, ...]) -> None:
    """Where the cut-out is, unless it is everything."""
    from matplotlib.patches import Rectangle

    if side < min(size):
        y, x = corner - 0.5
        for colour_, width in (("white", 2.0), (style.BLUE, 1.1)):
            ax.add_patch(Rectangle((x, y), side, side, fill=False, edgecolor=colour_, linewidth=width))


def _heading(result: "NeuronsResult") -> str:
    top = result.indices.shape[1]
    return f"{result.label}, {result.layer}: the {top} of {result.searched:,} images that activate it most"


def _name(result: "NeuronsResult", position: int, *, several: bool) -> str:
    """The feature, of whom if there are several, and of a direction where it comes from."""
    lines = [*split_name(result.label), result.layer] if several else []
    lines.append(result.features[position])
    if result.sources[position] >= 0:
        name = result.classes[result.source_classes[position]]
        lines.append(f"adds {result.source_contributions[position]:.2g} to")
        lines += [f"{_short(name)} ({result.source_logits[position]:.2f})", f"in image {result.sources[position]}"]
    return "\n".join(lines)


def _note(wanted: Sequence[tuple["NeuronsResult", int]]) -> str:
    result = wanted[0][0]
    signed = f"what its pixels add: W(x)⊙x summed over channels, full colour at the {colour.SCALE:g}th percentile"
    what = f"W(x) as colours ({result.picture})" if result.coloured else signed
    note = f"Below each image {what}. Square: what is shown enlarged. Numbers: activation."
    incomplete = any(not item.complete[position].all() for item, position in wanted)
    return f"{note} !: more than 0.1 % of it is left unexplained." if incomplete else note
