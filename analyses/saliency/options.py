"""What can be chosen about saliency maps. No torch here: the command line makes its options of these."""

from dataclasses import dataclass
from typing import Annotated, Literal

from scs_eval.analyses.core.options import check_at_least, check_fields
from scs_eval.errors import InputError

RADIUS, SAMPLES = 0.02, 5  # of max-sensitivity; captum's radius


@dataclass(frozen=True, kw_only=True)
class SaliencyOptions:
    """Of which class, how channels become one map, how many are drawn; of max-sensitivity how far and how often.

    The text of each annotation is the help of the option of that name. No samples, no max-sensitivity.

    >>> import scs_eval
    >>> scs_eval.SaliencyOptions(target="cat", reduce="positive", samples=0).rows
    6
    """

    target: Annotated[str | int, "Class to explain: predicted, label or a name.", {"type": str}] = "predicted"
    reduce: Annotated[
        Literal["max", "mean", "norm", "sum", "positive"],
        "Channels: max, mean, norm, sum or positive.",
        {"type": str},
    ] = "max"
    rows: Annotated[int, "Images in the figure."] = 6
    radius: float = RADIUS
    samples: int = SAMPLES

    def __post_init__(self) -> None:
        """Refuse what no maps could be asked."""
        check_fields(self)
        check_at_least(1, rows=self.rows)
        check_at_least(0, samples=self.samples)
        if not 0 < self.radius <= 1:
            raise InputError(f"expected 0 < radius ≤ 1, got {self.radius}")
