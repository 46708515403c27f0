"""Figures of accuracy: of one model by class, of several models beside the paper's figures."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from scs_eval.analyses.plotting import style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from scs_eval.analyses.accuracy.result import AccuracyResult


def draw_classes(result: "AccuracyResult", ax: "Axes | None") -> "Figure":
    """Each class's accuracy with its interval, and the overall one as a line with a band."""
    classes = result.per_class().dropna().sort_values("accuracy", kind="stable")
    mean, low, high = (100 * float(part) for part in result.accuracy)
    colour, marker = style.look_of(result.label)
    with style.drawing(ax, width=4.2, height=0.9 + 0.17 * len(classes)) as ax:
        ax.axvspan(low, high, color=colour, alpha=0.15, lw=0)
        ax.axvline(mean, color=colour, lw=0.8)
        for y, (_, row) in enumerate(classes.iterrows()):
            _point(ax, y, (row["accuracy"], row["low"], row["high"]), colour, marker, name=row["class"])
        ax.set_yticks(range(len(classes)), [f"{row['class']} ({row['n']})" for _, row in classes.iterrows()])
        ax.set_xlabel("accuracy in %, 95 % interval")
        ax.set_title(f"{result.label}: {mean:.1f} % of {len(result.labels):,} images", loc="left")
        return style.figure_of(ax)


def draw_networks(results: "Sequence[AccuracyResult]", ax: "Axes | None") -> "Figure":
    """One line per network, best first within an architecture; the paper's figures as diamonds; numbers beside."""
    lines = _lines(results)
    with style.drawing(ax, height=1.0 + 0.16 * (max(lines) + 1)) as ax:
        for y, trainings in lines.items():
            _network_line(ax, y, trainings)
        ax.set_yticks(list(lines), [_line_name(trainings) for trainings in lines.values()])
        ax.set_ylim(max(lines) + 0.8, -1)
        ax.grid(axis="both", lw=0.3, color="0.88")
        ax.set_axisbelow(True)
        several = any(len(trainings) > 1 for trainings in lines.values())
        note = "; the mean and range of several trainings (×)" if several else ""
        ax.set_xlabel(f"accuracy in % on {_counts(results)} images, 95 % interval{note}")
        _head(ax, results)
        return style.figure_of(ax)


def _counts(results: "Iterable[AccuracyResult]") -> str:
    """How many images each model saw: "1,000", or "500 to 1,000" if they differ."""
    counts = sorted({len(result.labels) for result in results})
    return " to ".join(f"{n:,}" for n in dict.fromkeys((counts[0], counts[-1])))


def _lines(results: "Sequence[AccuracyResult]") -> "dict[float, list[AccuracyResult]]":
    """Where each network stands: architectures in the order they came with a gap between, best first within one."""
    networks: dict[str, list[AccuracyResult]] = {}
    for result in results:
        networks.setdefault(result.known.get("network", result.label), []).append(result)
    order = list(dict.fromkeys(_architecture(result) for result in results))
    ranked = sorted(networks.values(), key=lambda some: (order.index(_architecture(some[0])), -_mean(some)))
    return {rank + 0.5 * order.index(_architecture(some[0])): some for rank, some in enumerate(ranked)}


def _mean(trainings: "Sequence[AccuracyResult]") -> float:
    return float(np.mean([result.accuracy.estimate for result in trainings]))


def _line_name(trainings: "Sequence[AccuracyResult]") -> str:
    """The label, or of several trainings the network and their number."""
    first = trainings[0]
    return first.label if len(trainings) == 1 else f"{first.known.get('network')} × {len(trainings)}"


def _architecture(result: "AccuracyResult") -> str:
    """The part of a zoo name before its layer (`bcos_cnn9` names both at once); other labels form one group."""
    layer, parts = style.layer_of(result.label), result.label.lower().partition("@")[0].split("_")
    return "" if layer is None else "_".join(parts[: parts.index(layer)] or parts[:2])


def _network_line(ax: "Axes", y: float, trainings: "Sequence[AccuracyResult]") -> None:
    """The accuracy with its interval or range, the paper's figures, and both as numbers right of the axes."""
    result = trainings[0]
    colour, marker = style.look_of(result.label)
    shares = [float(training.accuracy.estimate) for training in trainings]
    spread = (_mean(trainings), min(shares), max(shares)) if len(shares) > 1 else tuple(map(float, result.accuracy))
    _point(ax, y, spread, colour, marker, name=_line_name(trainings))
    texts = [f"{100 * _mean(trainings):.1f}", ""]
    if (paper := result.known.get("paper_accuracy")) is not None:
        texts[1] = f"{100 * paper:.1f}"
        _diamond(ax, paper, y, size=3.8)
    if (earlier := result.known.get("earlier_paper_accuracy")) is not None:
        _diamond(ax, earlier, y, size=2)
    _numbers(ax, (1, y), texts, (colour, style.GREY))


def _diamond(ax: "Axes", share: float, y: float, *, size: float, label: str | None = None) -> None:
    """The paper's figure, above the other marks."""
    ax.plot(100 * share, y, "D", mfc="none", mec=style.GREY, ms=size, mew=0.8, zorder=5, label=label)


def _numbers(ax: "Axes", at: tuple[float, float], texts: Sequence[str], colours: Sequence[str]) -> None:
    """Two columns right of the axes, in points from their edge, so that they fit at any size."""
    for points, text, colour in zip((26, 54), texts, colours, strict=True):
        ax.annotate(
            text, at, (points, 0), xycoords=ax.get_yaxis_transform(), textcoords="offset points", color=colour,
            fontsize=style.points(7), ha="right", va="center", annotation_clip=False,
        )  # fmt: skip


def _head(ax: "Axes", results: "Sequence[AccuracyResult]") -> None:
    """What the marks and the two columns of numbers mean."""
    paper = any("paper_accuracy" in result.known for result in results)
    _numbers(ax, (1, ax.get_ylim()[1] + 0.1), ("here", "paper" if paper else ""), ("black", style.GREY))
    kinds = dict.fromkeys(style.layer_of(result.label) or "other" for result in results)
    for kind in kinds:
        colour, marker = style.LAYERS.get(kind, style.OTHER)
        ax.plot([], [], marker, color=colour, ms=3.5, label=kind)
    if paper:
        _diamond(ax, float("nan"), float("nan"), size=3.8, label="paper")
    for table in {result.known["earlier_paper_table"] for result in results if "earlier_paper_table" in result.known}:
        _diamond(ax, float("nan"), float("nan"), size=2, label=f"its Table {table} (other initial weights)")
    ax.legend(loc="lower right", bbox_to_anchor=(1, 1), ncols=9, handletextpad=0.1, columnspacing=1)


def _point(ax: "Axes", y: float, interval: tuple[float, ...], colour: str, marker: str, *, name: str) -> None:
    """An accuracy with its interval, in per cent."""
    mean, low, high = (100 * part for part in interval)
    ax.errorbar(
        mean, y, xerr=[[mean - low], [high - mean]], fmt=marker, color=colour, elinewidth=0.9, ms=3.5,
        label=style.unlisted(name),
    )  # fmt: skip
