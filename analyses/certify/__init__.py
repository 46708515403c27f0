"""How far can an image be changed, at least and at most, before the smoothed model says otherwise?

Randomised smoothing proves a radius within which nothing changes; an attack on the same smoothed model finds a distance
at which something does. The truth lies between.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from scs_eval.analyses.certify.options import CertifyOptions as CertifyOptions
from scs_eval.progress import Progress

if TYPE_CHECKING:  # the command line reads the options from here, and must not wait for torch
    from scs_eval.analyses.certify.result import CertifyResult
    from scs_eval.analyses.core.inputs import ArrayLike, ImagesLike, ModelLike


def certify(
    model: "ModelLike",
    images: "ImagesLike",
    labels: "ArrayLike | None" = None,
    *,
    classes: Sequence[str] | None = None,
    options: CertifyOptions | None = None,
    indices: "ArrayLike | None" = None,
    label: str = "model",
    seed: int = 0,
    progress: Progress | None = None,
    checkpoint: Path | None = None,
) -> "CertifyResult":
    """Certify images (n, 3, H, W) in [0, 1] with labels (n,), and attack what was certified.

    images: arrays, or data that bring labels, classes and indices. progress: is told how many more images are done;
    each counts for every σ: once for the proof, once for the attack, once for its check. checkpoint: a file to resume
    from.

    >>> import scs_eval
    >>> from scs_eval.analyses.certify.options import CertifyOptions
    >>> few = CertifyOptions(sigma=(0.1,), samples=100, guesses=20, draws=1)
    >>> scs_eval.certify("rohrer25k_scs", scs_eval.load_data("sample", n=2), options=few).proven.shape
    (1, 2)
    """
    from scs_eval.analyses.certify.runner import run

    return run(
        model, images, labels, classes=classes, options=options, indices=indices, label=label, seed=seed,
        progress=progress, checkpoint=checkpoint,
    )  # fmt: skip
