"""A table as Markdown, aligned so that it reads as plain text too."""

from unicodedata import east_asian_width

import pandas as pd

from scs_eval.errors import printable


def markdown(frame: pd.DataFrame) -> str:
    """Numbers flush right, text flush left; columns without content are left out, a bar in a cell is escaped."""
    frame = frame.loc[:, [any(_cell(value) for value in frame[name]) for name in frame.columns]]
    rows = [[_cell(value) for value in row] for row in (frame.columns, *frame.to_numpy())]
    columns = list(zip(*rows, strict=True))
    right = [all(not cell or cell.lstrip("-−")[:1].isdigit() for cell in column[1:]) for column in columns]
    widths = [max(3, *map(_width, column)) for column in columns]
    rule = ["-" * (width - 1) + ("-:"[flush]) for width, flush in zip(widths, right, strict=True)]
    return "".join(_line(row, widths, right) for row in (rows[0], rule, *rows[1:]))


def _line(cells: list[str], widths: list[int], right: list[bool]) -> str:
    padded = (
        " " * (width - _width(cell)) + cell if flush else cell + " " * (width - _width(cell))
        for cell, width, flush in zip(cells, widths, right, strict=True)
    )
    return f"| {' | '.join(padded)} |\n"


def _cell(value: object) -> str:
    return printable(" ".join(str(value).replace("|", "\\|").split()))


def _width(text: str) -> int:
    """Columns of a terminal."""
    return sum(2 if east_asian_width(letter) in "WF" else 1 for letter in text)
