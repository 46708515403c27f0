"""What one method's maps come to: curves, infidelity, and similarity to the maps of ever more forgetful networks.

The bench holds some images; of more there is one after the other, and what came of each is joined.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cached_property

import numpy as np
import torch
from torch import Tensor, nn

from scs_eval.analyses.attribution.attribute import attribute
from scs_eval.analyses.attribution.methods import find_method
from scs_eval.analyses.attribution.metric_records import Metric
from scs_eval.analyses.attribution.metrics import simplicity
from scs_eval.analyses.attribution.own_metrics import measure
from scs_eval.analyses.attribution.similarity import MEASURES, spearman, ssim
from scs_eval.analyses.faithfulness.controls import CONTROLS, IMAGE_CONTROLS, control_map
from scs_eval.analyses.faithfulness.infidelity import infidelity
from scs_eval.analyses.faithfulness.options import FaithfulnessOptions
from scs_eval.analyses.faithfulness.pixel_curves import (
    ORDERS,
    Curves,
    baseline_of,
    counts_of,
    pixel_curves,
    ranks_of,
    replacement_curve,
    rising_share,
)
from scs_eval.analyses.faithfulness.randomisation import Depth, cascade, complexity_rise, depths_of, randomised
from scs_eval.analyses.faithfulness.road import road
from scs_eval.analyses.faithfulness.saco import saco
from scs_eval.errors import NotApplicableError

UNTRAINED_SEED = 10_000  # of the untrained control: another network than any that the cascade ends in


@dataclass(frozen=True, kw_only=True)
class MethodOutcome:
    """One method on n images.

    maps: (k', H, W) signed, channels summed, of the first k' images. deletion, insertion: (n, steps + 1) probabilities
    of the class.
    infidelity: (n,) in squared logits. The next three: (depths, n) similarity to the original map.
    road: (n, shares) whether the class survives the loss of its first pixels. saco: (n,). rising: (n,), see `road`,
    `saco` and `pixel_curves.rising_share`. emprt: (n,), see `randomisation.complexity_rise`. sparseness, complexity:
    (n,), see `FaithfulnessResult.more_scores`. own_scores: (k, n) of the metrics from outside.
    examples: (1 + depths, k, H, W) ≥ 0, the first k images' maps: the original, then after each depth.
    """

    maps: np.ndarray
    deletion: np.ndarray
    insertion: np.ndarray
    infidelity: np.ndarray
    spearman_absolute: np.ndarray
    spearman_signed: np.ndarray
    ssim: np.ndarray
    examples: np.ndarray
    road: np.ndarray
    saco: np.ndarray
    rising: np.ndarray
    emprt: np.ndarray
    sparseness: np.ndarray
    complexity: np.ndarray
    own_scores: np.ndarray


IMAGES_SECOND = (*MEASURES, "examples", "own_scores")  # dimensions; in all others images come first


def joined(outcomes: Sequence[MethodOutcome]) -> MethodOutcome:
    """The outcomes of one method on some images after the other, as that on all of them."""
    arrays = {item.name: [getattr(outcome, item.name) for outcome in outcomes] for item in fields(MethodOutcome)}
    return MethodOutcome(
        **{name: np.concatenate(parts, axis=int(name in IMAGES_SECOND)) for name, parts in arrays.items()}
    )


def stacked(outcomes: Sequence[MethodOutcome]) -> dict[str, np.ndarray]:
    """The outcomes' arrays, each with the methods as its first dimension."""
    return {
        item.name: np.stack([getattr(outcome, item.name) for outcome in outcomes]) for item in fields(MethodOutcome)
    }


@dataclass(frozen=True, kw_only=True)
class Bench:
    """A model (in evaluation mode), images and the classes to explain, and how methods are put to the test on them.

    start: how many images came before these. shown, kept: of how many of them, the first, there are maps along the
    cascade, and maps at all.
    """

    model: nn.Module
    images: Tensor
    targets: Tensor
    options: FaithfulnessOptions
    shown: int
    kept: int
    start: int
    seed: int
    metrics: tuple[Metric, ...] = ()

    @property
    def settings(self) -> dict[str, object]:
        """What an outcome depends on besides model, images and classes."""
        return {
            "baseline": self.options.baseline, "order": self.options.order, "steps": self.options.steps,
            "infidelity_sigma": self.options.sigma, "infidelity_samples": self.options.samples, "seed": self.seed,
        }  # fmt: skip

    @cached_property
    def counts(self) -> Tensor:
        """(steps + 1,) how many pixels are replaced at each step."""
        return counts_of(self.images.shape[2] * self.images.shape[3], self.options.steps)

    @cached_property
    def depths(self) -> list[Depth]:
        """The layers, in the order in which the cascade randomises them."""
        return depths_of(self.model, self.images[:1])

    def test(self, method: str) -> MethodOutcome:
        """Everything about one method, or control."""
        attributions = self.explain(self.model, method)
        curves = self.curves(attributions)
        pictures, signed = _pictures(attributions), _signed(attributions)
        similarity, examples = self.forgetting(method, signed, pictures)
        return MethodOutcome(
            maps=signed[: self.kept].astype(np.float32),
            deletion=curves.deletion.numpy(),
            insertion=curves.insertion.numpy(),
            infidelity=self.infidelity(attributions, gradient=_is_sensitivity(method)),
            **similarity,
            examples=np.stack([pictures[: self.shown], *examples]).astype(np.float32),
            **self.removals(attributions, curves.deletion),
            **simplicity(signed),
            own_scores=self.own_scores(method, attributions),
        )

    def own_scores(self, method: str, attributions: Tensor) -> np.ndarray:
        """(k, n) what the metrics from outside say."""

        def explain(model: nn.Module, images: Tensor, targets: Tensor) -> Tensor:
            return self._maps(model, images, targets, method)

        rows = [
            measure(metric, self.model, self.images, self.targets, attributions, explain=explain, seed=self.seed)
            for metric in self.metrics
        ]
        return np.stack(rows) if rows else np.empty((0, len(self.images)))

    def explain(self, model: nn.Module, method: str, *, depth: int = 0) -> Tensor:
        """Attributions (n, 3, H, W). The edge map is the same at every depth; what is random is another one."""
        return self._maps(model, self.images, self.targets, method, depth=depth)

    def _maps(self, model: nn.Module, images: Tensor, targets: Tensor, method: str, *, depth: int = 0) -> Tensor:
        if method in IMAGE_CONTROLS:
            return control_map(method, images, seed=1000 * self.seed + depth, start=self.start)
        if method in CONTROLS:
            model, method = randomised(model, self.depths, seed=UNTRAINED_SEED + self.seed + depth), "ixg"
        return attribute(model, images, targets, method=method, seed=self.seed)

    def curves(self, attributions: Tensor) -> Curves:
        """Insertion and deletion in the order of the map."""
        ranks = ranks_of(ORDERS[self.options.order].function(attributions), seed=self.seed)
        baseline = baseline_of(self.images, self.options.baseline)
        return pixel_curves(self.model, self.images, self.targets, ranks, baseline=baseline, counts=self.counts)

    def removals(self, attributions: Tensor, deletion: Tensor) -> dict[str, np.ndarray]:
        """What else removing pixels in the order of the map tells: ROAD, SaCo and monotonicity."""
        values = ORDERS[self.options.order].function(attributions)
        ranks = ranks_of(values, seed=self.seed)
        return {
            "road": road(self.model, self.images, self.targets, ranks, seed=self.seed).numpy(),
            "saco": saco(self.model, self.images, self.targets, values, ranks),
            "rising": rising_share(self.rising(deletion, ranks).numpy()),
        }

    def rising(self, deletion: Tensor, ranks: Tensor) -> Tensor:
        """The curve from the baseline, least important pixels first: that of deletion backwards, if its steps allow."""
        if torch.equal(self.counts.flip(0), self.counts[-1] - self.counts):
            return deletion.flip(1)
        last_first = ranks.shape[1] * ranks.shape[2] - 1 - ranks
        baseline = baseline_of(self.images, self.options.baseline)
        return replacement_curve(self.model, baseline, self.images, self.targets, last_first, counts=self.counts)

    def infidelity(self, attributions: Tensor, *, gradient: bool, scale: bool = True) -> np.ndarray:
        """(n,) with the best factor if `scale`."""
        return infidelity(
            self.model, self.images, self.targets, attributions, gradient=gradient, scale=scale,
            sigma=self.options.sigma, samples=self.options.samples, seed=self.seed,
        ).numpy()  # fmt: skip

    def forgetting(
        self, method: str, signed: np.ndarray, pictures: np.ndarray
    ) -> tuple[dict[str, np.ndarray], list[np.ndarray]]:
        """The three similarities (depths, n) along the cascade, eMPRT, and the examples' maps at each depth."""
        rows, examples = [], []
        for depth, network in enumerate(cascade(self.model, self.depths, seed=self.seed), start=1):
            try:
                attributions = self.explain(network, method, depth=depth)
            except NotApplicableError:  # the method served the original; without a map there is no similarity
                attributions = torch.full_like(self.images, torch.nan)
            now, drawn = _signed(attributions), _pictures(attributions)
            rows.append((spearman(pictures, drawn), spearman(signed, now), ssim(pictures, drawn)))
            examples.append(drawn[: self.shown])
        similarities = zip(MEASURES, zip(*rows, strict=True), strict=True)
        scores = {name: np.stack(parts) for name, parts in similarities}
        return {**scores, "emprt": complexity_rise(signed, now)}, examples


def _is_sensitivity(method: str) -> bool:
    """Whether a map must be multiplied by what changes in the image; controls are like contributions."""
    return method not in CONTROLS and find_method(method).quantity == "sensitivity"


def _signed(attributions: Tensor) -> np.ndarray:
    """(n, H, W) the sum over the channels: what a pixel says, with its sign."""
    return attributions.detach().cpu().double().sum(1).numpy()


def _pictures(attributions: Tensor) -> np.ndarray:
    """(n, H, W) ≥ 0, the largest |value| of the channels: what `scs-eval saliency` draws."""
    return attributions.detach().cpu().double().abs().amax(1).numpy()
