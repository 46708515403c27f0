"""Can adversarial images and images of another kind be told from clean ones, by what the model makes of them?"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from scs_eval.analyses.detect.options import DetectOptions as DetectOptions
from scs_eval.progress import Progress

if TYPE_CHECKING:  # the command line reads the options from here, and must not wait for torch
    from scs_eval.analyses.core.inputs import ArrayLike, ImagesLike, ModelLike
    from scs_eval.analyses.detect.result import DetectResult


def detect(
    model: "ModelLike",
    images: "ImagesLike",
    labels: "ArrayLike | None" = None,
    *,
    classes: Sequence[str] | None = None,
    others: "Mapping[str, ImagesLike] | None" = None,
    fit: "ImagesLike | None" = None,
    options: DetectOptions | None = None,
    indices: "ArrayLike | None" = None,
    label: str = "model",
    seed: int = 0,
    progress: Progress | None = None,
    checkpoint: Path | None = None,
) -> "DetectResult":
    """Tell clean images (n, 3, H, W) in [0, 1] with labels (n,) from adversarial versions of them, and from `others`.

    others: name → images of another kind. fit: labelled data for the Gaussians, such as training images; without, half
    of the images is taken for that and not tested. Of the rest, and of each kind of other images, half trains the
    regression over stages and half is tested. Adversarial images count where the model was right before and is not
    after. progress: is told how many more images were scored; `steps` says of how many. checkpoint: a file to resume
    from.

    >>> import scs_eval
    >>> from scs_eval.analyses.detect.options import DetectOptions
    >>> data = scs_eval.load_data("sample", n=60)
    >>> result = scs_eval.detect("rohrer25k_scs", data, options=DetectOptions(eps=(8 / 255,)))
    >>> len(result.eps)
    1
    """
    from scs_eval.analyses.detect.runner import run

    return run(
        model, images, labels, classes=classes, others=others, fit=fit, options=options, indices=indices, label=label,
        seed=seed, progress=progress, checkpoint=checkpoint,
    )  # fmt: skip
