"""What the commands that list methods, attacks and metrics share."""

import json
import textwrap
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from typing import Any, TypeVar

import click

Record = TypeVar("Record")
WIDE = 140  # letters of a terminal in which columns of sentences can be read


def list_command(name: str, known: Mapping[str, Record], find: Callable[[str], Record]) -> Callable[..., click.Command]:
    """A command that lists records: its function gets those that are named, or all, and whether as JSON."""

    def decorate(show: Callable[[list[Record], bool], None]) -> click.Command:
        @click.argument("names", nargs=-1)
        @click.option("--json", "as_json", is_flag=True, help="One JSON list, for programs.")
        @wraps(show)
        def listed(names: tuple[str, ...], as_json: bool) -> None:
            show([find(name) for name in names] if names else list(known.values()), as_json)

        return click.command(name)(listed)

    return decorate


def show_json(rows: Sequence[dict[str, Any]]) -> None:
    """One list, for programs."""
    click.echo(json.dumps(rows, indent=1, ensure_ascii=False))


def show_table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Rows of text under their heads, as wide as the terminal; in a narrow one each row is a paragraph."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console()
    if console.width < WIDE:
        click.echo("\n\n".join(_paragraph(heads, row, console.width) for row in rows))
        return
    table = Table(box=None, pad_edge=False, padding=(0, 2, 1, 0))
    for head in heads:
        table.add_column(head, overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    console.print(table)


def _paragraph(heads: Sequence[str], row: Sequence[str], width: int) -> str:
    """Name and source in the first line, then a line or more for each of the others."""
    margin = max(map(len, heads)) + 4
    lines = [f"{row[0]}: {row[1]}"]
    for head, text in zip(heads[2:], row[2:], strict=True):
        first = f"  {head}".ljust(margin)
        lines += textwrap.wrap(text, max(width, 2 * margin), initial_indent=first, subsequent_indent=" " * margin)
    return "\n".join(lines)
