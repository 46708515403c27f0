"""The gallery of a comparison: each image with all models' explanations, and what to sort and filter by."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np

from scs_eval.analyses import colour
from scs_eval.analyses.map_grid import COLOURS, scaled
from scs_eval.analyses.map_similarity import spearman
from scs_eval.analyses.result import Comparison, Result
from scs_eval.report.pictures import picture_uri

# kind of map -> what the reader is told about it
KINDS = {
    "contributions": "W(x)⊙x of the predicted class: what each pixel adds to its logit; orange for, blue against",
    "colours": "W(x) of networks that encode [x, 1−x], as colours",
    "saliency": "gradient of the predicted class: the largest of the channels, bright is large",
}


@dataclass(frozen=True, kw_only=True)
class Answer:
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
    answers: Sequence[Answer]

    @property
    def wrong(self) -> str:
        """The places of the models that are wrong, between blanks."""
        return " ".join(str(place) for place, answer in enumerate(self.answers) if not answer.right)

    @property
    def same(self) -> bool:
        """Whether all models say the same."""
        return len({answer.predicted for answer in self.answers}) == 1


def gallery(parts: Mapping[str, Result]) -> list[Entry]:
    """An entry for each image that the models were explained on; the main map is the contributions, else saliency."""
    explained = {kind: {one.label: one for one in _results(parts, kind)} for kind in ("saliency", "contributions")}
    main = {**explained["saliency"], **explained["contributions"]}
    if not main:
        return []
    first = next(iter(main.values()))
    pictures = max((one.images for one in main.values()), key=len)
    count = min(len(pictures), *(len(one.labels) for kind in explained.values() for one in kind.values()))
    kind = explained["contributions"] if len(explained["contributions"]) == len(main) else explained["saliency"]
    alike = agreement([one.maps[:count] for one in kind.values()]) if len(kind) == len(main) else np.full(count, np.nan)
    drawn = {label: _pictures(label, explained, count) for label in main}
    breaks = {one.label: _breaks(one, count) for one in _results(parts, "pgd")}
    return [
        Entry(
            index=int(first.indices[place]),
            truth=first.classes[first.labels[place]],
            image=picture_uri(pictures[place].transpose(1, 2, 0)),
            agreement=None if np.isnan(alike[place]) else float(alike[place]),
            answers=[_answer(one, place, drawn[label], breaks.get(label)) for label, one in main.items()],
        )
        for place in range(count)
    ]


def agreement(maps: Sequence[np.ndarray]) -> np.ndarray:
    """(n,) the mean Spearman correlation of every two models' maps (n, H, W), at the smallest of their sizes."""
    side = min(min(each.shape[1:]) for each in maps)
    same = [_pooled(each, side) for each in maps]
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
    found = parts.get(analysis)
    return found.results if isinstance(found, Comparison) else ()


def _pictures(label: str, explained: Mapping[str, Mapping[str, Any]], count: int) -> dict[str, np.ndarray]:
    """The maps of a model by kind (count, H, W, 3)."""
    from matplotlib import colormaps

    found = {}
    if one := explained["contributions"].get(label):
        found["contributions"] = colour.signed(one.maps[:count])
        if one.coloured:
            found["colours"] = colour.on_white(one.rgba()[:count])
    if other := explained["saliency"].get(label):
        found["saliency"] = np.stack([colormaps[COLOURS](scaled(each))[..., :3] for each in other.maps[:count]])
    return found


def _breaks(one: Any, count: int) -> list[str]:
    """For each image the smallest ε that fools the model, in words; of images that were not attacked nothing."""
    words = []
    for eps in one.critical[:count]:
        at = f"{255 * eps:.3g}/255" if one.norm == "linf" else f"{eps:.3g}"
        most = f"{255 * one.eps[-1]:.3g}/255" if one.norm == "linf" else f"{one.eps[-1]:.3g}"
        words.append("" if eps == 0 else f"fooled at ε {at}" if np.isfinite(eps) else f"holds to ε {most}")
    return words + [""] * (count - len(words))


def _answer(one: Any, place: int, drawn: Mapping[str, np.ndarray], breaks: Sequence[str] | None) -> Answer:
    said = int(one.pair[place, 0] if one.name == "contributions" else one.predictions[place])
    return Answer(
        model=one.label,
        predicted=one.classes[said],
        right=said == int(one.labels[place]),
        breaks=breaks[place] if breaks else "",
        maps={kind: picture_uri(pictures[place]) for kind, pictures in drawn.items()},
    )
