"""The figures of contributions: maps with their numbers, Δ, mean-corrected, and several models side by side."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from scs_eval.analyses.attribution.completeness import percent
from scs_eval.analyses.plotting import colour, style
from scs_eval.analyses.plotting.image_grid import Grid, PictureColumn, empty_maps, split_name

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from scs_eval.analyses.contributions.result import ContributionsResult

EXPLAINED, FIRST, SECOND, MEAN = range(4)  # what a result's `rows` hold for each image
NARROW = 6  # models, from which on columns are too narrow for 16 letters
SCALE = f"Full colour at the {colour.SCALE:g}th percentile of each map"
NOTE = f"W(x)⊙x summed over channels, for and against the class. {SCALE}."


def map_figure(result: "ContributionsResult", ax: "Axes | None" = None) -> "Figure":
    """A row per image: the image, the picture (six channels), the signed map, the map over the image, numbers."""
    columns = [_images(result)]
    if result.coloured:
        columns.append(
            PictureColumn(title=f"W(x) as colours\n({result.picture})", pictures=_pictures(result, EXPLAINED))
        )
    signed = colour.signed(result.maps[: result.shown])
    columns.append(PictureColumn(title="contributions", pictures=signed, empty=empty_maps(result.maps)))
    images, maps = result.images[: result.shown], result.maps[: result.shown]
    columns.append(PictureColumn(title="over the image", pictures=colour.overlay(images, maps)))
    texts = [_text(result, position) for position in range(len(images))]
    note = f"{_whose(result)}\n{NOTE}"
    return Grid(columns=columns, texts=texts, marked=list(~result.complete), note=note, most=result.shown).draw(ax)


def delta_figure(result: "ContributionsResult", ax: "Axes | None" = None) -> "Figure":
    """The two most likely classes and the difference of their maps, of the least sure images first (Fig. 11)."""
    images, result = len(result.labels), result.least_sure(result.shown)
    maps = [result.map_of(row)[: result.shown] for row in (FIRST, SECOND)]
    scale = np.maximum(*(colour.scale_of(item) for item in maps))
    columns = [_images(result)]
    for position, title in enumerate(("most likely", "second")):
        shown = _pictures(result, FIRST + position) if result.coloured else colour.signed(maps[position], scale=scale)
        names = [f"{result.classes[k]} {style.format_number(logit)}" for k, logit in _top(result, position)]
        columns.append(PictureColumn(title=title, pictures=shown, captions=names, empty=empty_maps(maps[position])))
    delta = colour.signed(result.delta[: result.shown])
    empty = empty_maps(result.delta)
    columns.append(PictureColumn(title="difference Δ", pictures=delta, captions=_leads(result), empty=empty))
    note = f"{_whose(result, images)}\nΔ: for the most likely class (orange) or the second (blue). {SCALE}"
    note += "." if result.coloured else "; the two classes share one scale."
    return Grid(columns=columns, note=note, most=result.shown).draw(ax)


def mean_figure(result: "ContributionsResult", ax: "Axes | None" = None) -> "Figure":
    """The map, the mean of all classes' maps, and their difference, on one scale per image (Fig. 14)."""
    parts = {"contributions": result.maps, "mean of all classes": result.map_of(MEAN)}
    parts["mean-corrected"] = result.mean_corrected
    scale = np.max([colour.scale_of(item[: result.shown]) for item in parts.values()], axis=0)
    columns = [_images(result)]
    for title, maps in parts.items():
        captions = [f"sum {style.format_number(item)}" for item in maps.sum((1, 2))[: result.shown]]
        pictures = colour.signed(maps[: result.shown], scale=scale)
        columns.append(PictureColumn(title=title, pictures=pictures, captions=captions, empty=empty_maps(maps)))
    note = f"{_whose(result)}\n{NOTE[:-1]}, the largest of a row for all of it."
    return Grid(columns=columns, note=note, most=result.shown).draw(ax)


def comparison_figure(
    results: Sequence["ContributionsResult"], ax: "Axes | None" = None, *, page: str = ""
) -> "Figure":
    """A row per image, a column per model: the colour picture where W has six channels, else the signed map."""
    longest = 16 if len(results) < NARROW else 13
    columns = [_images(results[0]), *(_model_column(result, longest) for result in results)]
    colours = " Networks that encode [x, 1−x]: W(x) as colours." if any(result.coloured for result in results) else ""
    note = f"{NOTE}{colours} bias: the median of |bias| / (Σ|W(x)⊙x| + |bias|). !: incomplete. {page}"
    return Grid(columns=columns, note=note, most=results[0].shown).draw(ax)


def _images(result: "ContributionsResult") -> PictureColumn:
    names = np.array([*result.classes, "unlabelled"])[result.labels]
    captions = [f"{name}, {index}" for name, index in zip(names, result.indices, strict=True)]
    return PictureColumn(title="image", pictures=np.moveaxis(result.images[: result.shown], 1, -1), captions=captions)


def _pictures(result: "ContributionsResult", row: int) -> np.ndarray:
    return colour.on_white(result.rgba(row=row)[: result.shown])


def _top(result: "ContributionsResult", position: int) -> list[tuple[int, float]]:
    pairs = zip(result.pair[:, position], result.logits[:, FIRST + position], strict=True)
    return list(pairs)[: result.shown]


def _leads(result: "ContributionsResult") -> list[str]:
    """How far the most likely class leads, and how much of that the biases do."""
    table = result.table()[: result.shown]
    return [f"{lead:.2f}, bias {percent(share)}" for lead, share in table[["lead", "lead_bias_share"]].to_numpy()]


def _text(result: "ContributionsResult", position: int) -> str:
    row = result.table().iloc[position]
    lines = [
        f"explained: {row['explained']}",
        f"logit {style.format_number(row['logit'])} =",
        f"   pixels {style.format_number(row['contributions'])}",
        f"   + bias {style.format_number(row['bias'])} (share {percent(row['bias_share'])})",
        *([f"   + logit bias {style.format_number(row['logit_bias'])} (all classes)"] if row["logit_bias"] else []),
        f"   + residual {style.format_number(row['residual'], '.0e')}",
    ]
    if row["meaningless"]:
        return "\n".join([*lines, "MEANINGLESS: no more than", "the residual"])
    return "\n".join(lines if row["complete"] else [*lines, f"INCOMPLETE by {percent(row['relative_residual'])}"])


def _whose(result: "ContributionsResult", images: int | None = None) -> str:
    images, few = images or len(result.labels), len(result.images[: result.shown])
    hidden = f"; {few} of {images} images" if images > few else ""
    return f"{result.label}{hidden}"


def _model_column(result: "ContributionsResult", longest: int) -> PictureColumn:
    """One model's pictures; its name in lines of so many letters and its bias above, class and logit below each."""
    shown = _pictures(result, EXPLAINED) if result.coloured else colour.signed(result.maps[: result.shown])
    table = result.table()
    cells = zip(table["explained"], table["logit"], table["complete"], strict=True)
    names = [f"{name} {style.format_number(logit, '.1f')}{'' if complete else ' !'}" for name, logit, complete in cells]
    title = [*split_name(result.label, longest), f"bias {percent(float(table['bias_share'].median()))}"]
    return PictureColumn(title="\n".join(title), pictures=shown, captions=names, empty=empty_maps(result.maps))
