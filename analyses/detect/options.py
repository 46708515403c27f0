"""What is to be told from clean images, and how detectors are made."""

from dataclasses import dataclass
from typing import Annotated

from scs_eval.analyses.core.options import check_at_least, check_fields
from scs_eval.errors import InputError, check_positive


@dataclass(frozen=True, kw_only=True)
class DetectOptions:
    """The command's options are made from it."""

    eps: tuple[float, ...] = (2 / 255, 8 / 255)
    attack: Annotated[str, "Which attack makes adversarial images: pgd, pgd-l2, apgd-ce, square …"] = "pgd"
    noise: Annotated[float, "Input pre-processing of ODIN and Mahalanobis, per pixel; 0 for none."] = 0.0014
    stages: Annotated[
        tuple[str, ...], "Layers for Mahalanobis; repeatable.  [default: up to 6 over the depth]", {"flag": "--layer"}
    ] = ()
    batch_size: Annotated[int, "Images at once."] = 64

    def __post_init__(self) -> None:
        check_fields(self)
        check_at_least(1, batch_size=self.batch_size)
        for value in self.eps:
            check_positive(eps=value)
        if self.noise < 0:
            raise InputError(f"expected noise of at least 0, got {self.noise}")
