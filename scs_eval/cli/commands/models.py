"""`scs-eval models`: what is in the zoo."""

import json
import statistics
from typing import Any

import click

from scs_eval.cli.params import one_model
from scs_eval.errors import InputError


@click.command("models")
@one_model(required=False)
@click.option("--trained", is_flag=True, help="Only models that come with trained weights.")
@click.option("--json", "as_json", is_flag=True, help="One JSON list, for programs.")
def command(model: str | None, trained: bool, as_json: bool) -> None:
    """List the zoo: name, parameters, input size, layer and the accuracy of trained weights.

    Of a model that was trained more than once (NAME@3 is the training with seed 3), the mean and the range.

    MODEL is a name or a shell-style pattern such as 'rohrer100k*' (quote it); 'rohrer100k_scs@*' lists its trainings.
    """
    rows = _rows(model or "*")
    if trained:
        rows = [row for row in rows if row["trained"]]
    if as_json:
        click.echo(json.dumps(rows, indent=1))
    else:
        _show(rows)


def _rows(pattern: str) -> list[dict[str, Any]]:
    from scs_eval.models.loading.sources import parse_sources
    from scs_eval.models.zoo.registry import canonical_name, list_models

    if "@" in pattern:
        return [_row(name, seed_of_name=True) for name in (asked.source for asked in parse_sources([pattern]))]
    names = list_models(pattern)
    if not names:
        if any(wildcard in pattern for wildcard in "*?["):
            raise InputError(f"no model matches {pattern!r}; list them all with `scs-eval models`")
        names = [canonical_name(pattern)]  # a name that is not listed, or an error that suggests one
    return [_row(name) for name in names]


def _row(name: str, *, seed_of_name: bool = False) -> dict[str, Any]:
    """What is known of a model, over all its trainings or of the one with the seed in its name."""
    from scs_eval.models.loading.load import trained_seeds, weights_index
    from scs_eval.models.zoo.names import split_seed, with_seed
    from scs_eval.models.zoo.parameter_counts import parameter_count
    from scs_eval.models.zoo.registry import input_size
    from scs_eval.report.factors import FACTORS, factors_of

    index = weights_index()
    network, own_seed = split_seed(name)
    seeds = [seed for seed in trained_seeds(network) if seed == own_seed or not seed_of_name]
    accuracies = [index[with_seed(network, seed)]["accuracy"] for seed in seeds]
    named = factors_of(name)
    return {
        "name": name,
        "parameters": parameter_count(name),
        "input_size": input_size(name),
        **{key: named.get(key) for key in FACTORS},
        "trained": bool(seeds),
        "seeds": seeds,
        "accuracy": statistics.mean(accuracies) if seeds else None,
        "lowest": min(accuracies, default=None),
        "highest": max(accuracies, default=None),
    }


def _accuracy(row: dict[str, Any]) -> str:
    if not row["trained"]:
        return "untrained"
    mean = f"{row['accuracy']:.1%}"
    if len(row["seeds"]) == 1:
        return mean
    return f"{mean} ({row['lowest']:.1%} to {row['highest']:.1%}, {len(row['seeds'])} seeds)"


def _show(rows: list[dict[str, Any]]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table("name", box=None, header_style="bold")
    for title in ("parameters", "input", "test accuracy"):
        table.add_column(title, justify="right")
    for row in rows:
        accuracy = _accuracy(row)
        size = f"{row['input_size']}×{row['input_size']}"
        table.add_row(row["name"], f"{row['parameters']:,}", size, accuracy, style=None if row["trained"] else "dim")
    # A list that is piped on keeps one line per model, however narrow the terminal.
    console = Console()
    console.print(table, soft_wrap=not console.is_terminal)
    click.echo(f"{len(rows)} models, {sum(row['trained'] for row in rows)} trained", err=True)
