"""Does the map say what the model does? Tests of attribution methods, and controls that know nothing learned.

Insertion and deletion (Petsiuk et al. 2018) ask whether the pixels that a map names matter to the answer, infidelity
(Yeh et al. 2019) whether the map predicts what changes of the image do to the logit, cascading parameter randomisation
(Adebayo et al. 2018) whether the map depends on what the model has learned. Beside every method stand a random map,
which a method must beat, an edge map, which is always the same and so shows what a failure looks like, and input ×
gradient of the same network with every layer re-initialised, which knows the architecture and nothing that was learned.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from scs_eval.analyses.faithfulness.options import FaithfulnessOptions as FaithfulnessOptions
from scs_eval.progress import Progress

if TYPE_CHECKING:  # the command line reads the options from here, and must not wait for torch
    from scs_eval.analyses.attribution.own_methods import MethodLike
    from scs_eval.analyses.attribution.own_metrics import MetricLike
    from scs_eval.analyses.core.inputs import ArrayLike, ImagesLike, ModelLike
    from scs_eval.analyses.faithfulness.result import FaithfulnessResult


def faithfulness(
    model: "ModelLike",
    images: "ImagesLike",
    targets: "ArrayLike | None" = None,
    *,
    methods: "MethodLike | Sequence[MethodLike]" = ("grad", "ixg", "wx"),
    metrics: "Sequence[MetricLike]" = (),
    options: FaithfulnessOptions | None = None,
    classes: Sequence[str] | None = None,
    label: str = "model",
    seed: int = 0,
    progress: Progress | None = None,
) -> "FaithfulnessResult":
    """Put methods to the test on images (n, 3, H, W) in [0, 1]; `targets` (n,) are the predicted classes by default.

    images: arrays, or data that bring classes and indices; some hundred are held at a time, fewer of large ones, and of
    the first ones the maps are kept (16,384 of 32 pixels, 334 of 224).
    methods: one or several, each as `attribute` takes it. metrics: besides ours, names of `scs-eval metrics`,
    quantus:NAME, or functions of (model, images, targets, maps) as `register_metric` takes them.
    options: of the curves and of infidelity. progress: told how many more images are done, of each method and
    control.
    Of several methods, one that cannot serve the model is left out and recorded; if none is left, that is an error.

    >>> import scs_eval
    >>> data = scs_eval.load_data("sample", n=4)
    >>> model, few = scs_eval.load_model("rohrer25k_scs"), scs_eval.FaithfulnessOptions(steps=4, samples=5)
    >>> scs_eval.faithfulness(model, data, methods="grad", options=few).methods
    ('grad', 'random', 'edges', 'untrained')
    """
    from scs_eval.analyses.faithfulness.runner import run

    return run(
        model, images, targets, options or FaithfulnessOptions(), methods=methods, metrics=metrics, classes=classes,
        label=label, seed=seed, progress=progress or (lambda _: None),
    )  # fmt: skip
