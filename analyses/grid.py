"""Pictures in rows and columns on one axes: titles above, captions below, text beside, a signed colour bar."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from scs_eval.analyses import style
from scs_eval.analyses.colour import diverging

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

GAP, LINE, FOOT, NOTE = 0.06, 0.135, 0.6, 3.0  # inches: between pictures, a line of text, below them, the note
SHOWN = 6  # rows of a figure; the table has all
MARK = style.RED


@dataclass(frozen=True, kw_only=True)
class Column:
    """Pictures (N, H, W, 3 or 4) under a title; a caption below each, if there are any."""

    title: str
    pictures: np.ndarray
    captions: Sequence[str] = ()


@dataclass(frozen=True, kw_only=True)
class Grid:
    """Columns of pictures, a text beside each row, and a note below that says what the colours mean."""

    columns: Sequence[Column]
    note: str
    texts: Sequence[str] = ()
    marked: Sequence[bool] = field(default=())  # rows whose text is set in the colour of a warning

    @property
    def rows(self) -> int:
        """How many rows are shown."""
        return min(SHOWN, len(self.columns[0].pictures))

    def draw(self, ax: "Axes | None" = None) -> "Figure":
        """Draw on the given axes, or on a new figure that is as large as the pictures need."""
        beside = 1.75 if self.texts else 0.0
        cell = float(np.clip((style.WIDTH - beside) / len(self.columns) - GAP, 0.62, 1.12))
        head = LINE * max(column.title.count("\n") + 1 for column in self.columns) + 0.05
        below = LINE if any(column.captions for column in self.columns) else 0.0
        width = max((cell + GAP) * len(self.columns) + beside, 2 * cell + GAP + NOTE)
        height = head + (cell + GAP + below) * self.rows + FOOT
        with style.drawing(ax, width=width, height=height) as ax:
            ax.set_axis_off()
            ax.set(xlim=(0, width), ylim=(height, 0))  # inches, from the top left
            for place, column in enumerate(self.columns):
                self._column(ax, column, left=place * (cell + GAP), head=head, cell=cell, step=cell + GAP + below)
            for row, text in enumerate(self.texts[: self.rows]):
                self._text(
                    ax, row, text, left=len(self.columns) * (cell + GAP) + 0.06, top=head + row * (cell + GAP + below)
                )
            self._foot(ax, height - FOOT + 0.12, 2 * cell + GAP)
            for written in ax.texts:
                written.set_in_layout(False)  # there is room for it: the layout must not squeeze the pictures
            return style.figure_of(ax)

    def _column(self, ax: "Axes", column: Column, *, left: float, head: float, cell: float, step: float) -> None:
        ax.text(left + cell / 2, head - 0.04, column.title, ha="center", va="bottom", fontsize=7.5)
        for row in range(self.rows):
            top = head + row * step
            inset = _inset(ax, left, top, cell, cell)
            inset.imshow(column.pictures[row].clip(0, 1), interpolation="nearest", aspect="auto")
            inset.set(xticks=[], yticks=[])
            if column.captions:
                ax.text(left + cell / 2, top + cell + 0.02, column.captions[row], ha="center", va="top", fontsize=6)

    def _text(self, ax: "Axes", row: int, text: str, *, left: float, top: float) -> None:
        marked = bool(self.marked) and self.marked[row]
        ax.text(left, top + 0.02, text, va="top", fontsize=7, color=MARK if marked else "black", linespacing=1.3)

    def _foot(self, ax: "Axes", top: float, width: float) -> None:
        """The colour bar, and the note to its right."""
        bar = _inset(ax, 0.12, top, width - 0.24, 0.1)
        bar.imshow(np.linspace(0, 1, 256)[None], cmap=diverging(), aspect="auto", extent=(-1, 1, 0, 1))
        bar.set(yticks=[], xticks=[-1, 0, 1], xticklabels=["against", "0", "for"])
        bar.tick_params(labelsize=6.5, length=2, width=0.5, pad=1.5)
        ax.text(width + 0.06, top - 0.06, self.note, va="top", fontsize=6.5, color="0.25", linespacing=1.25)


def _inset(ax: "Axes", left: float, top: float, width: float, height: float) -> "Axes":
    """Framed axes at a place in inches from the top left."""
    right, bottom = ax.get_xlim()[1], ax.get_ylim()[0]
    inset = ax.inset_axes((left / right, 1 - (top + height) / bottom, width / right, height / bottom))
    for spine in inset.spines.values():
        spine.set(visible=True, linewidth=0.4, color="0.7")
    return inset
