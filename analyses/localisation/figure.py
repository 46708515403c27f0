"""Pictures of the pointing game, as in B-cos v2: boxes (Figures 6, B1), examples (3), top pixels (7), B (5)."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pandas as pd

from scs_eval.analyses.plotting import style
from scs_eval.analyses.plotting.colour import signed
from scs_eval.analyses.plotting.image_grid import SHOWN, Grid, PictureColumn, empty_maps
from scs_eval.analyses.plotting.lines import FEW, Dash, LineStyles, label_curves, shade

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

ROWS = SHOWN
FINE, SHARP = 6, 600  # pixels of a picture for each of a map, so that a frame can be thin; a picture's side will do
WHISKERS = (5, 95)  # percentiles
CEILING = "ceiling of an even map"


class Box(NamedTuple):
    """All scores of a model by a method; their mean with its interval; of the strongest pixels alone, if any."""

    model: str
    method: str
    scores: np.ndarray
    mean: tuple[float, float, float]
    floor: float
    ceiling: float
    top: float | None = None


class Swept(NamedTuple):
    """One network of a series: its B, its scores on so many grids, its accuracy with its interval on so many images."""

    series: str
    b: float
    box: Box
    accuracy: tuple[float, float, float] | None
    grids: int
    images: int


class Example(NamedTuple):
    """A grid (3, H, W) and its n² maps (n², H, W) with their scores and the names of the classes."""

    text: str
    image: np.ndarray
    maps: np.ndarray
    scores: np.ndarray
    names: Sequence[str]
    side: int
    smooth: int


def draw_boxes(shown: Sequence[Box], *, title: str, ax: "Axes | None" = None) -> "Figure":
    """A box for each model and method, the models one below the other; the mean and its interval as numbers."""
    lines = _lines(shown)
    with style.drawing(ax, height=1.15 + 0.24 * max(lines)) as ax:
        for y, box in lines.items():
            _box(ax, y, box)
        headed = len({box.model for box in shown}) > 1 and len({box.method for box in shown}) > 1
        if headed:
            _headings(ax, lines)
        ax.set_yticks(list(lines), [_name(box, shown) for box in lines.values()])
        ax.tick_params(axis="y", length=0)
        ax.set(xlim=(0, 102), ylim=(max(lines) + 0.75, min(lines) - (1.6 if headed else 0.9)))
        _limits(ax, shown)
        ax.set_xlabel(_legend(shown), fontsize=style.points(7))
        ax.set_title(title, loc="left", pad=12)
        return style.figure_of(ax)


def _lines(shown: Sequence[Box]) -> dict[float, Box]:
    """Where each box stands: a gap before every model if models have several boxes."""
    models = list(dict.fromkeys(box.model for box in shown))
    gap = 1.0 if 1 < len(models) < len(shown) else 0.0
    ordered = sorted(shown, key=lambda box: models.index(box.model))
    return {position + gap * models.index(box.model): box for position, box in enumerate(ordered)}


def _name(box: Box, shown: Sequence[Box]) -> str:
    return box.method if len({item.method for item in shown}) > 1 else box.model


def _headings(ax: "Axes", lines: dict[float, Box]) -> None:
    """The name of each model above its boxes."""
    for model in dict.fromkeys(box.model for box in lines.values()):
        top = min(y for y, box in lines.items() if box.model == model)
        ax.annotate(
            model, (0, top - 0.85), (-4, 0), xycoords=ax.get_yaxis_transform(), textcoords="offset points", ha="right",
            va="center", fontweight="bold", fontsize=style.points(7), annotation_clip=False,
        )  # fmt: skip


def _box(ax: "Axes", y: float, box: Box) -> None:
    colour = style.look_of(box.model)[0]
    _distribution(ax, y, box.scores, colour, vertical=False)
    mean, low, high = (100 * part for part in box.mean)
    name = style.unlisted(f"{box.model} {box.method}")
    ax.plot(mean, y, "D", mfc="white", mec="black", ms=3.6, mew=0.8, zorder=5, label=name)
    if box.top is not None:
        ax.plot(100 * box.top, y, "*", color="black", ms=5, mew=0, zorder=6)
    text = f"{mean:.1f}" + ("" if np.isnan(low) else f"  [{low:.1f}, {high:.1f}]")
    ax.annotate(
        text, (1, y), (4, 0), xycoords=ax.get_yaxis_transform(), textcoords="offset points", va="center",
        fontsize=style.points(7),
        annotation_clip=False,
    )  # fmt: skip


def _distribution(
    ax: "Axes", at: float, scores: np.ndarray, colour: str, *, vertical: bool, width: float = 0.6
) -> None:
    from matplotlib.colors import to_rgb

    parts = ax.boxplot(
        [100 * scores], positions=[at], orientation="vertical" if vertical else "horizontal", widths=width,
        whis=WHISKERS, showfliers=False, patch_artist=True, manage_ticks=False,
    )  # fmt: skip
    for line in (*parts["whiskers"], *parts["caps"], *parts["medians"], *parts["boxes"]):
        line.set(color=colour, linewidth=0.9)
    for patch in parts["boxes"]:
        patch.set_facecolor((*to_rgb(colour), 0.35))


def _limits(ax: "Axes", shown: Sequence[Box]) -> None:
    """Chance, and what smoothing leaves of a map even in its cell where that is less, as lines with names above."""
    every = {round(100 * box.ceiling, 1) for box in shown}
    name = f"{CEILING}, smoothed" if len(every) > 1 else CEILING
    for x, name in ((100 * shown[0].floor, "chance"), *((ceiling, name) for ceiling in sorted(every - {100.0}))):
        ax.axvline(x, color=style.GREY, lw=0.7, ls="--", zorder=0)
        ax.annotate(
            f"{name} {x:.1f}", (x, 1), (0, 2), xycoords=ax.get_xaxis_transform(), textcoords="offset points",
            ha="center", va="bottom", fontsize=style.points(6.5), color=style.GREY,
        )  # fmt: skip


def _legend(shown: Sequence[Box]) -> str:
    """What is shown, in words below the axis."""
    star = "★ mean of the strongest pixels alone; " if any(box.top is not None for box in shown) else ""
    marks = f"box: quartiles; whiskers: 5th to 95th percentile; ◇ mean\n{star}right: mean [95 % interval]"
    return f"positive attribution in the right cell, % of all\n{style.note(marks)}".rstrip()


def examples(rows: Sequence[Example]) -> "Figure":
    """For each model and method one grid, of whatever size, and beside it the map of each class, its cell framed."""
    cells = rows[0].side ** 2
    shared = all(list(row.names) == list(rows[0].names) for row in rows)
    columns = [PictureColumn(title="grid", pictures=[_enlarged(row.image.transpose(1, 2, 0)) for row in rows])]
    for cell in range(cells):
        maps, empty = [_framed(row, cell) for row in rows], empty_maps([row.maps[cell] for row in rows])
        words = [
            f"{100 * row.scores[cell]:.0f} %" if shared else f"{row.names[cell]} {100 * row.scores[cell]:.0f} %"
            for row in rows
        ]
        columns.append(
            PictureColumn(title=rows[0].names[cell] if shared else "", pictures=maps, captions=words, empty=empty)
        )
    smoothing = ["smoothed" if row.smooth > 1 else "not smoothed" for row in rows]
    mixed = len(set(smoothing)) > 1  # coarse maps are not smoothed: then every row says what was done
    texts = [f"{row.text}, {done}" if mixed else row.text for row, done in zip(rows, smoothing, strict=True)]
    note = (
        f"Maps as they are scored: summed over channels{'' if mixed else f', {smoothing[0]}'}.\n"
        "Each has its own scale. "
        "Framed: the cell of the class; below,\nwhich share of the positive part lies in it."
    )
    return Grid(columns=columns, note=note, texts=texts).draw()


def _enlarged(picture: np.ndarray) -> np.ndarray:
    """(H, W, C), each pixel a square; a large picture needs none."""
    fine = max(1, min(FINE, SHARP // len(picture)))
    return np.kron(picture, np.ones((fine, fine, 1)))


def _framed(row: Example, cell: int) -> np.ndarray:
    """The signed map in colours, enlarged, with a frame round the right cell."""
    picture = _enlarged(signed(row.maps[cell][None])[0])
    size = picture.shape[0] // row.side
    top, left, width = cell // row.side * size, cell % row.side * size, max(2, picture.shape[0] // 45)
    frame = np.zeros(picture.shape[:2], dtype=bool)
    frame[top : top + size, left : left + size] = True
    frame[top + width : top + size - width, left + width : left + size - width] = False
    picture[frame] = 0
    return picture


def curves(shown: Sequence[tuple[str, str, pd.DataFrame]], *, floor: float) -> "Figure":
    """The score over how many of the strongest pixels count, for (name, model, curve)."""
    styles = LineStyles()
    sizes = sorted({int(curve["pixels"].iloc[-1]) for _, _, curve in shown})  # each curve ends with all pixels
    with style.drawing(None, height=3.0 + 0.06 * max(0, len(shown) - FEW)) as ax:
        ends: list[style.End] = []
        dashes: list[Dash] = []
        alpha = shade(len(shown))
        for name, model, curve in shown:
            colour, _, dash = styles.next_for(model)
            dashes.append(dash)
            ax.plot(curve["pixels"], 100 * curve["score"], ls=dash, color=colour, label=name)
            ax.fill_between(curve["pixels"], 100 * curve["low"], 100 * curve["high"], color=colour, alpha=alpha, lw=0)
            ends.append((float(curve["pixels"].iloc[-1]), 100 * float(curve["score"].iloc[-1]), name, colour))
        ax.axhline(100 * floor, color=style.GREY, lw=0.7, ls="--", zorder=0)
        ends.append((float(sizes[-1]), 100 * floor, f"chance {100 * floor:.1f}", style.GREY))
        first = min(float(curve["pixels"].iloc[0]) for _, _, curve in shown)
        ax.set(xscale="log", xlim=(first, sizes[-1]), ylim=(0, 102))
        ax.xaxis.set_major_formatter("{x:g}")  # matplotlib's own are formulas, which the style does not read
        ax.set_xlabel(f"strongest pixels that count, of {' or '.join(f'{size:,}' for size in sizes)}")
        ax.set_ylabel("positive attribution\nin the right cell, %")
        label_curves(ax, ends, [*dashes, ""])
        return style.figure_of(ax)


def draw_sweep(points: Sequence[Swept]) -> "Figure":
    """Accuracy and localisation against B; networks of different series beside one another."""
    with style.paper_style():
        above, below = style.panels(2, 1, width=4.4, height=3.6, sharex=True)
        positions, names = sorted({point.b for point in points}), list(dict.fromkeys(point.series for point in points))
        step = float(min(np.diff(positions)))
        width = 0.5 * step / len(names)
        for point in points:
            position = names.index(point.series)
            colour = style.look_of(point.box.model)[0] if len(names) == 1 else style.CYCLE[position % len(style.CYCLE)]
            at = point.b + 1.3 * width * (position - (len(names) - 1) / 2)
            _accuracy(above, at, point, colour)
            _distribution(below, at, point.box.scores, colour, vertical=True, width=width)
            below.plot(at, 100 * point.box.mean[0], "D", mfc="white", mec="black", ms=3.6, mew=0.8, zorder=5)
        for y, name in ((points[0].box.floor, "chance"), (points[0].box.ceiling, CEILING.replace(" an", "\nan"))):
            below.axhline(100 * y, color=style.GREY, lw=0.7, ls="--", zorder=0)
            below.annotate(f"{name} {100 * y:.1f}", (1, 100 * y), (3, 0),
                           xycoords=below.get_yaxis_transform(), textcoords="offset points",
                           fontsize=style.points(6.5), color=style.GREY, va="center")  # fmt: skip
        above.set_ylabel("accuracy, %")
        below.set(ylabel="localisation, %", ylim=(0, 102))
        below.set_xlabel(f"B (maps: {points[0].box.method})\n{_basis(points)}", fontsize=style.points(7))
        below.set_xticks(positions, [f"{position:g}" for position in positions])
        below.set_xlim(positions[0] - step, positions[-1] + step)
        if len(names) > 1:
            above.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=2, borderaxespad=0)  # no room among the points
        else:
            above.set_title(names[0], loc="left")
        return style.figure_of(above)


def _basis(points: Sequence[Swept]) -> str:
    """On how many grids and images a sweep rests."""
    grids, images = (sorted({number(point) for point in points}) for number in (lambda p: p.grids, lambda p: p.images))
    return f"accuracy: {_span(images)} images, 95 % interval; localisation: {_span(grids)} grids, ◇ mean"


def _span(numbers: Sequence[int]) -> str:
    return " to ".join(f"{number:,}" for number in dict.fromkeys((numbers[0], numbers[-1])))


def _accuracy(ax: "Axes", at: float, point: Swept, colour: str) -> None:
    if point.accuracy is None:
        return
    mean, low, high = (100 * part for part in point.accuracy)
    known = set(ax.get_legend_handles_labels()[1])
    ax.errorbar(
        at, mean, yerr=[[mean - low], [high - mean]], fmt="x", color=colour, ms=5, elinewidth=0.9,
        label=None if point.series in known else point.series,
    )  # fmt: skip
