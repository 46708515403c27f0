"""The figure of saliency: images beside the maps of models and methods, with accuracies in the titles."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from scs_eval.analyses.attribution.methods import caption
from scs_eval.analyses.plotting.image_grid import split_name
from scs_eval.analyses.plotting.map_columns import MapColumn, draw_maps
from scs_eval.analyses.saliency.reductions import find_reduction
from scs_eval.errors import InputError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from scs_eval.analyses.saliency.result import SaliencyResult


def draw(results: Sequence["SaliencyResult"], ax: "Axes | None" = None, *, page: str = "") -> "Figure":
    """A row for each image that the first result shows, a column for each result. page: which of several this is."""
    first = results[0]
    names = np.array([*first.classes, "unlabelled"])  # −1 is the last
    shown = first.indices[: len(first.images)]
    columns = [_column(result, shown, several=len({item.method for item in results}) > 1) for result in results]
    rows = [str(name) for name in names[first.labels[: len(shown)]]]
    return draw_maps(first.images, rows, columns, note=f"{_note(results)} {page}", ax=ax)


def _column(result: "SaliencyResult", shown: np.ndarray, *, several: bool) -> MapColumn:
    """A model's maps, what it predicted, and its title: accuracy overall, and of the class if all images have one."""
    positions = _positions(result, shown)
    labels, predictions = result.labels[positions], result.predictions[positions]
    lines = [*split_name(result.model, 14), *([result.method] if several else [])]
    if result.accuracy is not None:
        lines.append(f"{100 * result.accuracy:.1f} % overall")
    own = result.classes[labels[0]]
    labelled = labels[0] >= 0
    if labelled and len(set(labels.tolist())) == 1 and own in result.class_accuracy:
        lines.append(f"{100 * result.class_accuracy[own]:.0f} % {own}")
    predicted = [result.classes[position] for position in predictions]
    right = (predictions == labels).tolist() if labelled else None
    return MapColumn("\n".join(lines), result.maps[positions], predicted, right)


def _positions(result: "SaliencyResult", shown: np.ndarray) -> list[int]:
    """Where the images with these indices are: results of another number of images may have them in another order."""
    positions = {int(index): position for position, index in enumerate(result.indices)}
    if missing := [index for index in shown.tolist() if index not in positions]:
        raise InputError(f"{result.label} has no map of image {missing[0]}; draw results for the same images")
    return [positions[index] for index in shown.tolist()]


def _note(results: Sequence["SaliencyResult"]) -> str:
    """What the colours and words mean."""
    methods = ", ".join(dict.fromkeys(caption(result.method) for result in results))
    whose = {"predicted": "of the predicted class", "label": "of the true class"}.get(
        results[0].target, f"of the class {results[0].target}"
    )
    how = find_reduction(results[0].reduce).words
    labelled = results[0].labels[0] >= 0
    alone = len(set(results[0].labels[: len(results[0].images)].tolist())) == 1
    known = alone and any(result.class_accuracy for result in results)
    return (
        f"{methods} {whose}, {how}. Each map has its own scale, from 0 to its 99th percentile. "
        f"Below each map, what the model predicts{' (✓ right, ✗ wrong)' if labelled else ''}."
        + (" Accuracy: overall as recorded in training, of the class on the images at hand." if known else "")
    )
