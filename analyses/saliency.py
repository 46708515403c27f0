"""Where does the model look, and how sparse, specific and steady are its maps?

The SCS paper (sections 4.4 and 5.2) reads from pictures that sharpening makes saliency maps sparser. Here the pictures
come with numbers over many images, and with a paired test against the convolution twin.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn

from scs_eval.analyses import map_metrics
from scs_eval.analyses.attribution import attribute, find_method
from scs_eval.analyses.inputs import check_images, check_labels, logits_of
from scs_eval.analyses.map_grid import Column, draw_maps
from scs_eval.analyses.reductions import find_reduction
from scs_eval.analyses.result import Comparison, Result
from scs_eval.analyses.state import device_of, evaluating
from scs_eval.analyses.statistics import bootstrap_mean, holm, paired_bootstrap
from scs_eval.analyses.twins import twins
from scs_eval.errors import InputError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

METRICS = ("gini", "entropy", "top_mass", "class_correlation", "max_sensitivity")
HEADS = ("Gini", "entropy", "top 5 % mass", "class correlation", "max-sensitivity")
COLUMNS_PER_PAGE = 6


@dataclass(frozen=True, eq=False, kw_only=True)
class SaliencyResult(Result):
    """The maps of one model by one method, for n images.

    method, reduce, target: the attribution, what becomes of its channels, and which class was asked about.
    indices: (n,) which images; labels, predictions, targets: (n,) positions in `classes`.
    maps: (n, H, W) ≥ 0. images: (k, 3, H, W) the first k, which the figure shows.
    gini, entropy, top_mass, class_correlation, max_sensitivity: (n,) as in `map_metrics`; NaN where there is none.
    seconds: per image, for the maps alone.
    accuracy, class_accuracy: for the titles, what is known of the model overall, and by class on the data at hand.
    """

    name = "saliency"
    model: str
    method: str
    reduce: str
    target: str
    classes: tuple[str, ...]
    indices: np.ndarray
    labels: np.ndarray
    predictions: np.ndarray
    targets: np.ndarray
    maps: np.ndarray
    images: np.ndarray
    gini: np.ndarray
    entropy: np.ndarray
    top_mass: np.ndarray
    class_correlation: np.ndarray
    max_sensitivity: np.ndarray
    seconds: float
    accuracy: float | None = None
    class_accuracy: Mapping[str, float] = field(default_factory=dict)

    def table(self) -> pd.DataFrame:
        """One row: the mean and 95 % interval of every metric, seconds per image, how many maps are 0 everywhere."""
        row: dict[str, object] = {"model": self.model, "method": self.method, "n": len(self.maps)}
        for metric in METRICS:
            row.update(zip((metric, f"{metric}_low", f"{metric}_high"), self._mean(metric), strict=True))
        blank = int((self.maps.reshape(len(self.maps), -1).max(1) == 0).sum())
        return pd.DataFrame([{**row, "seconds_per_image": self.seconds, "blank_maps": blank}])

    def summary(self) -> pd.DataFrame:
        """Means with their intervals in brackets."""
        row = {"model": self.model, "method": self.method, "n": str(len(self.maps))}
        for head, metric in zip(HEADS, METRICS, strict=True):
            mean, low, high = self._mean(metric)
            row[head] = "" if np.isnan(mean) else f"{mean:.3f}" + ("" if np.isnan(low) else f" [{low:.3f}, {high:.3f}]")
        return pd.DataFrame([{**row, "ms/image": f"{1000 * self.seconds:.3g}"}])

    def tables(self) -> dict[str, pd.DataFrame]:
        """The table, and every image with its classes and metrics."""
        names = {key: np.array(self.classes)[getattr(self, key)] for key in ("labels", "predictions", "targets")}
        metrics = {metric: getattr(self, metric) for metric in METRICS}
        columns = {"model": self.model, "method": self.method, "index": self.indices, **names, **metrics}
        return {"table": self.table(), "images": pd.DataFrame(columns)}

    def figure(self, ax: "Axes | None" = None) -> "Figure":
        """Each image beside its map."""
        return _draw([self], ax)

    def _mean(self, metric: str) -> tuple[float, float, float]:
        """Over the images that have a value."""
        values = getattr(self, metric)
        values = values[np.isfinite(values)]
        if not len(values):
            return np.nan, np.nan, np.nan
        mean, low, high = (float(part) for part in bootstrap_mean(values))
        return mean, low, high


@dataclass(frozen=True, eq=False, kw_only=True)
class SaliencyComparison(Comparison[SaliencyResult]):
    """The maps of several models, methods or both."""

    name = "saliency"

    def tests(self) -> pd.DataFrame:
        """Sparseness against the convolution twin on the same images by the same method: paired bootstrap, Holm."""
        rows = [_test(result, twin) for result, twin in _pairs(self.results)]
        table = pd.DataFrame(rows)
        if rows:
            table["p_holm"] = holm(table["p_value"])
            table["verdict"] = [
                "no difference shown" if p > 0.05 else "sparser" if difference > 0 else "less sparse"
                for p, difference in zip(table["p_holm"], table["gini_difference"], strict=True)
            ]
        return table

    def tables(self) -> dict[str, pd.DataFrame]:
        """The results' tables; the tests if a convolution twin is there."""
        tests = self.tests()
        return super().tables() | ({"tests": tests} if len(tests) else {})

    def summary(self) -> pd.DataFrame:
        """The results' summaries; beside them how each compares with its convolution twin."""
        summary, tests = super().summary(), self.tests()
        for _, test in tests.iterrows():
            text = f"{test['gini_difference']:+.3f}, p {_p(test['p_holm'])}: {test['verdict']}"
            here = (summary["model"] == test["model"]) & (summary["method"] == test["method"])
            summary.loc[here, "Gini − conv twin's"] = text
        return summary.fillna("")

    def figure(self, ax: "Axes | None" = None) -> "Figure":
        """Rows are images, columns are models or methods."""
        return _draw(self.results, ax)

    def figures(self) -> dict[str, "Figure"]:
        """All columns, six to a page: figure, figure-2 …"""
        starts = range(0, len(self.results), COLUMNS_PER_PAGE)
        pages = [self.results[start : start + COLUMNS_PER_PAGE] for start in starts]
        return {"figure" + (f"-{i}" if i > 1 else ""): _draw(page) for i, page in enumerate(pages, start=1)}


def saliency(
    model: nn.Module,
    images: Tensor,
    labels: Tensor,
    *,
    classes: Sequence[str],
    method: str = "grad",
    reduce: str = "max",
    target: str | int = "predicted",
    label: str = "model",
    indices: Tensor | None = None,
    shown: int = 6,
    radius: float = map_metrics.RADIUS,
    samples: int = map_metrics.SAMPLES,
    seed: int = 0,
    accuracy: float | None = None,
    class_accuracy: Mapping[str, float] | None = None,
) -> SaliencyResult:
    """Maps of a class's logit for images (n, 3, H, W) in [0, 1] with labels (n,), and their metrics.

    target: "predicted", "label", or one class for all images (its name or position).
    reduce: max, mean or norm over the channels' absolute values; sum: |Σ|; positive: the positive part of Σ.
    radius, samples: of max-sensitivity; no samples, no max-sensitivity. indices: where the images came from.
    """
    find_method(method)
    check_images(images)
    check_labels(labels, images=images, classes=classes)
    reduction = find_reduction(reduce)
    if shown < 1 or samples < 0 or not 0 < radius <= 1:
        raise InputError(f"expected shown ≥ 1, samples ≥ 0, 0 < radius ≤ 1, got {shown}, {samples}, {radius}")
    indices = torch.arange(len(images)) if indices is None else indices
    logits = _logits(model, images, len(classes))
    predictions, targets = logits.argmax(1), _targets(target, logits, labels, classes)

    def maps_of(pictures: Tensor, asked: Tensor) -> Tensor:
        return reduction.function(attribute(model, pictures, asked, method=method, seed=seed)).cpu()

    start = time.perf_counter()
    maps = maps_of(images, targets)
    seconds = (time.perf_counter() - start) / len(images)
    likely = maps if torch.equal(predictions, targets) else maps_of(images, predictions)
    unlikely = maps_of(images, logits.argmin(1))
    steadiness = np.full(len(images), np.nan)
    if samples:
        steadiness = map_metrics.max_sensitivity(
            lambda moved: maps_of(moved, targets), images, maps, radius=radius, samples=samples, seed=seed
        )
    array = maps.numpy()
    return SaliencyResult(
        label=label,
        settings={"device": str(device_of(model)), "radius": radius, "sensitivity_samples": samples, "seed": seed},
        model=label,
        method=method,
        reduce=reduce,
        target=target if isinstance(target, str) else classes[target],
        classes=tuple(classes),
        indices=indices.cpu().numpy(),
        labels=labels.long().cpu().numpy(),
        predictions=predictions.numpy(),
        targets=targets.numpy(),
        maps=array.astype(np.float32),
        images=images[:shown].cpu().numpy().astype(np.float32),
        gini=map_metrics.gini(array),
        entropy=map_metrics.entropy(array),
        top_mass=map_metrics.top_mass(array),
        class_correlation=map_metrics.map_correlation(likely.numpy(), unlikely.numpy()),
        max_sensitivity=steadiness,
        seconds=seconds,
        accuracy=accuracy,
        class_accuracy=dict(class_accuracy or {}),
    )


def compare(results: Sequence[SaliencyResult], *, label: str) -> Result:
    """One result as it is; several as a comparison, the method in their labels if they differ in it."""
    if len(results) == 1:
        return results[0]
    several = len({result.method for result in results}) > 1
    named = [replace(one, label=f"{one.model} {one.method}") if several else one for one in results]
    return SaliencyComparison.of(named, label=label)


def class_position(name: str, classes: Sequence[str]) -> int:
    """Where a class stands; an unknown one raises and suggests the nearest."""
    if name in classes:
        return list(classes).index(name)
    near = get_close_matches(name, classes, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]}?" if near else f"classes: {', '.join(classes[:20])}"
    raise InputError(f"unknown class {name!r}; {hint}")


def _pairs(results: Sequence[SaliencyResult]) -> Iterator[tuple[SaliencyResult, SaliencyResult]]:
    """Each result whose twin is there by the same method on the same images, with that twin."""
    for one in results:
        there = {other.model: other for other in results if _same_question(one, other)}
        if twin := next((there[name] for name in twins(one.model) if name in there), None):
            yield one, twin


def _same_question(one: SaliencyResult, other: SaliencyResult) -> bool:
    same = (one.method, one.reduce, one.target) == (other.method, other.reduce, other.target)
    return same and np.array_equal(one.indices, other.indices)


def _test(result: SaliencyResult, twin: SaliencyResult) -> dict[str, object]:
    difference, low, high, p_value = paired_bootstrap(result.gini, twin.gini)
    names = {"model": result.model, "twin": twin.model, "method": result.method, "n": len(result.gini)}
    return {**names, "gini_difference": difference, "low": low, "high": high, "p_value": p_value}


def _p(value: float) -> str:
    return "< 0.001" if value < 0.001 else f"= {value:.2g}"


def _logits(model: nn.Module, images: Tensor, classes: int) -> Tensor:
    with evaluating(model), torch.inference_mode():
        parts = [logits_of(model, part, classes=classes).float().cpu() for part in images.split(250)]
    return torch.cat(parts).clone()


def _targets(target: str | int, logits: Tensor, labels: Tensor, classes: Sequence[str]) -> Tensor:
    if target == "predicted":
        return logits.argmax(1)
    if target == "label":
        return labels.long().cpu()
    position = class_position(target, classes) if isinstance(target, str) else target
    if not 0 <= position < len(classes):
        raise InputError(f"expected a class from 0 to {len(classes) - 1}, got {position}")
    return torch.full((len(logits),), position)


def _draw(results: Sequence[SaliencyResult], ax: "Axes | None" = None) -> "Figure":
    first = results[0]
    names = np.array(first.classes)
    shown = range(len(first.images))
    columns = [_column(result, len(shown), several=len({each.method for each in results}) > 1) for result in results]
    rows = [str(names[first.labels[i]]) for i in shown]
    return draw_maps(first.images, rows, columns, note=_note(results), ax=ax)


def _column(result: SaliencyResult, count: int, *, several: bool) -> Column:
    """A model's maps, what it predicted, and its title: accuracy overall, and of the class if all images have one."""
    shown = result.labels[:count]
    lines = [*_split_name(result.model), *([result.method] if several else [])]
    if result.accuracy is not None:
        lines.append(f"{100 * result.accuracy:.1f} % overall")
    own = result.classes[shown[0]]
    if len(set(shown.tolist())) == 1 and own in result.class_accuracy:
        lines.append(f"{100 * result.class_accuracy[own]:.0f} % {own}")
    said = [result.classes[position] for position in result.predictions[:count]]
    right = (result.predictions[:count] == shown).tolist()
    return Column("\n".join(lines), result.maps[:count], said, right)


def _split_name(name: str, longest: int = 16) -> list[str]:
    """A long name on several lines, broken after underscores."""
    first, *others = name.split("_")
    lines = [first]
    for part in others:
        joined = f"{lines[-1]}_{part}"
        lines[-1:] = [joined] if len(joined) <= longest else [f"{lines[-1]}_", part]
    return lines


def _note(results: Sequence[SaliencyResult]) -> str:
    """What the colours and words mean."""
    methods = ", ".join(dict.fromkeys(result.method for result in results))
    asked = {"predicted": "of the predicted class", "label": "of the true class"}.get(
        results[0].target, f"of the class {results[0].target}"
    )
    how = find_reduction(results[0].reduce).words
    alone = len(set(results[0].labels[: len(results[0].images)].tolist())) == 1
    known = alone and any(result.class_accuracy for result in results)
    return (
        f"{methods} {asked}, {how}. Each map has its own scale, from 0 to its 99th percentile. "
        "Below each map, what the model predicts (✓ right, ✗ wrong)."
        + (" Accuracy: overall as recorded in training, of the class on the images at hand." if known else "")
    )
