"""What one method's maps come to: curves, infidelity, and similarity to the maps of ever more forgetful networks."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cached_property

import numpy as np
import torch
from torch import Tensor, nn

from scs_eval.analyses.attribution import attribute
from scs_eval.analyses.control_maps import CONTROLS, control_map
from scs_eval.analyses.infidelity import GRADIENTS, infidelity
from scs_eval.analyses.layer_maps import UnsuitableError
from scs_eval.analyses.map_similarity import MEASURES, spearman, ssim
from scs_eval.analyses.pixel_curves import ORDERS, Curves, baseline_of, counts_of, pixel_curves, ranks_of
from scs_eval.analyses.randomisation import Depth, cascade, depths_of


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """One method on n images.

    maps: (n, H, W) signed, channels summed. deletion, insertion: (n, steps + 1) probabilities of the class.
    infidelity: (n,) in squared logits. The next three: (depths, n) similarity to the original map.
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


def stacked(outcomes: Sequence[Outcome]) -> dict[str, np.ndarray]:
    """The outcomes' arrays, each with the methods as its first dimension."""
    return {item.name: np.stack([getattr(one, item.name) for one in outcomes]) for item in fields(Outcome)}


@dataclass(frozen=True, kw_only=True)
class Bench:
    """A model (in evaluation mode), images and the classes asked about, and how methods are put to the test on them."""

    model: nn.Module
    images: Tensor
    targets: Tensor
    baseline: str
    order: str
    steps: int
    sigma: float
    samples: int
    shown: int
    seed: int

    @cached_property
    def counts(self) -> Tensor:
        """(steps + 1,) how many pixels are replaced at each step."""
        return counts_of(self.images.shape[2] * self.images.shape[3], self.steps)

    @cached_property
    def depths(self) -> list[Depth]:
        """The layers, in the order in which the cascade randomises them."""
        return depths_of(self.model, self.images[:1])

    def test(self, method: str) -> Outcome:
        """Everything about one method, or control."""
        attributions = self.explain(self.model, method)
        curves = self.curves(attributions)
        pictures, signed = _pictures(attributions), _signed(attributions)
        similarity, examples = self.forgetting(method, signed, pictures)
        return Outcome(
            maps=signed.astype(np.float32),
            deletion=curves.deletion.numpy(),
            insertion=curves.insertion.numpy(),
            infidelity=self.infidelity(attributions, gradient=method in GRADIENTS),
            **similarity,
            examples=np.stack([pictures[: self.shown], *examples]).astype(np.float32),
        )

    def explain(self, model: nn.Module, method: str, *, depth: int = 0) -> Tensor:
        """Attributions (n, 3, H, W). The random map is another one at every depth, the edge map always the same."""
        if method in CONTROLS:
            return control_map(method, self.images, seed=1000 * self.seed + depth)
        return attribute(model, self.images, self.targets, method=method, seed=self.seed)

    def curves(self, attributions: Tensor) -> Curves:
        """Insertion and deletion in the order of the map."""
        ranks = ranks_of(ORDERS[self.order].function(attributions), seed=self.seed)
        baseline = baseline_of(self.images, self.baseline)
        return pixel_curves(self.model, self.images, self.targets, ranks, baseline=baseline, counts=self.counts)

    def infidelity(self, attributions: Tensor, *, gradient: bool, scale: bool = True) -> np.ndarray:
        """(n,) with the best factor if `scale`."""
        return infidelity(
            self.model, self.images, self.targets, attributions, gradient=gradient, scale=scale, sigma=self.sigma,
            samples=self.samples, seed=self.seed,
        ).numpy()  # fmt: skip

    def forgetting(
        self, method: str, signed: np.ndarray, pictures: np.ndarray
    ) -> tuple[dict[str, np.ndarray], list[np.ndarray]]:
        """The three similarities (depths, n) along the cascade, and the examples' maps at each depth."""
        rows, examples = [], []
        for depth, network in enumerate(cascade(self.model, self.depths, seed=self.seed), start=1):
            try:
                attributions = self.explain(network, method, depth=depth)
            except UnsuitableError:  # the method served the original; without a map there is no similarity
                attributions = torch.full_like(self.images, torch.nan)
            now, drawn = _signed(attributions), _pictures(attributions)
            rows.append((spearman(pictures, drawn), spearman(signed, now), ssim(pictures, drawn)))
            examples.append(drawn[: self.shown])
        found = zip(MEASURES, zip(*rows, strict=True), strict=True)
        return {name: np.stack(parts) for name, parts in found}, examples


def _signed(attributions: Tensor) -> np.ndarray:
    """(n, H, W) the sum over the channels: what a pixel says, with its sign."""
    return attributions.detach().cpu().double().sum(1).numpy()


def _pictures(attributions: Tensor) -> np.ndarray:
    """(n, H, W) ≥ 0, the largest |value| of the channels: what `scs-eval saliency` draws."""
    return attributions.detach().cpu().double().abs().amax(1).numpy()
