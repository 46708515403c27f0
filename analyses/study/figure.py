"""Figures of a study: its claims as a forest, and accuracy against ε in panels."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from scs_eval.analyses.plotting import style
from scs_eval.models.zoo.names import split_seed
from scs_eval.models.zoo.registry import resolve

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = {"supported": style.GREEN, "contradicted": style.RED, "undecided": style.GREY}
MARKERS = {"supported": "o", "contradicted": "X", "undecided": "s"}
TEXT = 74  # characters of a claim in the figure
DASHES = {
    ("relu", "maxpool"): ("-", "ReLU, MaxPool"),
    ("linear", "maxabspool"): ("--", "no activation, MaxAbsPool"),
    ("relu", "maxabspool"): (":", "ReLU, MaxAbsPool"),
    ("linear", "maxpool"): ("-.", "no activation, MaxPool"),
}


def draw_claims(claims: pd.DataFrame, ax: "Axes | None" = None) -> "Figure":
    """A line for every claim that was tested: the effect over the standard deviation of the reference's images."""
    tested = claims[claims["main"] & np.isfinite(claims["standardised"])] if len(claims) else claims
    with style.drawing(ax, width=style.WIDTH * 1.2, height=0.8 + 0.25 * max(1, len(tested))) as axes:
        for line, (_, row) in enumerate(tested.iterrows()):
            _claim(axes, line, row)
        axes.axvline(0, color=style.GREY, lw=0.7)
        texts = [_short(f"{row['number']}. {row['claim']}") for _, row in tested.iterrows()]
        axes.set_yticks(range(len(tested)), texts, fontsize=style.points(6.5))
        axes.set_ylim(max(1, len(tested)) - 0.4, -0.6)
        axes.set_xlabel("effect, in standard deviations of the reference's images (95 %)")
        for word, colour in COLOURS.items():
            axes.plot([], [], MARKERS[word], color=colour, label=word)
        style.figure_of(axes).legend(loc="outside lower center", ncols=3)
        return style.figure_of(axes)


def _claim(ax: "Axes", line: int, row: "pd.Series[Any]") -> None:
    scale = row["standardised"] / row["effect"] if row["effect"] else 1.0
    ends = [[(row["effect"] - row["low"]) * scale], [(row["high"] - row["effect"]) * scale]]
    known = np.isfinite(ends).all()
    ax.errorbar(
        row["standardised"], line, xerr=np.abs(ends) if known else None, fmt=MARKERS[row["verdict"]],
        color=COLOURS[row["verdict"]], elinewidth=0.9, ms=4, label=style.unlisted(f"{row['number']}. {row['verdict']}"),
    )  # fmt: skip


def _short(text: str) -> str:
    return text if len(text) <= TEXT else f"{text[: TEXT - 1]}…"


def draw_robustness(panels: Mapping[str, Mapping[str, Sequence[Any]]]) -> "Figure":
    """Accuracy against ε: a row of panels for each architecture, a panel for each layer.

    panels: architecture → layer → results of `pgd`. The mean over a network's trainings is thick, each of them thin;
    the dash tells activation and pooling.
    """
    layers = list(dict.fromkeys(layer for row in panels.values() for layer in row))
    with style.paper_style():
        axes = style.panels(len(panels), len(layers), height=0.5 + 1.75 * len(panels), sharex=True, sharey=True)
        for row_number, (architecture, row) in enumerate(panels.items()):
            for column, layer in enumerate(layers):
                _robustness(axes[row_number * len(layers) + column], row.get(layer, ()), f"{architecture}, {layer}")
        for ax in axes[-len(layers) :]:
            ax.set_xlabel("ε (L∞)")
        axes[0].set_ylabel("accuracy")
        handles = [axes[0].plot([], [], ls=dash, color=style.BLACK)[0] for dash, _ in DASHES.values()]
        words = [text for _, text in DASHES.values()]
        style.figure_of(axes[0]).legend(handles, words, loc="outside lower center", ncols=4)
        return style.figure_of(axes[0])


def _robustness(ax: "Axes", results: Sequence[Any], title: str) -> None:
    groups: dict[str, list[Any]] = {}
    for result in results:
        groups.setdefault(split_seed(result.label)[0], []).append(result)
    for name, members in groups.items():
        colour, dash = style.look_of(name)[0], _dash(name)
        for member in members if len(members) > 1 else ():
            ax.plot(member.eps_and_zero, member.accuracy.estimate, ls=dash, color=colour, lw=0.4, alpha=0.6)
        mean = np.mean([member.accuracy.estimate for member in members], axis=0)
        trainings = f", mean of {len(members)} trainings" if len(members) > 1 else ""
        label = style.unlisted(f"{name}{trainings}")
        ax.plot(members[0].eps_and_zero, mean, ls=dash, color=colour, lw=1.2, label=label)
    ax.set_title(title, loc="left", fontsize=style.points(7))
    ax.set_ylim(0, 1)
    ax.grid(lw=0.3, color="0.88")


def _dash(name: str) -> str:
    resolved = resolve(name, missing_ok=True)
    variant = None if resolved is None else (resolved[1].activation, resolved[1].pooling)
    return DASHES.get(variant, ("-", ""))[0]  # type: ignore[arg-type]
