"""What can be chosen about the tests of maps. No torch here: the command line makes its options of these."""

from dataclasses import dataclass
from typing import Annotated, Literal

from scs_eval.analyses.core.options import check_at_least, check_fields
from scs_eval.errors import check_positive

SIGMA, SAMPLES = 0.02, 50  # of infidelity


@dataclass(frozen=True, kw_only=True)
class FaithfulnessOptions:
    """How the curves and infidelity are made; the text of each annotation is the help of the option of that name.

    samples: noisy images of infidelity.

    >>> import scs_eval
    >>> scs_eval.FaithfulnessOptions(baseline="blur", steps=8).order
    'signed'
    """

    baseline: Annotated[
        Literal["black", "mean", "blur"],
        "What replaces a pixel of the curves: black, the image's mean colour, or the blurred image.",
    ] = "black"
    order: Annotated[
        Literal["signed", "magnitude"],
        "Pixels of the curves: by the signed sum of the channels, or by the largest |value|.",
    ] = "signed"
    steps: Annotated[int, "Steps of the insertion and deletion curves."] = 32
    sigma: Annotated[float, "Infidelity: a pixel loses or gains this share of itself."] = SIGMA
    samples: int = SAMPLES

    def __post_init__(self) -> None:
        """Refuse what no maps could be asked."""
        check_fields(self)
        check_at_least(1, samples=self.samples)  # how many steps an image allows depends on its size
        check_positive(sigma=self.sigma)
