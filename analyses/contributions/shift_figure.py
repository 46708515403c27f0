"""The figure of shifts: a row for each network, and how steady its maps are."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from scs_eval.analyses.plotting import colour, style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from scs_eval.analyses.contributions.result import ContributionsResult


def stability(maps: np.ndarray) -> np.ndarray:
    """The correlation of each map (2 · most + 1, H, W), shifted back, with the middle one, where both are inside."""
    most = len(maps) // 2
    middle = maps[most, most:-most, most:-most].ravel()
    inside = [
        np.roll(values, (-by, -by), (0, 1))[most:-most, most:-most].ravel()
        for by, values in zip(range(-most, most + 1), maps, strict=True)
    ]
    return np.array([np.corrcoef(middle, values)[0, 1] for values in inside])


def shift_figure(results: Mapping[str, "ContributionsResult"]) -> "Figure":
    """A row of images and a row for each network: the picture of W(x), or the signed map where it has no colours."""
    from matplotlib import pyplot as plt

    first = next(iter(results.values()))
    shape = len(results) + 1, len(first.indices)
    with style.paper_style():
        figure, rows = plt.subplots(*shape, figsize=(0.72 * shape[1] + 0.6, 0.9 * shape[0] + 0.2), layout="constrained")
        pictures = {"image": np.moveaxis(first.images, 1, -1)}
        captions = {"image": [f"{by:+d}" if by else "0" for by in first.indices]}
        for name, result in results.items():
            pictures[name] = colour.on_white(result.rgba())
            captions[name] = [f"r = {value:.2f}" for value in stability(result.maps)]
        for axes, name in zip(rows, pictures, strict=True):
            axes[0].set_ylabel(name.replace("_", "\n"), fontsize=style.points(7))
            for ax, picture, caption in zip(axes, pictures[name], captions[name], strict=True):
                ax.imshow(picture.clip(0, 1), interpolation="nearest")
                ax.set(xticks=[], yticks=[])
                ax.set_xlabel(caption, fontsize=style.points(6.5))
    return figure
