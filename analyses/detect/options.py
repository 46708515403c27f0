"""What is to be told from clean images, and how detectors are made."""

import math
from dataclasses import dataclass
from typing import Annotated

from scs_eval.errors import InputError


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
        if any(not (math.isfinite(value) and value > 0) for value in self.eps):
            raise InputError(f"expected every ε above 0, got {', '.join(map(str, self.eps))}")
        if not (math.isfinite(self.noise) and self.noise >= 0):
            raise InputError(f"expected noise of at least 0, got {self.noise}")
        if self.batch_size < 1:
            raise InputError(f"expected a batch size of at least 1, got {self.batch_size}")
