"""`scs-eval models`: what is in the zoo."""

import json
from typing import Any

import click

from scs_eval.cli.model_names import MODEL
from scs_eval.errors import InputError


@click.command("models")
@click.argument("pattern", type=MODEL, default="*")
@click.option("--trained", is_flag=True, help="Only models that come with trained weights.")
@click.option("--json", "as_json", is_flag=True, help="One JSON list, for programs.")
def command(pattern: str, trained: bool, as_json: bool) -> None:
    """List the zoo: name, parameters, input size, and the accuracy of trained weights.

    PATTERN is a name or a shell-style pattern such as 'rohrer100k*' (quote it).
    """
    rows = _rows(pattern)
    if trained:
        rows = [row for row in rows if row["trained"]]
    if as_json:
        click.echo(json.dumps(rows, indent=1))
    else:
        _show(rows)


def _rows(pattern: str) -> list[dict[str, Any]]:
    from scs_eval.models.registry import canonical_name, list_models

    names = list_models(pattern)
    if not names:
        if any(wildcard in pattern for wildcard in "*?["):
            raise InputError(f"no model matches {pattern!r}; list them all with `scs-eval models`")
        names = [canonical_name(pattern)]  # a name that is not listed, or an error that suggests one
    return [_row(name) for name in names]


def _row(name: str) -> dict[str, Any]:
    from scs_eval.models.checkpoints import weights_index
    from scs_eval.models.parameters import parameter_count
    from scs_eval.models.registry import input_size

    entry = weights_index().get(name)
    return {
        "name": name,
        "parameters": parameter_count(name),
        "input_size": input_size(name),
        "trained": entry is not None,
        "accuracy": entry["accuracy"] if entry else None,
    }


def _show(rows: list[dict[str, Any]]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table("name", box=None, header_style="bold")
    for title in ("parameters", "input", "test accuracy"):
        table.add_column(title, justify="right")
    for row in rows:
        accuracy = f"{row['accuracy']:.1%}" if row["trained"] else "untrained"
        size = f"{row['input_size']}×{row['input_size']}"
        table.add_row(row["name"], f"{row['parameters']:,}", size, accuracy, style=None if row["trained"] else "dim")
    # A list that is piped on keeps one line per model, however narrow the terminal.
    console = Console()
    console.print(table, soft_wrap=not console.is_terminal)
    click.echo(f"{len(rows)} models, {sum(row['trained'] for row in rows)} trained", err=True)
