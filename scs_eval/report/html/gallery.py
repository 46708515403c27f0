"""The gallery of a comparison: each image with all models' explanations, and what to sort and filter by."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from itertools import combinations
from typing import Any

import numpy as np

from scs_eval.analyses.attribution.similarity import spearman
from scs_eval.analyses.core.result import Comparison, Result
from scs_eval.analyses.plotting import colour
from scs_eval.report.html.sheets import (
    Palettes,
    Sheet,
    change_sheet,
    palettes_for,
    picture_sheet,
    signed_sheet,
    size_sheet,
    tile_side,
)

# kind of map -> what the reader is told about it
KINDS = {
    "contributions": "W(x)⊙x of the predicted class: what each pixel adds to its logit; orange for, blue against",
    "colours": "W(x) of networks that encode [x, 1−x], as colours",
    "saliency": "gradient of the predicted class: the largest of the channels, bright is large",
}
Explained = Mapping[str, Mapping[str, Any]]  # kind of analysis → model → result


@dataclass(frozen=True, kw_only=True)
class Prediction:
    """What one model says of an image.

    likeliest: the first classes with their probabilities, where they were kept. breaks: the smallest ε that fools it,
    in words, and `attacked` what it says then. adds_up: how its contributions make the logit.
    """

    model: str
    predicted: str
    right: bool
    likeliest: Sequence[tuple[str, float]] = ()
    breaks: str = ""
    attacked: str = ""
    adds_up: str = ""


FIELDS = tuple(
    field.name for field in fields(Prediction) if field.name != "model"
)  # a model's name is the same for all


@dataclass(frozen=True, kw_only=True)
class Entry:
    """An image of the gallery. agreement: the mean rank correlation of the models' maps, None if there is none."""

    index: int
    truth: str
    agreement: float | None
    predictions: Sequence[Prediction]


@dataclass(frozen=True, kw_only=True)
class Gallery:
    """What the page's script shows: entries, and of each kind of picture a sheet for each model that has any."""

    entries: Sequence[Entry]
    images: Sheet
    kinds: Mapping[str, str]
    sheets: Mapping[str, Sequence[Sheet | None]]
    palettes: Palettes

    def data(self) -> dict[str, Any]:
        """As JSON values."""
        return {
            "entries": [self._entry(entry) for entry in self.entries],
            "fields": FIELDS,
            "models": [prediction.model for prediction in self.entries[0].predictions],
            "images": asdict(self.images),
            "kinds": dict(self.kinds),
            "sheets": {kind: [sheet and asdict(sheet) for sheet in sheets] for kind, sheets in self.sheets.items()},
            "palettes": {"contributions": self.palettes.signed, "saliency": self.palettes.size},
            "steps": self.palettes.steps,
        }

    @staticmethod
    def _entry(entry: Entry) -> dict[str, Any]:
        """Predictions as rows of FIELDS: thousands of them."""
        told = [[getattr(prediction, field) for field in FIELDS] for prediction in entry.predictions]
        return {**vars(entry), "predictions": told}


def gallery(parts: Mapping[str, Result]) -> Gallery | None:
    """An entry for each image that the models were explained on; the main map is the contributions, else saliency."""
    entries = entries_of(parts)
    if not entries:
        return None
    explained, main = _explained(parts)
    pictures = max((result.images for result in main.values()), key=len)[: len(entries)]
    attacked = {result.label: result for result in _results(parts, "pgd") if result.changes is not None}
    maps = len(entries) * (sum(map(len, explained.values())) + len(attacked))
    side, palettes = tile_side(max(pictures.shape[2:]), maps), palettes_for(maps)
    drawn = [_sheets(label, explained, len(entries), side, palettes) for label in main]
    kinds = {kind: words for kind, words in KINDS.items() if any(kind in sheets for sheets in drawn)}
    sheets: dict[str, list[Sheet | None]] = {kind: [some.get(kind) for some in drawn] for kind in kinds}
    sheets["changes"] = [
        change_sheet(attacked[label].changes[: len(entries)], side=side, palettes=palettes)
        if label in attacked
        else None
        for label in main
    ]
    return Gallery(
        entries=entries,
        images=picture_sheet(pictures, side=side, exact=palettes.exact),
        kinds=kinds,
        sheets=sheets,
        palettes=palettes,
    )


def entries_of(parts: Mapping[str, Result]) -> list[Entry]:
    """The entries without their pictures."""
    explained, main = _explained(parts)
    if not main:
        return []
    first = next(iter(main.values()))
    pictures = max(len(result.images) for result in main.values())
    count = min(pictures, *(len(result.maps) for kind in explained.values() for result in kind.values()))
    kind = explained["contributions"] if len(explained["contributions"]) == len(main) else explained["saliency"]
    alike = (
        agreement([result.maps[:count] for result in kind.values()])
        if len(kind) == len(main)
        else np.full(count, np.nan)
    )
    predictions = [_predictions(result, parts, count) for result in main.values()]
    return [
        Entry(
            index=int(first.indices[position]),
            truth=first.classes[first.labels[position]] if first.labels[position] >= 0 else "",
            agreement=None if np.isnan(alike[position]) else round(float(alike[position]), 6),
            predictions=[model[position] for model in predictions],
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


def _explained(parts: Mapping[str, Result]) -> tuple[Explained, Mapping[str, Any]]:
    """The results that have maps, and for every model its main one."""
    explained = {
        kind: {result.label: result for result in _results(parts, kind)} for kind in ("saliency", "contributions")
    }
    return explained, {**explained["saliency"], **explained["contributions"]}


def _results(parts: Mapping[str, Result], analysis: str) -> Sequence[Any]:
    part = parts.get(analysis)
    return part.results if isinstance(part, Comparison) else ()


def _result_of(parts: Mapping[str, Result], analysis: str, label: str) -> Any:
    return next((result for result in _results(parts, analysis) if result.label == label), None)


def _sheets(label: str, explained: Explained, count: int, side: int, palettes: Palettes) -> dict[str, Sheet]:
    """The maps of a model by kind."""
    drawn = {}
    if result := explained["contributions"].get(label):
        drawn["contributions"] = signed_sheet(result.maps[:count], side=side, palettes=palettes)
        if result.coloured:
            colours = colour.on_white(result.rgba()[:count]).transpose(0, 3, 1, 2)
            drawn["colours"] = picture_sheet(colours, side=side, exact=palettes.exact)
    if other := explained["saliency"].get(label):
        drawn["saliency"] = size_sheet(other.maps[:count].astype(float), side=side, palettes=palettes)
    return drawn


def _predictions(result: Any, parts: Mapping[str, Result], count: int) -> list[Prediction]:
    """What a model says of each image."""
    label, names = result.label, result.classes
    predicted = (result.pair[:, 0] if result.name == "contributions" else result.predictions)[:count]
    likeliest = _likeliest(_result_of(parts, "accuracy", label), count)
    breaks, attacked = _breaks(_result_of(parts, "pgd", label), count)
    adds_up = _adds_up(_result_of(parts, "contributions", label), count)
    return [
        Prediction(
            model=label, predicted=names[int(guess)], right=int(guess) == int(truth), likeliest=some, breaks=eps,
            attacked=then, adds_up=words,
        )
        for guess, truth, some, eps, then, words in zip(
            predicted, result.labels[:count], likeliest, breaks, attacked, adds_up, strict=True
        )
    ]  # fmt: skip


def _likeliest(result: Any, count: int) -> list[list[tuple[str, float]]]:
    """The likeliest classes of each image with their probabilities."""
    nothing: list[list[tuple[str, float]]] = [[]] * count
    if result is None or result.probabilities is None:
        return nothing
    rows = zip(result.likeliest[:count].tolist(), result.probabilities[:count].tolist(), strict=True)
    told = [  # to more digits than are shown, which are rounded once
        [(result.classes[k], round(p, 6)) for k, p in zip(places, chances, strict=True)] for places, chances in rows
    ]
    return told + nothing[: count - len(told)]


def _breaks(result: Any, count: int) -> tuple[list[str], list[str]]:
    """For each image the smallest ε that fools the model, in words, and what it says then; "" where not attacked."""
    if result is None:
        return [""] * count, [""] * count
    breaks, attacked = [], []
    for eps, then in zip(result.min_eps[:count], result.attacked_predictions[:count], strict=True):
        at = f"{255 * eps:.3g}/255" if result.norm == "linf" else f"{eps:.3g}"
        most = f"{255 * result.eps[-1]:.3g}/255" if result.norm == "linf" else f"{result.eps[-1]:.3g}"
        fooled = bool(np.isfinite(eps) and eps > 0)
        breaks.append("" if eps == 0 else f"fooled at ε {at}" if fooled else f"holds to ε {most}")
        attacked.append(result.classes[int(then)] if fooled else "")
    missing = [""] * (count - len(breaks))
    return breaks + missing, attacked + missing


def _adds_up(result: Any, count: int) -> list[str]:
    """For each image how contributions make the logit, and what is left over."""
    if result is None:
        return [""] * count
    return [_sum_of(row) for _, row in result.table()[:count].iterrows()]


def _sum_of(row: Any) -> str:
    """A row of the contributions' table as one line."""
    parts = [f"{row['contributions']:.3g} from pixels", f"{row['bias']:.3g} bias"]
    if row["logit_bias"]:
        parts.append(f"{row['logit_bias']:.3g} logit bias (all classes)")
    parts.append(f"{row['residual']:.0e} left over{'' if row['complete'] else ': INCOMPLETE'}")
    return f"logit {row['logit']:.3g} = {' + '.join(parts)}".replace("-", "−")
