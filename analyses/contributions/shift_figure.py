"""The figure of shifts: a row for each network, and how steady its maps are."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from scs_eval.analyses.plotting import colour, style
from scs_eval.analyses.plotting.map_columns import EMPTY

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from scs_eval.analyses.contributions.result import ContributionsResult

NOTE = (
    "One image shifted by so many pixels along its diagonal, and what its pixels add to the class seen in the image "
    "itself. r: correlation of the map, shifted back, with that of the image itself."
)


def stability(maps: np.ndarray) -> np.ndarray:
    """The correlation of each map (2 · most + 1, H, W), shifted back, with the middle one, where both are inside.

    NaN where one of the two is constant.
    """
    most = len(maps) // 2
    middle = maps[most, most:-most, most:-most].ravel()
    inside = [
        np.roll(values, (-by, -by), (0, 1))[most:-most, most:-most].ravel()
        for by, values in zip(range(-most, most + 1), maps, strict=True)
    ]
    with np.errstate(invalid="ignore"):
        return np.array([np.corrcoef(middle, values)[0, 1] for values in inside])


def _likeness(values: np.ndarray, r: float) -> str:
    if not values.any():
        return EMPTY
    return f"r = {style.format_number(r)}" if np.isfinite(r) else "r unknown"


def shift_figure(results: Mapping[str, "ContributionsResult"], *, page: str = "") -> "Figure":
    """A row of images and a row for each network: the picture of W(x), or the signed map where it has no colours."""
    first = next(iter(results.values()))
    shape = len(results) + 1, len(first.indices)
    with style.paper_style():
        panels = style.panels(*shape, width=0.72 * shape[1] + 0.6, height=0.9 * shape[0] + 0.4)
        rows = [panels[start : start + shape[1]] for start in range(0, len(panels), shape[1])]
        pictures = {"image": np.moveaxis(first.images, 1, -1)}
        captions = {"image": [style.format_number(by, "+d") if by else "0" for by in first.indices]}
        for name, result in results.items():
            pictures[name] = colour.on_white(result.rgba())
            captions[name] = [_likeness(*pair) for pair in zip(result.maps, stability(result.maps), strict=True)]
        for axes, name in zip(rows, pictures, strict=True):
            axes[0].set_ylabel(name.replace("_", "\n"), fontsize=style.points(7))
            for ax, picture, caption in zip(axes, pictures[name], captions[name], strict=True):
                ax.imshow(picture.clip(0, 1), interpolation="nearest")
                ax.set(xticks=[], yticks=[])
                ax.set_xlabel(caption, fontsize=style.points(6.5))
        style.write_note(panels[0], f"{NOTE} {page}")
        return style.figure_of(panels[0])
