"""Does the map say what the model does? Three tests of attribution methods, and two controls that know no model.

Insertion and deletion (Petsiuk et al. 2018) ask whether the pixels that a map names matter to the answer, infidelity
(Yeh et al. 2019) whether the map predicts what changes of the image do to the logit, cascading parameter randomisation
(Adebayo et al. 2018) whether the map depends on what the model has learned. Beside every method stand a random map,
which a method must beat, and an edge map, which is always the same and so shows what a failure looks like.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn

from scs_eval.analyses import cascade_figure, faithfulness_figure
from scs_eval.analyses.attribution import find_method
from scs_eval.analyses.control_maps import CONTROLS
from scs_eval.analyses.faithfulness_figure import Line, Model
from scs_eval.analyses.faithfulness_outcome import Bench, Outcome, stacked
from scs_eval.analyses.infidelity import SAMPLES, SIGMA
from scs_eval.analyses.inputs import check_images, check_labels, logits_of
from scs_eval.analyses.layer_maps import UnsuitableError
from scs_eval.analyses.map_similarity import MEASURES, WINDOW
from scs_eval.analyses.pixel_curves import BASELINES, ORDERS, area
from scs_eval.analyses.result import Comparison, Result
from scs_eval.analyses.score_table import METRICS, cell, mean_of, score_table
from scs_eval.analyses.shards import shared_map
from scs_eval.analyses.state import device_of, evaluating
from scs_eval.analyses.statistics import bootstrap_mean
from scs_eval.errors import InputError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

STEPS = 32


@dataclass(frozen=True, eq=False, kw_only=True)
class FaithfulnessResult(Result):
    """Methods m (the last two are the controls) put to the test on one model and n images.

    layers: names in the order in which the cascade randomises them; left_out: methods that cannot serve the model.
    indices: (n,) which images; targets: (n,) the classes explained, positions in `classes`.
    fractions: (steps + 1,) of the pixels replaced; deletion, insertion: (m, n, steps + 1) probabilities of the class.
    infidelity: (m, n) in squared logits, each map times its best factor; change: (n,) that of a map of zeros.
    spearman_absolute, spearman_signed, ssim: (m, layers, n) similarity to the original map after each layer; NaN where
        a map is constant.
    maps: (m, n, H, W) signed, channels summed. images: (1, 3, H, W) the first; examples: (m, 1 + layers, 1, H, W) ≥ 0.
    """

    name = "faithfulness"
    methods: tuple[str, ...]
    layers: tuple[str, ...]
    classes: tuple[str, ...]
    indices: np.ndarray
    targets: np.ndarray
    fractions: np.ndarray
    deletion: np.ndarray
    insertion: np.ndarray
    infidelity: np.ndarray
    change: np.ndarray
    spearman_absolute: np.ndarray
    spearman_signed: np.ndarray
    ssim: np.ndarray
    maps: np.ndarray
    images: np.ndarray
    examples: np.ndarray
    left_out: dict[str, str] = field(default_factory=dict)

    @cached_property
    def scores(self) -> dict[str, np.ndarray]:
        """Each metric's values (m, n).

        Areas under the curves, the share of the change that a map leaves unexplained (0 perfect, 1 useless; NaN where
        the logit does not change), and the similarities once every layer is random.
        """
        with np.errstate(invalid="ignore", divide="ignore"):
            unexplained = np.where(self.change > 0, self.infidelity / self.change, np.nan)
        areas = {name: area(getattr(self, name), self.fractions) for name in ("deletion", "insertion")}
        last = {name: getattr(self, name)[:, -1] for name in MEASURES}
        return {**areas, "infidelity": unexplained, **last}

    @cached_property
    def _table(self) -> pd.DataFrame:
        table = score_table(self.label, self.methods, self.scores)
        table["conditions"] = table["metric"].map(self._conditions)
        return table

    def table(self) -> pd.DataFrame:
        """A row per method and metric: mean, 95 % interval, n; the paired difference to the random map and its p.

        p_holm is Holm's correction over all tests of the model. The conditions have the baseline of the curves.
        """
        return self._table.copy()

    def tables(self) -> dict[str, pd.DataFrame]:
        """The table; similarity at every depth of the cascade; the mean curves; every image with its scores."""
        return {"table": self.table(), "cascade": self.cascade(), "curves": self.curves(), "images": self.per_image()}

    def summary(self) -> pd.DataFrame:
        """A row per method, means with intervals; ✓ better, ✗ worse, ≠ other than the random map (p ≤ 0.05, Holm)."""
        cells = {(row["method"], row["metric"]): cell(row) for _, row in self._table.iterrows()}
        rows = []
        for method in self.methods:
            values = {metric.head.format(**self.settings): cells[method, name] for name, metric in METRICS.items()}
            rows.append({"model": self.label, "method": method, "n": str(len(self.targets)), **values})
        return pd.DataFrame(rows)

    def cascade(self) -> pd.DataFrame:
        """Mean similarity to the original map, one row per method, measure and depth."""
        return pd.DataFrame(
            {"model": self.label, "method": method, "depth": depth, "layer": layer, "measure": measure}
            | mean_of(values)
            for i, method in enumerate(self.methods)
            for measure in MEASURES
            for depth, (layer, values) in enumerate(
                zip(self.layers, getattr(self, measure)[i], strict=True), start=1
            )
        )  # fmt: skip

    def curves(self) -> pd.DataFrame:
        """Mean insertion and deletion curves with 95 % intervals."""
        parts = []
        for name in ("deletion", "insertion"):
            for line in self._lines(name):
                columns = {"fraction": self.fractions, "mean": line.mean, "low": line.low, "high": line.high}
                parts.append(pd.DataFrame({"model": self.label, "method": line.method, "curve": name, **columns}))
        return pd.concat(parts, ignore_index=True)

    def per_image(self) -> pd.DataFrame:
        """Every method on every image."""
        names = np.array(self.classes)[self.targets]
        return pd.concat(
            (
                pd.DataFrame(
                    {"model": self.label, "method": method, "index": self.indices, "target": names}
                    | {metric: values[i] for metric, values in self.scores.items()}
                    | {"infidelity_logits2": self.infidelity[i], "change_logits2": self.change}
                )
                for i, method in enumerate(self.methods)
            ),
            ignore_index=True,
        )

    def figure(self, ax: "Axes | None" = None) -> "Figure":
        """Deletion and insertion curves, mean with 95 % band; on given axes the deletion curves alone."""
        return faithfulness_figure.draw_curves([self.drawn], note=_note(self), ax=ax)

    def figures(self) -> dict[str, "Figure"]:
        """The curves, all scores, similarity along the cascade, and maps along the cascade."""
        return _figures([self])

    @cached_property
    def drawn(self) -> Model:
        """What the figures show of this model."""
        similarity = {
            name: [_line(method, getattr(self, name)[i].T, np.nan) for i, method in enumerate(self.methods)]
            for name in MEASURES
        }
        points: dict[str, dict[str, tuple[float, float, float]]] = {metric: {} for metric in METRICS}
        for _, row in self._table.iterrows():
            points[row["metric"]][row["method"]] = row["mean"], row["low"], row["high"]
        curves = {name: self._lines(name) for name in ("deletion", "insertion")}
        return Model(self.label, self.fractions, curves, self.layers, similarity, points)

    @property
    def _conditions(self) -> dict[str, str]:
        """What each metric depends on."""
        curves = "baseline {baseline}, {order} order, {steps} steps".format(**self.settings)
        noise = "σ = {infidelity_sigma:g}, {infidelity_samples} samples".format(**self.settings)
        known = {"deletion": curves, "insertion": curves, "infidelity": noise}
        return known | dict.fromkeys(MEASURES, "all layers re-initialised")

    def _lines(self, name: str) -> list[Line]:
        """The mean curve of every method with its interval and area."""
        areas = self.scores[name].mean(1)
        return [_line(*row) for row in zip(self.methods, getattr(self, name), areas, strict=True)]


@dataclass(frozen=True, eq=False, kw_only=True)
class FaithfulnessComparison(Comparison[FaithfulnessResult]):
    """The same tests on several models."""

    name = "faithfulness"

    def figure(self, ax: "Axes | None" = None) -> "Figure":
        """Deletion and insertion curves, a row for each model."""
        return faithfulness_figure.draw_curves([one.drawn for one in self.results], note=_note(self.results[0]), ax=ax)

    def figures(self) -> dict[str, "Figure"]:
        """Curves, scores and similarity with a row for each model; maps along the cascade in a figure for each."""
        return _figures(self.results)


def faithfulness(
    model: nn.Module,
    images: Tensor,
    targets: Tensor | None = None,
    *,
    classes: Sequence[str],
    method: str | Sequence[str] = ("grad", "ixg", "wx"),
    baseline: str = "black",
    order: str = "signed",
    steps: int = STEPS,
    sigma: float = SIGMA,
    samples: int = SAMPLES,
    label: str = "model",
    indices: Tensor | None = None,
    seed: int = 0,
    watch: Callable[[str], Any] | None = None,
) -> FaithfulnessResult:
    """Put methods to the test on images (n, 3, H, W) in [0, 1]; `targets` (n,) are the predicted classes by default.

    baseline: what replaces a pixel of the curves (black, mean, blur), `steps` how often; order: signed or magnitude.
    sigma, samples: of infidelity. indices: where the images came from. watch: told of each method before its turn.
    Of several methods, one that cannot serve the model is left out and recorded; if none is left, that is an error.
    """
    methods = (method,) if isinstance(method, str) else tuple(dict.fromkeys(method))
    _check(images, methods, baseline=baseline, order=order, sigma=sigma, samples=samples)
    with evaluating(model):
        like = next(model.parameters(), images)
        moved = images.detach().to(like.device, like.dtype)
        asked = _targets(model, moved, targets, classes)
        bench = Bench(
            model=model, images=moved, targets=asked, baseline=baseline, order=order, steps=steps, sigma=sigma,
            samples=samples, shown=1, seed=seed,
        )  # fmt: skip
        fractions = bench.counts.numpy() / bench.counts[-1].item()  # before the work: wrong steps raise here
        outcomes, refused = _test_all(bench, methods, watch)
        change = bench.infidelity(torch.zeros_like(moved), gradient=False, scale=False)
    return FaithfulnessResult(
        label=label,
        settings={
            "device": str(device_of(model)), "baseline": baseline, "order": order, "steps": steps,
            "infidelity_sigma": sigma, "infidelity_samples": samples, "seed": seed,
        },
        methods=tuple(outcomes),
        layers=tuple(depth.name for depth in bench.depths),
        classes=tuple(classes),
        indices=(torch.arange(len(images)) if indices is None else indices).cpu().numpy(),
        targets=asked.cpu().numpy(),
        fractions=fractions,
        change=change,
        images=images[:1].detach().cpu().numpy().astype(np.float32),
        left_out=refused,
        **stacked(list(outcomes.values())),
    )  # fmt: skip


def compare(results: Sequence[FaithfulnessResult], *, label: str) -> Result:
    """One result as it is, several as a comparison."""
    return results[0] if len(results) == 1 else FaithfulnessComparison.of(results, label=label)


def _check(images: Tensor, methods: Sequence[str], *, baseline: str, order: str, sigma: float, samples: int) -> None:
    """Raise one line about the first thing that is wrong, before any work."""
    check_images(images)
    if min(images.shape[2:]) < WINDOW:
        raise InputError(f"expected images of at least {WINDOW}×{WINDOW} pixels for SSIM, got {tuple(images.shape)}")
    if not methods:
        raise InputError("expected a method, got none")
    for name in methods:
        with suppress(UnsuitableError):  # which is for later: other methods may suit
            find_method(name)
    if baseline not in BASELINES:
        raise InputError(f"expected a baseline among {', '.join(BASELINES)}, got {baseline!r}")
    if order not in ORDERS:
        raise InputError(f"expected an order among {', '.join(ORDERS)}, got {order!r}")
    if not (0 < sigma < np.inf and samples >= 1):
        raise InputError(f"expected a finite sigma above 0 and at least 1 sample, got {sigma} and {samples}")


def _targets(model: nn.Module, images: Tensor, targets: Tensor | None, classes: Sequence[str]) -> Tensor:
    """The classes asked about, the predicted ones if none are; the model must answer to all images either way."""
    with torch.no_grad():
        parts = shared_map(lambda part: logits_of(model, part, classes=len(classes)), images.split(250))
    if targets is None:
        return torch.cat(parts).argmax(1).to(images.device)
    check_labels(targets, images=images, classes=classes)
    return targets.long().to(images.device)


def _test_all(
    bench: Bench, methods: Sequence[str], watch: Callable[[str], Any] | None
) -> tuple[dict[str, Outcome], dict[str, str]]:
    """Outcomes by method, then of the controls; and why a method cannot serve the model."""
    outcomes: dict[str, Outcome] = {}
    refused: dict[str, str] = {}
    for name in methods:
        if watch:
            watch(name)
        try:
            outcomes[name] = bench.test(name)
        except UnsuitableError as error:
            refused[name] = str(error)
    if not outcomes:
        raise UnsuitableError("; ".join(refused.values()))
    for name in CONTROLS:
        if watch:
            watch(name)
        outcomes[name] = bench.test(name)
    return outcomes, refused


def _line(method: str, values: np.ndarray, value: float) -> Line:
    """The mean of values (n, x) with its interval at every x."""
    means = [mean_of(column) for column in values.T] if np.isnan(values).any() else None
    if means is None:
        mean, low, high = bootstrap_mean(values)
    else:
        mean, low, high = (np.array([each[key] for each in means]) for key in ("mean", "low", "high"))
    return Line(method, mean, low, high, value)


def _note(result: FaithfulnessResult) -> str:
    """What the curves are."""
    settings = result.settings
    return (
        f"Softmax probability of the class, mean over {len(result.targets)} images with 95 % bootstrap band; pixels "
        f"replaced by {BASELINES[settings['baseline']]}, ordered by {ORDERS[settings['order']].words}."
    )


def _figures(results: Sequence[FaithfulnessResult]) -> dict[str, "Figure"]:
    drawn = [result.drawn for result in results]
    maps = {
        "maps" + (f"-{i}" if i > 1 else ""): cascade_figure.draw_maps_of_cascade(
            one.images[0], one.examples[:, :, 0], one.methods, one.layers,
            title=f"{one.label}: maps of {one.classes[one.targets[0]]} as layers are re-initialised from the head down",
        )
        for i, one in enumerate(results, start=1)
    }  # fmt: skip
    return {
        "figure": faithfulness_figure.draw_curves(drawn, note=_note(results[0])),
        "scores": faithfulness_figure.draw_scores(drawn),
        "cascade": cascade_figure.draw_cascade(drawn),
        **maps,
    }
