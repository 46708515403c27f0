"""Pictures in rows and columns on one axes: titles above, captions below, text beside, a signed colour bar."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from scs_eval.analyses.plotting import style
from scs_eval.analyses.plotting.colour import diverging
from scs_eval.analyses.plotting.map_columns import EMPTY

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

GAP, LINE, BAR = 0.06, 0.135, 1.5  # inches: between pictures, a line of text below them, the colour bar
NOTE_LINE = 0.118  # inches, a line of the note
SHOWN = 6  # rows of a figure; the table has all
MARK = style.RED


@dataclass(frozen=True, kw_only=True)
class PictureColumn:
    """N pictures (H, W, 3 or 4), of one size or not, under a title; a caption below each, if there are any.

    empty: which of them show a map that is 0 everywhere, and so would be blank.
    """

    title: str
    pictures: np.ndarray | Sequence[np.ndarray]
    captions: Sequence[str] = ()
    empty: Sequence[bool] = ()


@dataclass(frozen=True, kw_only=True)
class Grid:
    """Columns of pictures, a text beside each row, and a note below that says what the colours mean."""

    columns: Sequence[PictureColumn]
    note: str
    texts: Sequence[str] = ()
    marked: Sequence[bool] = field(default=())  # rows whose text is set in the colour of a warning
    most: int = SHOWN  # rows

    @property
    def rows(self) -> int:
        """How many rows are shown."""
        return min(self.most, len(self.columns[0].pictures))

    def draw(self, ax: "Axes | None" = None) -> "Figure":
        """Draw on the given axes, or on a new figure that is as large as the pictures need."""
        beside = 1.75 if self.texts else 0.0
        cell = float(np.clip((style.page_width() - beside) / len(self.columns) - GAP, 0.62, 1.12))
        head = LINE * max(column.title.count("\n") + 1 for column in self.columns) + 0.05
        step = cell + GAP + (LINE if any(column.captions for column in self.columns) else 0.0)
        width = max((cell + GAP) * len(self.columns) + beside, BAR + 1.8)
        note = wrapped_note(style.note(self.note), width)
        below = head + step * self.rows + 0.1
        height = below + foot_height(note)
        with style.drawing(ax, width=width, height=height, rigid=True) as ax:
            ax.set_axis_off()
            ax.set(xlim=(0, width), ylim=(height, 0))  # inches, from the top left
            for index, column in enumerate(self.columns):
                self._column(ax, column, left=index * (cell + GAP), head=head, cell=cell, step=step)
            for row, text in enumerate(self.texts[: self.rows]):
                self._text(ax, row, text, left=len(self.columns) * (cell + GAP) + 0.06, top=head + row * step)
            foot(ax, below, note)
            for written in ax.texts:
                written.set_in_layout(False)  # there is room for it: the layout must not squeeze the pictures
            return style.figure_of(ax)

    def _column(self, ax: "Axes", column: PictureColumn, *, left: float, head: float, cell: float, step: float) -> None:
        ax.text(left + cell / 2, head - 0.04, column.title, ha="center", va="bottom", fontsize=style.points(7.5))
        for row in range(self.rows):
            top = head + row * step
            frame = inset(ax, left, top, cell, cell)
            frame.imshow(column.pictures[row].clip(0, 1), interpolation="nearest", aspect="auto")
            frame.set(xticks=[], yticks=[])
            if len(column.empty) and column.empty[row]:
                _say_empty(ax, left + cell / 2, top + cell / 2)
            if column.captions:
                ax.text(
                    left + cell / 2,
                    top + cell + 0.02,
                    column.captions[row],
                    ha="center",
                    va="top",
                    fontsize=style.points(6),
                )

    def _text(self, ax: "Axes", row: int, text: str, *, left: float, top: float) -> None:
        marked = bool(self.marked) and self.marked[row]
        ax.text(
            left,
            top + 0.02,
            text,
            va="top",
            fontsize=style.points(7),
            color=MARK if marked else "black",
            linespacing=1.3,
        )


def empty_maps(maps: Sequence[np.ndarray] | np.ndarray) -> list[bool]:
    """Which of these maps (H, W) are 0 everywhere."""
    return [not values.any() for values in maps]


def _say_empty(ax: "Axes", x: float, y: float) -> None:
    ax.text(x, y, EMPTY, ha="center", va="center", fontsize=style.points(6), color=style.GREY, zorder=9)


def wrapped_note(note: str, width: float, *, signed: bool = True) -> str:
    """The note in lines that fit beside the colour bar, or under the pictures if there is none, in so many inches."""
    return "\n".join(style.wrapped(note, width - (BAR + 0.1 if signed else 0)))


def foot_height(note: str, *, signed: bool = True) -> float:
    """Inches that `foot` takes."""
    return max(0.3 if signed else 0.0, 0.08 + NOTE_LINE * style.scale() * (note.count("\n") + 1))


def foot(ax: "Axes", top: float, note: str, *, signed: bool = True) -> None:
    """The note; to its left, if signed maps are shown, their colour bar."""
    if signed:
        bar = inset(ax, 0.14, top + 0.02, BAR - 0.28, 0.09)
        bar.imshow(np.linspace(0, 1, 256)[None], cmap=diverging(), aspect="auto", extent=(-1, 1, 0, 1))
        bar.set(yticks=[], xticks=[-1, 0, 1], xticklabels=["against", "0", "for"])
        bar.tick_params(labelsize=style.points(6.5), length=2, width=0.5, pad=1.5)
    left = BAR + 0.1 if signed else 0.0
    ax.text(left, top, note, va="top", fontsize=style.points(6.5), color="0.25", linespacing=1.2)


def split_name(name: str, longest: int = 16) -> list[str]:
    """A long name on several lines, broken at spaces and after underscores."""
    words = [name] if len(name) <= longest else name.split(" ")
    lines: list[str] = []
    for first, *others in (word.split("_") for word in words):
        lines.append(first)
        for part in others:
            joined = f"{lines[-1]}_{part}"
            lines[-1:] = [joined] if len(joined) <= longest else [f"{lines[-1]}_", part]
    return lines


def inset(ax: "Axes", left: float, top: float, width: float, height: float) -> "Axes":
    """Framed axes at a place in inches from the top left."""
    right, bottom = ax.get_xlim()[1], ax.get_ylim()[0]
    frame = ax.inset_axes((left / right, 1 - (top + height) / bottom, width / right, height / bottom))
    for spine in frame.spines.values():
        spine.set(visible=True, linewidth=0.4, color="0.7")
    return frame
