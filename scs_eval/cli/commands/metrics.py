"""`scs-eval metrics`: what maps are measured by in faithfulness."""

import json
from typing import Any

import click

from scs_eval.analyses.attribution.metric_records import METRICS, Metric, find_metric
from scs_eval.cli.listing import show_table


@click.command("metrics")
@click.argument("names", nargs=-1)
@click.option("--json", "as_json", is_flag=True, help="One JSON list, for programs.")
def command(names: tuple[str, ...], as_json: bool) -> None:
    """List the metrics of maps: what they measure, their source, which way is better, their cost.

    NAMES are some of them; without any, all. quantus:NAME is a class of Quantus.
    """
    chosen = [find_metric(name) for name in names] if names else list(METRICS.values())
    if as_json:
        click.echo(json.dumps([_row(metric) for metric in chosen], indent=1, ensure_ascii=False))
        return
    show_table(
        ("name", "source", "measures", "direction", "passes", "needs"),
        [
            (
                record.name,
                record.source,
                record.formula,
                record.direction,
                str(record.cost or "–"),
                ", ".join(record.needs) or "–",
            )
            for record in chosen
        ],
    )


def _row(metric: Metric) -> dict[str, Any]:
    return {
        "name": metric.name, "source": metric.source, "formula": metric.formula, "better": metric.better,
        "cost": metric.cost, "needs": list(metric.needs), "family": metric.family,
    }  # fmt: skip
