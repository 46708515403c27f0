"""What the commands that list methods, attacks and metrics share."""

from collections.abc import Sequence


def show_table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Rows of text under their heads, as wide as the terminal."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, padding=(0, 2, 1, 0))
    for head in heads:
        table.add_column(head, overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    Console().print(table)
