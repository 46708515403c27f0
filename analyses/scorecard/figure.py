"""The scorecard as a picture: a line per check, a column per model, a word in every cell."""

import cmath
import math
import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from scs_eval.analyses.core.statistics import Interval
from scs_eval.analyses.plotting import style
from scs_eval.analyses.scorecard.check import FAIL, PASS, SKIPPED, WARN, Check

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from scs_eval.analyses.scorecard.result import Scorecard

# Ground and letters. The grounds differ in lightness, so that grey print and colour-blind eyes tell them apart.
LOOKS = {
    PASS: ("#D6E9F5", "#003a5d"),
    WARN: ("#F5C04A", "#000000"),
    FAIL: ("#8C2D04", "#FFFFFF"),
    SKIPPED: ("#F4F4F4", style.GREY),
}
NAMES, LINE, PAD = 2.0, 0.115, 0.075  # inches: the checks' names, a line of text, above and below a line
LETTER = 0.0445  # inches, a letter of a sentence on average
SLANT, SLANTED = 50, 6  # degrees and points of names above narrow cells
ALONE, WIDEST, FIGURE, NARROWEST = 1.2, 1.43, 0.75, 0.42  # inches of a cell; from FIGURE on it has room for its figure


class Row(NamedTuple):
    """A line of the picture: its name, a (verdict, text) for each model, and the lines of its sentence."""

    name: str
    cells: Sequence[tuple[str, str]]
    sentence: Sequence[str] = ()

    @property
    def height(self) -> float:
        """Inches."""
        return max(1, len(self.sentence), *(text.count("\n") + 1 for _, text in self.cells)) * LINE + PAD


def _shared_checks(cards: "Sequence[Scorecard]") -> list[tuple[Check, ...]]:
    """Each check as every card has it, in the first one's order; a card of an older version has fewer."""
    by_name = [{check.name: check for check in card.lines} for card in cards]
    return [tuple(card[name] for card in by_name) for name in by_name[0] if all(name in card for card in by_name)]


def draw_scorecard(cards: "Sequence[Scorecard]", ax: "Axes | None" = None) -> "Figure":
    """One model with a sentence for each check, or several side by side with their figures."""
    alone = len(cards) == 1
    cell = ALONE if alone else min(WIDEST, max(NARROWEST, (style.WIDTH - NAMES) / len(cards)))
    width = NAMES + cell * len(cards) + (style.WIDTH - NAMES - ALONE if alone else 0)
    room = int((width - NAMES - cell - 0.1) / LETTER) if alone else 0
    rows = [_row(checks, cell, room) for checks in _shared_checks(cards)]
    ends = [_accuracies("curve at this ε", [card.reported_accuracy for card in cards], cell)]
    ends += [_accuracies("worst of all attacks", [card.robust_accuracy for card in cards], cell)]
    titles = [_title(card.label, cell) for card in cards]
    head = 0.08 + 0.13 * max(title.count("\n") + 1 for title in titles)
    whole = width
    if cell < FIGURE:
        slanted = [cmath.rect(style.text_width(title, SLANTED), math.radians(SLANT)) for title in titles]
        head = 0.15 + max(end.imag for end in slanted)
        whole = max(width, *(_centre(column, cell) + 0.1 + end.real for column, end in enumerate(slanted)))
    note = style.wrapped(style.note(_note(cards, figures=cell >= FIGURE)), width, 6)
    height = head + sum(row.height for row in (*rows, *ends)) + 0.16 + 0.105 * len(note)
    with style.drawing(ax, width=whole, height=height, rigid=True) as ax:
        ax.set_axis_off()
        ax.set(xlim=(0, whole), ylim=(height, 0))  # inches, from the top left
        _draw_titles(ax, titles, cell, head)
        top = _draw_rows(ax, rows, cell, head)
        ax.plot([0, width], [top + 0.02] * 2, color="black", lw=0.6)
        top = _draw_rows(ax, ends, cell, top + 0.04)
        ax.text(0, top + 0.06, "\n".join(note), va="top", fontsize=style.points(6), color="0.3")
        for written in ax.texts:
            written.set_in_layout(False)  # there is room for it
        return style.figure_of(ax)


def _row(checks: Sequence[Check], cell: float, room: int) -> Row:
    """A check of every model; its sentence if there is room for one."""
    texts = [(check.verdict, _cell_text(check, cell)) for check in checks]
    return Row(checks[0].name, texts, textwrap.wrap(checks[0].sentence, room) if room else ())


def _cell_text(check: Check, cell: float) -> str:
    """The verdict, and its figure where there is room: without what stands in brackets."""
    if cell < FIGURE or check.verdict == SKIPPED:
        return check.verdict
    figure = (
        check.figure.partition(" (")[0].replace(" points", " pts").replace(" of images", "").replace(" of the rise", "")
    )
    return f"{check.verdict}{'  ' if cell >= ALONE else chr(10)}{figure}"


def _accuracies(name: str, accuracies: Sequence[Interval], cell: float) -> Row:
    """A line of robust accuracies in per cent, with their intervals where there is room."""
    texts = []
    for interval in accuracies:
        estimate, low, high = (100 * float(part) for part in interval)
        texts.append(("", f"{estimate:.1f} %" + (f" [{low:.0f}, {high:.0f}]" if cell >= FIGURE else "")))
    return Row(name, texts)


def _title(name: str, cell: float) -> str:
    """A long name on two lines, broken after its first part."""
    first, _, rest = name.partition("_")
    return f"{first}_\n{rest}" if rest and cell >= FIGURE and len(name) * 0.064 > cell else name


def _draw_titles(ax: "Axes", titles: Sequence[str], cell: float, head: float) -> None:
    for column, title in enumerate(titles):
        centre = _centre(column, cell)
        if cell < FIGURE:
            text = ax.text(centre - 0.03, head - 0.05, title, fontsize=style.points(SLANTED), rotation=SLANT)
            text.set_rotation_mode("anchor")
        else:
            ax.text(centre, head - 0.05, title, ha="center", va="bottom", fontsize=style.points(7), fontweight="bold")


def _centre(column: int, cell: float) -> float:
    return NAMES + (column + 0.5) * cell


def _draw_rows(ax: "Axes", rows: Sequence[Row], cell: float, top: float) -> float:
    """Draw the rows from `top` on; where they end."""
    for row in rows:
        middle = top + row.height / 2
        ax.text(0, middle, row.name, va="center", fontsize=style.points(7))
        for column, (verdict, text) in enumerate(row.cells):
            _draw_cell(ax, (NAMES + column * cell, top, cell, row.height), verdict, text)
        if row.sentence:
            left = NAMES + cell + 0.08
            ax.text(left, middle, "\n".join(row.sentence), va="center", fontsize=style.points(6), linespacing=1.25)
        top += row.height
    return top


def _draw_cell(ax: "Axes", box: tuple[float, float, float, float], verdict: str, text: str) -> None:
    from matplotlib.patches import Rectangle

    left, top, width, height = box
    ground, letters = LOOKS.get(verdict, ("#FFFFFF", "#000000"))
    ax.add_patch(Rectangle((left + 0.015, top + 0.012), width - 0.03, height - 0.024, facecolor=ground, lw=0))
    ax.text(
        left + width / 2, top + height / 2, text, ha="center", va="center", fontsize=style.points(6.3), color=letters,
        fontweight="bold" if verdict in (WARN, FAIL) else "normal", linespacing=1.15,
    )  # fmt: skip


def _note(cards: "Sequence[Scorecard]", *, figures: bool) -> str:
    """Where the checks were made, and what a point is worth; figures: whether any are shown."""
    counts = sorted({len(card.right) for card in cards})
    distances = [f"{_distance(card)}" for card in cards]
    where = distances[0] if len(set(distances)) == 1 else f"{', '.join(distances)} (in this order)"
    sentence = f"{cards[0].norm.replace('linf', 'L∞').replace('l2', 'L2')}, ε = {where}. "
    images = f"{' to '.join(map(str, counts))} images"
    if not figures:
        return f"{sentence}{images}; the figures of checks are in scorecard.csv."
    sentence += f"{images}, each worth {100 / counts[0]:.2g} in points of accuracy (pts). "
    sentence += "Points: robust accuracy under the other attack minus the curve's, so + is weaker."
    return sentence + " [95 % interval]."


def _distance(card: "Scorecard") -> str:
    return f"{card.eps:.3g}" + (f" ({255 * card.eps:.2g}/255)" if card.norm == "linf" else "")
