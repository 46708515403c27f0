"""Where does the model look, and how sparse, specific and steady are its maps?

The SCS paper (sections 4.4 and 5.2) reads from pictures that sharpening makes saliency maps sparser. Here the pictures
come with numbers over many images, and with a paired test against a reference that a rule names.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, overload

from scs_eval.analyses.saliency.options import SaliencyOptions as SaliencyOptions
from scs_eval.errors import InputError

if TYPE_CHECKING:  # the command line reads the options from here, and must not wait for torch
    from scs_eval.analyses.attribution.own_methods import MethodLike
    from scs_eval.analyses.core.inputs import ArrayLike, ImagesLike, ModelLike
    from scs_eval.analyses.saliency.result import SaliencyComparison, SaliencyResult


@overload
def saliency(
    model: "ModelLike",
    images: "ImagesLike",
    labels: "ArrayLike | None" = None,
    *,
    method: "MethodLike" = ...,
    options: SaliencyOptions | None = None,
    classes: Sequence[str] | None = None,
    label: str = ...,
    seed: int = ...,
) -> "SaliencyResult": ...
@overload
def saliency(
    model: "ModelLike",
    images: "ImagesLike",
    labels: "ArrayLike | None" = None,
    *,
    methods: "Sequence[MethodLike]",
    options: SaliencyOptions | None = None,
    classes: Sequence[str] | None = None,
    label: str = ...,
    seed: int = ...,
) -> "SaliencyComparison": ...
def saliency(
    model: "ModelLike",
    images: "ImagesLike",
    labels: "ArrayLike | None" = None,
    *,
    method: "MethodLike | None" = None,
    methods: "Sequence[MethodLike] | None" = None,
    options: SaliencyOptions | None = None,
    classes: Sequence[str] | None = None,
    label: str = "model",
    seed: int = 0,
) -> "SaliencyResult | SaliencyComparison":
    """Maps of a class's logit for images (n, 3, H, W) in [0, 1], and their metrics.

    images: arrays with labels (n,), or data that bring labels, classes and indices; without labels nothing is right.
    method: as `attribute` takes it: a name, a class of captum.attr, a function of (model, images, targets); by default
    the gradient. methods: several of them, for a comparison of their results; one that cannot serve the model raises.
    options: the class to explain, what becomes of the channels, max-sensitivity.

    >>> import scs_eval
    >>> data = scs_eval.load_data("sample", n=4)
    >>> model, few = scs_eval.load_model("rohrer25k_scs"), scs_eval.SaliencyOptions(samples=0)
    >>> scs_eval.saliency(model, data, options=few).maps.shape
    (4, 32, 32)
    >>> scs_eval.saliency(model, data, methods=["grad", "wx"], options=few).to_dataframe()["method"].tolist()
    ['grad', 'wx']
    """
    from scs_eval.analyses.saliency.runner import run, run_all

    chosen = options or SaliencyOptions()
    if methods is None:
        return run(model, images, labels, method or "grad", chosen, classes=classes, label=label, seed=seed)
    if method is not None:
        raise InputError("expected either method or methods, got both")
    return run_all(model, images, labels, methods, chosen, classes=classes, label=label, seed=seed)
