"""Figures of which metric to trust: how metrics agree, how methods rank over all of them, where controls stand."""

from typing import TYPE_CHECKING

import numpy as np

from scs_eval.analyses.faithfulness.agreement import FORGETS, Agreement
from scs_eval.analyses.plotting import style

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MARKS = {"random": "o", "edges": "s", "untrained": "^"}
OWN_WORDS = {FORGETS: "forgetting"}


def draw_agreement(agreement: Agreement) -> "Figure":
    """Spearman's correlation of every two metrics in numbers, in colours where its interval does not hold 0."""
    table, names = agreement.agreement(), list(agreement.metrics)
    values, sure = _matrix(table, names)
    with style.paper_style():
        ax = style.panels(1, 1, width=4.9, height=4.6)[0]
        ax.imshow(np.where(sure, values, np.nan), cmap="RdBu", vmin=-1, vmax=1)
        for row, column in zip(*np.nonzero(np.isfinite(values)), strict=True):
            dark = abs(values[row, column]) > 0.6
            shade = style.GREY if not sure[row, column] else "white" if dark else style.BLACK
            text = f"{values[row, column]:.2f}".replace("-", "−")
            ax.text(column, row, text, ha="center", va="center", fontsize="x-small", color=shade)
        words = [OWN_WORDS.get(name, name) for name in names]
        ax.set_xticks(range(len(names)), words, rotation=45, ha="right")
        ax.set_yticks(range(len(names)), words)
        ax.tick_params(length=0)
        for spine in ax.spines.values():
            spine.set_visible(False)
        ax.set_title("do metrics rank methods alike?", loc="left")
        style.write_note(ax, _agreement_note(agreement))
        return style.figure_of(ax)


def _agreement_note(agreement: Agreement) -> str:
    alone = len(agreement.results) == 1
    return (
        f"Spearman's correlation over {len(agreement.own_methods)} methods, "
        f"{agreement.results[0].label if alone else f'mean over {len(agreement.results)} models'}; every metric turned "
        "so that more is better, sparseness and complexity as they are. "
        "Without colour: the 95 % interval over images holds 0."
    )


def _matrix(table: "pd.DataFrame", names: list[str]) -> tuple[np.ndarray, np.ndarray]:
    """Correlations (k, k), NaN on the diagonal, and whether each differs from 0."""
    values, sure = np.full((len(names),) * 2, np.nan), np.zeros((len(names),) * 2, dtype=bool)
    for _, row in table.iterrows():
        pair = names.index(row["metric"]), names.index(row["other"])
        for here in (pair, pair[::-1]):
            values[here] = row["correlation"]
            sure[here] = row["correlation_low"] > 0 or row["correlation_high"] < 0
    return values, sure


def draw_ranks(agreement: Agreement) -> "Figure":
    """Left the mean rank of every method with its interval, right the rank of each control by each metric."""
    ranks, controls = agreement.ranks(), agreement.controls()
    rows = max(len(ranks), len(agreement.directed))
    with style.paper_style():
        left, right = style.panels(1, 2, height=1.1 + 0.19 * rows)
        _draw_methods(left, ranks)
        _draw_controls(right, controls, agreement)
        note = (
            f"Ranks among {len(ranks)} maps, 1 the best: left the mean over metrics and models with 95 % intervals "
            "over images (controls grey), right each control's by one metric, mean over models. Orange: in so many "
            "models a control is at least as good as every method, so the metric rewards something not learned. "
            "Forgetting the random map wins by construction."
        )
        style.write_note(left, note)
        return style.figure_of(left)


def _draw_methods(ax: "Axes", ranks: "pd.DataFrame") -> None:
    for y, (_, row) in enumerate(ranks.iterrows()):
        shade = style.GREY if row["control"] else style.BLUE
        ax.plot([row["rank_low"], row["rank_high"]], [y, y], color=shade, lw=1)
        ax.plot(row["rank"], y, "o", color=shade, ms=4)
    ax.set_yticks(range(len(ranks)), ranks["method"])
    ax.set_ylim(len(ranks) - 0.5, -0.5)
    ax.set_xlabel("mean rank over metrics\n← better")
    ax.set_title("methods over all metrics", loc="left")
    _grid(ax)


def _draw_controls(ax: "Axes", controls: "pd.DataFrame", agreement: Agreement) -> None:
    names = agreement.directed
    by_metric = controls.groupby("metric")
    for name, mark in MARKS.items():
        if (column := f"rank_{name}") in controls:
            means = by_metric[column].mean().reindex(names)
            ax.plot(means, range(len(names)), mark, ms=4, label=name, color=style.BLACK, mfc="none")
    wins = by_metric["control_wins"].sum().reindex(names)
    count = len(agreement.results)
    words = [OWN_WORDS.get(str(name), str(name)) + (f" ({won}/{count})" if won else "") for name, won in wins.items()]
    ax.set_yticks(range(len(names)), words)
    for label, won in zip(ax.get_yticklabels(), wins, strict=True):
        label.set_color(style.RED if won else style.BLACK)
    ax.set_ylim(len(names) - 0.5, -0.5)
    ax.set_xlim(0.5, len(agreement.methods) + 0.5)
    ax.set_xlabel("rank of the control\nworse for the metric ← → better")
    ax.set_title("controls by metric", loc="left")
    ax.legend(loc="center left", bbox_to_anchor=(1, 0.5))
    _grid(ax)


def _grid(ax: "Axes") -> None:
    ax.grid(axis="x", lw=0.3, color="0.88")
    ax.set_axisbelow(True)
