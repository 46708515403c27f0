"""`scs-eval metrics`: what maps are measured by in faithfulness."""

from typing import Any

import click

from scs_eval.analyses.attribution.metric_records import METRICS, Metric, find_metric
from scs_eval.cli.listing import chosen_records, show_json, show_table


@click.command("metrics")
@click.argument("names", nargs=-1)
@click.option("--json", "as_json", is_flag=True, help="One JSON list, for programs.")
def command(names: tuple[str, ...], as_json: bool) -> None:
    """List the metrics of maps: what they measure, their source, which way is better, their cost.

    NAMES are some of them; without any, all. quantus:NAME is a class of Quantus.
    """
    chosen = chosen_records(names, METRICS, find_metric)
    if as_json:
        show_json([_row(metric) for metric in chosen])
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
