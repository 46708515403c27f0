"""How small a change of the image makes the model wrong, and is that to be believed?

One sweep finds for every image the smallest ε that breaks it; accuracy against ε (Figures 5, 6, 15 and 16 of the SCS
paper), areas and medians follow from it. The scorecard beside the curve says whether the robustness is real.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from scs_eval.analyses.pgd.options import PgdOptions as PgdOptions

if TYPE_CHECKING:  # the command line reads the options from here, and must not wait for torch
    from scs_eval.analyses.attacks.own_attacks import AttackLike
    from scs_eval.analyses.core.inputs import ArrayLike, ImagesLike, ModelLike
    from scs_eval.analyses.pgd.result import PgdResult


def pgd(
    model: "ModelLike",
    images: "ImagesLike",
    labels: "ArrayLike | None" = None,
    *,
    eps: Sequence[float],
    attacks: "Sequence[AttackLike]" = ("pgd",),
    options: PgdOptions | None = None,
    classes: Sequence[str] | None = None,
    label: str = "model",
    seed: int = 0,
) -> "PgdResult":
    """Attack images (n, 3, H, W) in [0, 1] with labels (n,) at every ε, on the device that the model is on.

    images: arrays, or data that bring labels, classes and indices; they are read when they are attacked, and of the
    adversarial images only those that the options show or keep stay.
    attacks: names as of `--attack`, `Attack`s, or functions of (model, images, labels, eps) as `register_attack` takes
    them; an image counts as wrong if one of them fools the model. options: of the sweep, its scorecard, what is kept.

    >>> import scs_eval
    >>> data = scs_eval.load_data("sample", n=4)
    >>> model, curve_only = scs_eval.load_model("rohrer25k_scs"), scs_eval.PgdOptions(scorecard=None)
    >>> result = scs_eval.pgd(model, data, eps=[0.01, 0.3], options=curve_only)
    >>> bool(result.is_adversarial[-1].all())
    True
    """
    from scs_eval.analyses.pgd.runner import run

    return run(
        model, images, labels, options or PgdOptions(), eps=eps, attacks=attacks, classes=classes, label=label,
        seed=seed,
    )  # fmt: skip
