"""Curves of many models on one axes: which colour, marker and dash each has."""

from collections import Counter

from scs_eval.analyses.plotting import style

Dash = str | tuple[float, tuple[float, ...]]
DASHES: tuple[Dash, ...] = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)))


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
