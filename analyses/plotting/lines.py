"""Curves of many models on one axes: which colour, marker and dash each has, and its name at its end."""

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from scs_eval.analyses.plotting import style

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Dash = str | tuple[float, tuple[float, ...]]
FEW = 4  # curves, up to which bands are drawn dark enough to be read one by one
SAMPLE = "\N{NO-BREAK SPACE}" * 12  # room for a sample of the dash before a name, in SVG too
DASHES: tuple[Dash, ...] = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)))


def shade(curves: int) -> float:
    """How dark a band is beside so many curves: those of many lie on one another and would hide what is below."""
    return 0.14 if curves <= FEW else 0.05


class LineStyles:
    """Models with one kind of layer share its colour, so each further one of a colour gets the next dash."""

    def __init__(self) -> None:
        self._used: Counter[str] = Counter()

    def next_for(self, label: str) -> tuple[str, str, Dash]:
        """Colour, marker and dash of the next curve."""
        colour, marker = style.look_of(label)
        dash = DASHES[self._used[colour] % len(DASHES)]
        self._used[colour] += 1
        return colour, marker, dash


def label_curves(ax: "Axes", ends: Sequence[style.End], dashes: Sequence[Dash], *, size: float = 7) -> None:
    """Each curve's name beside its end; before it a sample of its dash where colours alone do not tell curves apart.

    Many curves end at one place, where a line from the name tells nothing.
    """
    alike = any(dash not in (DASHES[0], "") for dash in dashes)
    named = [(x, y, SAMPLE * alike + name, colour) for x, y, name, colour in ends]
    style.label_ends(ax, named, size=size)
    if alike:
        _samples(ax, dashes)


def _samples(ax: "Axes", dashes: Sequence[Dash]) -> None:
    from matplotlib.text import Annotation
    from matplotlib.transforms import Affine2D, ScaledTranslation

    points = Affine2D().scale(1 / 72) + style.figure_of(ax).dpi_scale_trans
    names = [text for text in ax.texts if isinstance(text, Annotation)]
    for name, dash in zip(names[-len(dashes) :], dashes, strict=True):
        here = points + ScaledTranslation(*name.xyann, ax.transData)  # type: ignore[arg-type]  # any transform will do
        ax.plot([9, 27], [0, 0], ls=dash, color=name.get_color(), transform=here, clip_on=False, label="sample")
