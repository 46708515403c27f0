"""`scs-eval metrics`: what maps are measured by in faithfulness."""

from typing import Any

from scs_eval.analyses.attribution.metric_records import METRICS, Metric, find_metric
from scs_eval.cli.listing import list_command, show_json, show_table


@list_command("metrics", METRICS, find_metric)
def command(chosen: list[Metric], as_json: bool) -> None:
    """List the metrics of maps: what they measure, their source, which way is better, their cost, where they mislead.

    NAMES are some of them; without any, all. quantus:NAME is a class of Quantus.
    """
    if as_json:
        show_json([_row(metric) for metric in chosen])
        return
    show_table(
        ("name", "source", "measures", "direction", "passes", "needs", "fails"),
        [
            (
                record.name,
                record.source,
                record.formula,
                record.direction,
                str(record.cost or "–"),
                ", ".join(record.needs) or "–",
                record.fails or "–",
            )
            for record in chosen
        ],
    )


def _row(metric: Metric) -> dict[str, Any]:
    return {
        "name": metric.name, "source": metric.source, "formula": metric.formula, "better": metric.better,
        "cost": metric.cost, "needs": list(metric.needs), "fails": metric.fails, "family": metric.family,
    }  # fmt: skip
