"""What the commands that list methods, attacks and metrics share."""

import json
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from typing import Any, TypeVar

import click

Record = TypeVar("Record")


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
