"""What the commands that list methods, attacks and metrics share."""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import click

Record = TypeVar("Record")


def chosen_records(names: Sequence[str], known: Mapping[str, Record], find: Callable[[str], Record]) -> list[Record]:
    """The records of those names, or all that are known."""
    return [find(name) for name in names] if names else list(known.values())


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
