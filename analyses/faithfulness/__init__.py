"""Does the map say what the model does? Three tests of attribution methods, and two controls that know no model.

Insertion and deletion (Petsiuk et al. 2018) ask whether the pixels that a map names matter to the answer, infidelity
(Yeh et al. 2019) whether the map predicts what changes of the image do to the logit, cascading parameter randomisation
(Adebayo et al. 2018) whether the map depends on what the model has learned. Beside every method stand a random map,
which a method must beat, and an edge map, which is always the same and so shows what a failure looks like.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from scs_eval.analyses.attribution.methods import Method
from scs_eval.analyses.attribution.own_methods import MethodLike, method_name
from scs_eval.analyses.attribution.own_metrics import MetricLike, as_metrics, remembered
from scs_eval.analyses.attribution.similarity import WINDOW
from scs_eval.analyses.core.inference import BATCH, predict_logits
from scs_eval.analyses.core.inputs import (
    ArrayLike,
    ImagesLike,
    ModelLike,
    as_examples,
    as_labels,
    as_model,
    check_several_classes,
)
from scs_eval.analyses.core.model_state import device_of, evaluating
from scs_eval.analyses.core.validation import check_images, check_labels, check_names
from scs_eval.analyses.faithfulness.bench import Bench, Outcome, stacked
from scs_eval.analyses.faithfulness.controls import CONTROLS
from scs_eval.analyses.faithfulness.infidelity import SAMPLES, SIGMA
from scs_eval.analyses.faithfulness.pixel_curves import BASELINES, ORDERS
from scs_eval.analyses.faithfulness.result import FaithfulnessComparison as FaithfulnessComparison
from scs_eval.analyses.faithfulness.result import FaithfulnessResult as FaithfulnessResult
from scs_eval.errors import InputError, NotApplicableError
from scs_eval.progress import Progress

STEPS = 32


def faithfulness(
    model: ModelLike,
    images: ImagesLike,
    targets: ArrayLike | None = None,
    *,
    classes: Sequence[str] | None = None,
    method: MethodLike | Sequence[MethodLike] = ("grad", "ixg", "wx"),
    metrics: Sequence[MetricLike] = (),
    baseline: str = "black",
    order: str = "signed",
    steps: int = STEPS,
    sigma: float = SIGMA,
    samples: int = SAMPLES,
    label: str = "model",
    indices: ArrayLike | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> FaithfulnessResult:
    """Put methods to the test on images (n, 3, H, W) in [0, 1]; `targets` (n,) are the predicted classes by default.

    images: arrays, or data that bring classes and indices; all of them are held, for an image costs hundreds of passes.
    method: one or several, each as `attribute` takes it. metrics: besides ours, names of `scs-eval metrics`,
    quantus:NAME, or functions of (model, images, targets, maps) as `register_metric` takes them.
    baseline: what replaces a pixel of the curves (black, mean, blur), `steps` how often; order: signed or magnitude.
    sigma, samples: of infidelity. indices: where the images came from. progress: told of every method and control done.
    Of several methods, one that cannot serve the model is left out and recorded; if none is left, that is an error.

    >>> import scs_eval
    >>> data = scs_eval.load_data("sample", n=4)
    >>> model = scs_eval.load_model("rohrer25k_scs")
    >>> result = scs_eval.faithfulness(model, data.images, classes=data.classes, method="grad", steps=4)
    >>> result.methods
    ('grad', 'random', 'edges')
    """
    asked = (method,) if isinstance(method, str | Method) or callable(method) else method
    methods = tuple(dict.fromkeys(map(method_name, asked)))
    check_names(label=label)
    own = as_metrics(metrics)
    model, data = as_model(model), as_examples(images, classes=classes, indices=indices)
    names, pictures = data.class_names(model), data.images[:]  # the cascade asks every network about all of them
    _check(pictures, methods, baseline=baseline, order=order, sigma=sigma, samples=samples)
    check_several_classes(names)
    with torch.inference_mode(False), evaluating(model):
        like = next(model.parameters(), pictures)
        moved = pictures.to(like.device, like.dtype)
        chosen = _targets(model, moved, targets, names)
        bench = Bench(
            model=model, images=moved, targets=chosen, baseline=baseline, order=order, steps=steps, sigma=sigma,
            samples=samples, shown=1, seed=seed, metrics=own,
        )  # fmt: skip
        arrays = _arrays(bench, methods, progress or (lambda _: None))
    return FaithfulnessResult(
        label=label,
        settings={**data.settings, "device": str(device_of(model)), **bench.settings},
        classes=names,
        indices=data.indices.numpy(),
        images=pictures[:1].cpu().numpy().astype(np.float32),
        **arrays,
    )


def _arrays(bench: Bench, methods: Sequence[str], progress: Progress) -> dict[str, Any]:
    """Everything that a result knows from the bench."""
    fractions = bench.counts.numpy() / bench.counts[-1].item()  # before the work: wrong steps raise here
    outcomes, refused = _test_all(bench, methods, progress)
    arrays: dict[str, Any] = stacked(list(outcomes.values()))
    if not bench.metrics:
        arrays["own_scores"] = None
    return {
        "methods": tuple(outcomes),
        "own_metrics": tuple(remembered(metric) for metric in bench.metrics),
        "layers": tuple(depth.name for depth in bench.depths),
        "targets": bench.targets.cpu().numpy(),
        "fractions": fractions,
        "change": bench.infidelity(torch.zeros_like(bench.images), gradient=False, scale=False),
        "left_out": refused,
        **arrays,
    }


def _check(images: Tensor, methods: Sequence[str], *, baseline: str, order: str, sigma: float, samples: int) -> None:
    """Raise one line about the first thing that is wrong, before any work."""
    check_images(images)
    if min(images.shape[2:]) < WINDOW:
        raise InputError(f"expected images of at least {WINDOW}×{WINDOW} pixels for SSIM, got {tuple(images.shape)}")
    if not methods:
        raise InputError("expected a method, got none")
    if baseline not in BASELINES:
        raise InputError(f"expected a baseline among {', '.join(BASELINES)}, got {baseline!r}")
    if order not in ORDERS:
        raise InputError(f"expected an order among {', '.join(ORDERS)}, got {order!r}")
    if not (0 < sigma < np.inf and samples >= 1):
        raise InputError(f"expected a finite sigma above 0 and at least 1 sample, got {sigma} and {samples}")


def _targets(model: nn.Module, images: Tensor, targets: ArrayLike | None, classes: Sequence[str]) -> Tensor:
    """The classes to explain, by default the predicted ones; the model must have logits for all images either way."""
    logits = predict_logits(model, images, classes=len(classes), batch_size=BATCH)
    if targets is None:
        return logits.argmax(1).to(images.device)
    given = as_labels(targets, what="targets")
    check_labels(given, images=images, classes=classes)
    return given.long().to(images.device)


def _test_all(bench: Bench, methods: Sequence[str], progress: Progress) -> tuple[dict[str, Outcome], dict[str, str]]:
    """Outcomes by method, then of the controls; and why a method cannot serve the model."""
    outcomes: dict[str, Outcome] = {}
    refused: dict[str, str] = {}
    for name in methods:
        try:
            outcomes[name] = bench.test(name)
        except NotApplicableError as error:
            refused[name] = str(error)
        progress(1)
    if not outcomes:
        raise NotApplicableError("; ".join(refused.values()))
    for name in CONTROLS:
        outcomes[name] = bench.test(name)
        progress(1)
    return outcomes, refused
