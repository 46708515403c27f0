"""Every method and control on the bench, some images after the others, and what came of it as one result."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from scs_eval.analyses.attribution.metric_records import Metric
from scs_eval.analyses.attribution.own_methods import MethodLike, as_method_names
from scs_eval.analyses.attribution.own_metrics import MetricLike, as_metrics, remembered
from scs_eval.analyses.attribution.similarity import WINDOW
from scs_eval.analyses.core.batching import images_at_once, maps_kept, slices
from scs_eval.analyses.core.inference import BATCH, predict_logits
from scs_eval.analyses.core.inputs import ArrayLike, ImagesLike, ModelLike, as_examples, as_labels, as_model
from scs_eval.analyses.core.model_state import device_of, evaluating
from scs_eval.analyses.core.validation import check_images, check_labels, check_request, check_several_classes
from scs_eval.analyses.faithfulness.bench import Bench, MethodOutcome, joined, stacked
from scs_eval.analyses.faithfulness.controls import CONTROLS
from scs_eval.analyses.faithfulness.options import FaithfulnessOptions
from scs_eval.analyses.faithfulness.result import FaithfulnessResult
from scs_eval.errors import InputError, NotApplicableError
from scs_eval.images import Images, read_batches
from scs_eval.progress import Progress

SHOWN = 1  # images whose maps along the cascade the figure shows
BLOCK = 200  # images held at once, fewer of large ones


def run(
    model: ModelLike,
    images: ImagesLike,
    targets: ArrayLike | None,
    options: FaithfulnessOptions,
    *,
    methods: MethodLike | Sequence[MethodLike],
    metrics: Sequence[MetricLike],
    classes: Sequence[str] | None,
    label: str,
    seed: int,
    progress: Progress,
) -> FaithfulnessResult:
    """What `faithfulness` gives."""
    names, own = as_method_names(methods), as_metrics(metrics)
    check_request(label=label, seed=seed)
    network, data = as_model(model), as_examples(images, classes=classes)
    _check(data.images)
    known = data.class_names(network)
    check_several_classes(known)
    with torch.inference_mode(False), evaluating(network):
        chosen = _targets(network, data.images, targets, known)
        blocks = _Blocks(network, data.images, chosen, options, seed, own)
        arrays = _arrays(blocks, names, progress)
    return FaithfulnessResult(
        label=label,
        settings={**data.settings, "device": str(device_of(network)), **blocks.first.settings},
        classes=known,
        indices=data.indices.numpy(),
        images=data.images[:SHOWN].cpu().numpy().astype(np.float32),
        **arrays,
    )


@dataclass(frozen=True, eq=False)
class _Blocks:
    """The bench with some images after the others, so that no more are held."""

    model: nn.Module
    images: Images
    targets: Tensor
    options: FaithfulnessOptions
    seed: int
    metrics: tuple[Metric, ...]

    @cached_property
    def first(self) -> Bench:
        """Of the first images: what it says of layers and steps holds for all."""
        return next(iter(self))

    def __iter__(self) -> Iterator[Bench]:
        like, kept = next(self.model.parameters(), self.images[:1]), maps_kept(self.images)
        for part in slices(len(self.images), images_at_once(self.images, BLOCK)):
            moved = self.images[part].to(like.device, like.dtype)
            yield Bench(
                model=self.model, images=moved, targets=self.targets[part].to(moved.device), options=self.options,
                shown=max(0, SHOWN - part.start), kept=max(0, kept - part.start), start=part.start, seed=self.seed,
                metrics=self.metrics,
            )  # fmt: skip

    def test(self, method: str, progress: Progress) -> MethodOutcome:
        """Everything about one method, or control, on all images."""
        outcomes = []
        for bench in self:
            outcomes.append(bench.test(method))
            progress(len(bench.images))
        return joined(outcomes)

    def changes(self) -> np.ndarray:
        """(n,) what the noise of infidelity does to the logit: the infidelity of a map of zeros."""
        parts = [bench.infidelity(torch.zeros_like(bench.images), gradient=False, scale=False) for bench in self]
        return np.concatenate(parts)


def _arrays(blocks: _Blocks, methods: Sequence[str], progress: Progress) -> dict[str, Any]:
    """Everything that a result knows from the bench."""
    counts = blocks.first.counts  # before the work: wrong steps raise here
    outcomes, refused = _test_all(blocks, methods, progress)
    arrays: dict[str, Any] = stacked(list(outcomes.values()))
    if not blocks.metrics:
        arrays["own_scores"] = None
    return {
        "methods": tuple(outcomes),
        "own_metrics": tuple(remembered(metric) for metric in blocks.metrics),
        "layers": tuple(depth.name for depth in blocks.first.depths),
        "targets": blocks.targets.cpu().numpy(),
        "fractions": counts.numpy() / counts[-1].item(),
        "change": blocks.changes(),
        "left_out": refused,
        **arrays,
    }


def _check(images: Images) -> None:
    """Raise one line about images that cannot be compared."""
    check_images(images)
    if min(images.shape[2:]) < WINDOW:
        raise InputError(f"expected images of at least {WINDOW}×{WINDOW} pixels for SSIM, got {tuple(images.shape)}")


def _targets(model: nn.Module, images: Images, targets: ArrayLike | None, classes: Sequence[str]) -> Tensor:
    """The classes to explain, by default the predicted ones; the model must have logits for all images either way."""
    parts = slices(len(images), images_at_once(images, BLOCK))
    predicted = [_logits(model, batch, len(classes)).argmax(1) for batch in read_batches(images, parts)]
    if targets is None:
        return torch.cat(predicted)
    given = as_labels(targets, what="targets")
    check_labels(given, images=images, classes=classes, what="targets")
    return given.long()


def _logits(model: nn.Module, images: Tensor, classes: int) -> Tensor:
    like = next(model.parameters(), images)
    return predict_logits(model, images.to(like.dtype), classes=classes, batch_size=BATCH)


def _test_all(
    blocks: _Blocks, methods: Sequence[str], progress: Progress
) -> tuple[dict[str, MethodOutcome], dict[str, str]]:
    """Outcomes by method, then of the controls; and why a method cannot serve the model."""
    outcomes: dict[str, MethodOutcome] = {}
    refused: dict[str, str] = {}
    for name in methods:
        try:
            outcomes[name] = blocks.test(name, progress)
        except NotApplicableError as error:
            refused[name] = str(error)
    if not outcomes:
        raise NotApplicableError("; ".join(refused.values()))
    for name in CONTROLS:
        try:
            outcomes[name] = blocks.test(name, progress)
        except NotApplicableError as error:  # a network without a gradient, or whose copy without training gives NaN
            refused[name] = str(error)
    return outcomes, refused
