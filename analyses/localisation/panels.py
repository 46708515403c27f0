"""What the figures of localisation show of its results."""

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from scs_eval.analyses.core.statistics import SHARE, mean_interval, wilson
from scs_eval.analyses.localisation import figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from scs_eval.analyses.localisation.result import LocalisationResult

B_OF_NAME = re.compile(r"_b=\d+(\.\d+)?")


def boxes(results: Sequence["LocalisationResult"], ax: "Axes | None" = None) -> "Figure":
    """A box for every result."""
    return figure.draw_boxes([_box(result) for result in results], title=_title(results), ax=ax)


def _box(result: "LocalisationResult") -> figure.Box:
    mean, low, high = (float(part) for part in mean_interval(result.grid_scores, bounds=SHARE))
    tops = result.top_interval()
    return figure.Box(
        model=result.model, method=result.method, scores=result.scores.ravel(), mean=(mean, low, high),
        floor=1 / result.side**2, ceiling=float(result.ceiling.mean()), top=tops.get("top_score"),
    )  # fmt: skip


def _title(results: Sequence["LocalisationResult"]) -> str:
    first, counts = results[0], sorted({len(result.scores) for result in results})
    game = {"grid": "Grid pointing game", "difull": "DiFull", "dipart": "DiPart"}[first.setting]
    grids = f"{' to '.join(map(str, dict.fromkeys((counts[0], counts[-1]))))} grids of {first.side}×{first.side}"
    if len({result.method for result in results}) == 1:
        return f"{game}, {grids}, maps by {first.method}"
    alone = len({result.model for result in results}) == 1  # the axis has the methods, and the models if several
    return f"{game}, {grids}" + (f", {first.model}" if alone else "")


def figures(results: Sequence["LocalisationResult"]) -> dict[str, "Figure"]:
    """The boxes, examples, the curve over the top pixels, and over B where the networks differ in nothing else."""
    drawn = {"figure": boxes(results), **_examples(results)}
    if any(result.top is not None for result in results):
        curves = [(f"{item.model} {item.method}", item.model, item.curve()) for item in results if item.top is not None]
        drawn["top"] = figure.curves(curves, floor=1 / results[0].side ** 2)
    for method in dict.fromkeys(result.method for result in results):
        if points := _swept([item for item in results if item.method == method]):
            drawn["sweep" if "sweep" not in drawn else f"sweep-{method}"] = figure.draw_sweep(points)
    return drawn


def _swept(results: Sequence["LocalisationResult"]) -> list[figure.Swept]:
    """By B, the networks whose names differ in nothing else, if there are such."""
    series: dict[str, list[LocalisationResult]] = {}
    for result in results:
        if result.b is not None:
            series.setdefault(B_OF_NAME.sub("", result.model), []).append(result)
    points = [
        figure.Swept(
            series=name,
            b=result.b or 0,
            box=_box(result),
            accuracy=_interval(result),
            grids=len(result.scores),
            images=result.pool,
        )
        for name, members in series.items()
        if len({result.b for result in members}) > 1
        for result in members
    ]
    return sorted(points, key=lambda point: point.b)


def _interval(result: "LocalisationResult") -> tuple[float, float, float] | None:
    if result.correct is None:
        return None
    share, low, high = (float(part) for part in wilson(*result.correct))
    return share, low, high


def _examples(results: Sequence["LocalisationResult"]) -> dict[str, "Figure"]:
    """The first grid of every result, of few results more, six rows to a page; those of one grid together."""
    per_result = max(1, figure.ROWS // len(results))
    rows = [_example(result, grid) for grid in range(per_result) for result in results if grid < len(result.images)]
    pages = [rows[start : start + figure.ROWS] for start in range(0, len(rows), figure.ROWS)]
    return {"examples" + (f"-{i}" if i > 1 else ""): figure.examples(page) for i, page in enumerate(pages, start=1)}


def _example(result: "LocalisationResult", grid: int) -> figure.Example:
    return figure.Example(
        text=f"{result.model}\n{result.method}", image=result.images[grid], maps=result.maps[grid],
        scores=result.scores[grid],
        names=[result.classes[target] for target in result.targets[grid]], side=result.side, smooth=result.smooth,
    )  # fmt: skip
