"""The gallery of a comparison: each image with all models' explanations, and what to sort and filter by."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np

from scs_eval.analyses.attribution.similarity import spearman
from scs_eval.analyses.core.result import Comparison, Result
from scs_eval.analyses.plotting import colour
from scs_eval.analyses.plotting.map_columns import COLOURS, scaled
from scs_eval.report.html.pictures import picture_uri

# kind of map -> what the reader is told about it
KINDS = {
    "contributions": "W(x)⊙x of the predicted class: what each pixel adds to its logit; orange for, blue against",
    "colours": "W(x) of networks that encode [x, 1−x], as colours",
    "saliency": "gradient of the predicted class: the largest of the channels, bright is large",
}


@dataclass(frozen=True, kw_only=True)
class Prediction:
    """What one model says of an image: its class, whether that is right, the smallest ε that fools it (in words), and
    its maps by kind, as data URIs."""

    model: str
    predicted: str
    right: bool
    breaks: str
    maps: Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class Entry:
    """An image of the gallery. agreement: the mean rank correlation of the models' maps, None if there is none."""

    index: int
    truth: str
    image: str
    agreement: float | None
    predictions: Sequence[Prediction]

    @property
    def wrong(self) -> str:
        """The places of the models that are wrong, between blanks."""
        return " ".join(str(position) for position, prediction in enumerate(self.predictions) if not prediction.right)

    @property
    def same(self) -> bool:
        """Whether all models say the same."""
        return len({prediction.predicted for prediction in self.predictions}) == 1


def gallery(parts: Mapping[str, Result]) -> list[Entry]:
    """An entry for each image that the models were explained on; the main map is the contributions, else saliency."""
    explained = {
        kind: {result.label: result for result in _results(parts, kind)} for kind in ("saliency", "contributions")
    }
    main = {**explained["saliency"], **explained["contributions"]}
    if not main:
        return []
    first = next(iter(main.values()))
    pictures = max((result.images for result in main.values()), key=len)
    count = min(len(pictures), *(len(result.maps) for kind in explained.values() for result in kind.values()))
    kind = explained["contributions"] if len(explained["contributions"]) == len(main) else explained["saliency"]
    alike = (
        agreement([result.maps[:count] for result in kind.values()])
        if len(kind) == len(main)
        else np.full(count, np.nan)
    )
    drawn = {label: _pictures(label, explained, count) for label in main}
    breaks = {result.label: _breaks(result, count) for result in _results(parts, "pgd")}
    return [
        Entry(
            index=int(first.indices[position]),
            truth=first.classes[first.labels[position]],
            image=picture_uri(pictures[position].transpose(1, 2, 0)),
            agreement=None if np.isnan(alike[position]) else float(alike[position]),
            predictions=[
                _prediction(result, position, drawn[label], breaks.get(label)) for label, result in main.items()
            ],
        )
        for position in range(count)
    ]


def agreement(maps: Sequence[np.ndarray]) -> np.ndarray:
    """(n,) the mean Spearman correlation of every two models' maps (n, H, W), at the smallest of their sizes."""
    side = min(min(array.shape[1:]) for array in maps)
    same = [_pooled(array, side) for array in maps]
    pairs = [spearman(a, b) for a, b in combinations(same, 2)]
    return np.mean(pairs, axis=0) if pairs else np.full(len(maps[0]), np.nan)


def _pooled(maps: np.ndarray, side: int) -> np.ndarray:
    """Maps averaged down to side × side."""
    from torch import from_numpy
    from torch.nn.functional import adaptive_avg_pool2d

    if maps.shape[1:] == (side, side):
        return maps
    return adaptive_avg_pool2d(from_numpy(maps.astype(float)), (side, side)).numpy()


def _results(parts: Mapping[str, Result], analysis: str) -> Sequence[Any]:
    part = parts.get(analysis)
    return part.results if isinstance(part, Comparison) else ()


def _pictures(label: str, explained: Mapping[str, Mapping[str, Any]], count: int) -> dict[str, np.ndarray]:
    """The maps of a model by kind (count, H, W, 3)."""
    from matplotlib import colormaps

    drawn = {}
    if result := explained["contributions"].get(label):
        drawn["contributions"] = colour.signed(result.maps[:count])
        if result.coloured:
            drawn["colours"] = colour.on_white(result.rgba()[:count])
    if other := explained["saliency"].get(label):
        drawn["saliency"] = np.stack([colormaps[COLOURS](scaled(array))[..., :3] for array in other.maps[:count]])
    return drawn


def _breaks(result: Any, count: int) -> list[str]:
    """For each image the smallest ε that fools the model, in words; of images that were not attacked nothing."""
    words = []
    for eps in result.min_eps[:count]:
        at = f"{255 * eps:.3g}/255" if result.norm == "linf" else f"{eps:.3g}"
        most = f"{255 * result.eps[-1]:.3g}/255" if result.norm == "linf" else f"{result.eps[-1]:.3g}"
        words.append("" if eps == 0 else f"fooled at ε {at}" if np.isfinite(eps) else f"holds to ε {most}")
    return words + [""] * (count - len(words))


def _prediction(
    result: Any, position: int, drawn: Mapping[str, np.ndarray], breaks: Sequence[str] | None
) -> Prediction:
    predicted = int(result.pair[position, 0] if result.name == "contributions" else result.predictions[position])
    return Prediction(
        model=result.label,
        predicted=result.classes[predicted],
        right=predicted == int(result.labels[position]),
        breaks=breaks[position] if breaks else "",
        maps={kind: picture_uri(pictures[position]) for kind, pictures in drawn.items()},
    )
