"""How a model is smoothed, how much is counted, and how it is attacked."""

from dataclasses import dataclass
from typing import Annotated

from scs_eval.analyses.core.options import check_at_least, check_fields
from scs_eval.errors import InputError, check_positive


@dataclass(frozen=True, kw_only=True)
class CertifyOptions:
    """The command's options are made from it; samples and guesses are n and n₀ of Cohen et al."""

    sigma: Annotated[tuple[float, ...], "Standard deviation of the noise, pixels in [0, 1]; repeatable."] = (0.06,)
    samples: Annotated[int, "Noisy copies that a radius is proven with."] = 1000
    guesses: Annotated[int, "Noisy copies by which the class is guessed before."] = 100
    alpha: Annotated[float, "A certificate is wrong with at most this probability."] = 0.001
    attack: Annotated[bool, "Attack the smoothed model, for an upper bound beside the proven lower one."] = True
    draws: Annotated[int, "Noisy copies that the attack's gradient is the mean of."] = 8

    def __post_init__(self) -> None:
        check_fields(self)
        if not self.sigma:
            raise InputError("expected at least one sigma, got none")
        for value in self.sigma:
            check_positive(sigma=value)
        if len(set(self.sigma)) < len(self.sigma):
            raise InputError("expected each sigma once")
        check_at_least(1, samples=self.samples, guesses=self.guesses, draws=self.draws)
        if not 0 < self.alpha < 0.5:
            raise InputError(f"expected alpha between 0 and 0.5, got {self.alpha}")
