"""How figures look: one size, one typeface, colours that a colour-blind reader and a grey printer can tell apart.

matplotlib's rcParams come first: what a user has set there (a font, its size, a line width) is not touched.
"""

import re
import textwrap
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from scs_eval.analyses.core.page import current_page, page

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.transforms import Transform

M = TypeVar("M")
WIDTH = 6.3  # inches: the text width of an A4 page, so that 8 pt in the figure is 8 pt in print

# Okabe and Ito (2008), "Color Universal Design".
BLACK, ORANGE, SKY, GREEN, YELLOW, BLUE, RED, PINK = (
    "#000000", "#E69F00", "#56B4E9", "#009E73", "#F0E442", "#0072B2", "#D55E00", "#CC79A7",
)  # fmt: skip
GREY = "#767676"
CYCLE = (BLUE, RED, GREEN, PINK, ORANGE, SKY, BLACK)

Colour = str | tuple[float, float, float, float]
End = tuple[float, float, str, Colour]  # where a curve ends (x, y), its name, its colour

# A kind of layer looks the same in every figure; the marker still tells it apart without colour.
LAYERS = {
    "conv": (BLACK, "s"),
    "scs": (BLUE, "o"),
    "ssdp": (RED, "^"),
    "cos": (GREEN, "v"),
    "bcos": (PINK, "P"),
}
OTHER = (GREY, "X")
UNLISTED = "_series "

CAPTION = 6.5  # points of a caption, beside TEXT
SURE = 0.94  # of the width that is filled: some lines have more wide letters than others
TEXT = 8  # points of the text, unless rcParams say something else than matplotlib itself
_RC: dict[Any, Any] = {
    "font.size": TEXT,
    "axes.titlesize": "medium",
    "axes.labelsize": "medium",
    "legend.fontsize": 7,
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "lines.linewidth": 1.2,
    "lines.markersize": 4,
    "legend.frameon": False,
    "text.parse_math": False,  # labels and class names are the user's: a $ in them is a $
}


def layer_of(name: str) -> str | None:
    """The kind of layer that a zoo name names (`rohrer100k_scs@3` → scs), or None for any other label."""
    return next((part for part in re.split("[_@]", name.lower()) if part in LAYERS), None)


def look_of(name: str) -> tuple[str, str]:
    """Colour and marker of a model, by its kind of layer."""
    return LAYERS.get(layer_of(name) or "", OTHER)


def unlisted(name: str) -> str:
    """A label that a legend leaves out; a page still names the series by it."""
    return f"{UNLISTED}{name}"


def depths(count: int) -> list[tuple[float, float, float, float]]:
    """Colours for things in an order, such as layers by depth: viridis without its palest end."""
    from matplotlib import colormaps

    return [colormaps["viridis"](depth) for depth in np.linspace(0, 0.8, count)]


@contextmanager
def drawing(
    ax: "Axes | None" = None, *, width: float = WIDTH, height: float = 3.0, rigid: bool = False
) -> Iterator["Axes"]:
    """Axes in the house style: those given, or the only ones of a new figure.

    rigid: what is drawn is laid out in inches of this width and height, so that another size keeps its proportions.
    """
    with paper_style():
        if rigid and (size := current_page().size) is not None:
            share = min(size[0] / width, size[1] / height)
            with page(size=(share * width, share * height)):
                yield panels(1, 1, height=height)[0] if ax is None else ax
        else:
            yield panels(1, 1, width=width, height=height)[0] if ax is None else ax


@contextmanager
def paper_style() -> Iterator[None]:
    """matplotlib's settings for print where the user has none of their own, put back on leaving."""
    import matplotlib

    own = {key: value for key, value in _RC.items() if matplotlib.rcParams[key] == matplotlib.rcParamsDefault[key]}
    if "legend.fontsize" in own:
        own["legend.fontsize"] = points(7)
    with matplotlib.rc_context(own):
        yield


def scale() -> float:
    """The size of text beside ours: 1 unless rcParams have a `font.size` of the user's."""
    import matplotlib

    size = matplotlib.rcParams["font.size"]
    return 1.0 if size == matplotlib.rcParamsDefault["font.size"] else float(size) / TEXT


def points(size: float) -> float:
    """Points of a text that has this size where the text around it has 8."""
    return size * scale()


def note(text: str) -> str:
    """A caption, or nothing where none is wanted."""
    return text if current_page().caption else ""


def wrapped(text: str, inches: float, size: float = CAPTION) -> list[str]:
    """A text of that size in lines that fit, by the width that its letters have on average in the user's font."""
    if not text.strip():
        return []
    line = text.replace("\n", " ")
    width = text_width(line, size)
    letters = max(8, int(SURE * inches * len(line) / width))
    return [part for line in text.split("\n") for part in textwrap.wrap(line, letters)]


def text_width(line: str, size: float) -> float:
    """Inches of a line of that size in the user's font."""
    from matplotlib.font_manager import FontProperties
    from matplotlib.textpath import text_to_path

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of letters that the font does not have
        width, _, _ = text_to_path.get_text_width_height_descent(line, FontProperties(size=points(size)), False)
    return float(width / 72)


def write_note(ax: "Axes", text: str) -> None:
    """A caption under the whole figure, if one is wanted."""
    figure = figure_of(ax)
    lines = wrapped(note(text), figure.get_figwidth() - 0.1)
    if lines:
        figure.supxlabel("\n".join(lines), fontsize=points(6.5), color="0.25", x=0.01, ha="left")


def pages(members: Sequence[M], most: int, noun: str = "Models") -> list[tuple[str, Sequence[M], str]]:
    """A long list in parts of at most `most`, as even as can be: a suffix for each figure's name, its part, words."""
    count = -(-len(members) // most)
    ends = [round(i * len(members) / count) for i in range(count + 1)]
    parts = []
    for i, (start, stop) in enumerate(pairwise(ends), start=1):
        words = "" if count == 1 else f"{noun} {start + 1} to {stop} of {len(members)} (page {i} of {count})."
        parts.append((f"-{i}" if i > 1 else "", members[start:stop], words))
    return parts


def format_number(value: float, form: str = ".2f") -> str:
    """With a minus sign as it is printed; what rounds to 0 has none."""
    text = format(value, form)
    return text.replace("-", "−") if float(text) else text.lstrip("-")


def page_width() -> float:
    """Inches that a figure may be wide."""
    size = current_page().size
    return WIDTH if size is None else size[0]


def panels(
    rows: int, columns: int, *, width: float = WIDTH, height: float, sharex: bool = False, sharey: bool = False
) -> list["Axes"]:
    """The axes of a new figure, row by row; call it inside `paper_style`. The page's size, if it has one, comes first.

    The figure is closed at once: pyplot forgets it, so Jupyter shows it once (as the value of the cell) and a loop over
    many results piles up no open figures. It can still be drawn on, shown and saved.
    """
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(
        rows,
        columns,
        figsize=current_page().size or (width, height),
        layout="constrained",
        sharex=sharex,
        sharey=sharey,
        squeeze=False,
    )
    plt.close(figure)
    for ax in axes.flat:
        # Ticks are made when drawn, after the style has been put back: what they need is told to them now.
        ax.tick_params(labelsize=points(7), width=0.6, length=2.5)
    return list(axes.flat)


def figure_of(ax: "Axes") -> "Figure":
    """The figure that the axes belong to, also from within a subfigure."""
    from matplotlib.figure import Figure

    figure = ax.figure
    while not isinstance(figure, Figure):
        figure = figure.figure
    return figure


def legend_below(ax: "Axes", text: str, *, ncols: int) -> "Figure":
    """The figure of the axes, with their legend outside below it, under a note in small print.

    Its samples are long enough for a dash to be told from another.
    """
    handles, names = ax.get_legend_handles_labels()
    figure = figure_of(ax)
    figure.legend(
        handles, names, loc="outside lower center", ncols=ncols, handlelength=4, title=note(text),
        title_fontsize=points(6.5),
    )  # fmt: skip
    return figure


def spread(positions: Sequence[float], gap: float, low: float, high: float) -> np.ndarray:
    """Move positions as little as needed so that neighbours are at least `gap` apart and inside [low, high].

    Overlapping runs are merged and centred on their mean (the pool-adjacent-violators algorithm, which gives the least
    squares solution). If there is no room for all, they are spaced evenly.
    """
    from scipy.optimize import isotonic_regression

    wanted = np.asarray(positions, dtype=float)
    order = np.argsort(wanted, kind="stable")
    offsets = np.arange(len(wanted)) * gap
    if len(wanted) and offsets[-1] > high - low:
        placed = np.linspace(low, high, len(wanted))
    else:
        top = high - (offsets[-1] if len(wanted) else 0.0)
        placed = np.clip(isotonic_regression(wanted[order] - offsets).x, low, top) + offsets
    result = np.empty_like(wanted)
    result[order] = placed
    return result


def count_on_x(ax: "Axes") -> None:
    """The x axis counts: whole numbers only, from the first to the last."""
    from matplotlib.ticker import MaxNLocator

    ax.xaxis.set_major_locator(MaxNLocator(nbins=5, steps=[1, 2, 5, 10], integer=True))
    ax.margins(x=0.01)


def explain_dashes(ax: "Axes", dashes: Mapping[str, str]) -> None:
    """A legend for kinds of line (name → dash), whatever their colour."""
    handles = [ax.plot([], [], dash, color=GREY, label=name)[0] for name, dash in dashes.items()]
    ax.legend(handles=handles, loc="best")


def label_ends(ax: "Axes", ends: Sequence[End], *, size: float = 7, settled: bool = False) -> None:
    """Write each curve's name beside its end, moved up or down where names would collide.

    Call it when the axes have their final limits; with many axes, settle the layout once for all of them. A thin line
    leads from a name that had to move back to its curve.
    """
    size = points(size)
    if not settled:
        figure_of(ax).draw_without_rendering()  # settles the layout, and so the height of the axes
    low, high = ax.get_ylim()
    inches = ax.get_position().height * figure_of(ax).get_figheight()
    gap = (high - low) * size * 1.15 / 72 / inches
    shown = [end for end in ends if np.isfinite(end[1])]
    right = max((end[0] for end in shown), default=0.0)
    for (x, y, text, colour), height in zip(shown, spread([e[1] for e in shown], gap, low, high), strict=True):
        ax.annotate(
            text, (x, y), (right, height), xycoords="data", textcoords=_beside(ax), color=colour, fontsize=size,
            va="center", annotation_clip=False,
            arrowprops={"arrowstyle": "-", "color": colour, "lw": 0.4, "shrinkA": 0, "shrinkB": 0, "relpos": (0, 0.5)},
        )  # fmt: skip


def _beside(ax: "Axes") -> "Transform":
    """Data coordinates, 8 points further right: a margin that does not depend on the scale."""
    from matplotlib.transforms import offset_copy

    return offset_copy(ax.transData, fig=figure_of(ax), x=8, y=0, units="points")
