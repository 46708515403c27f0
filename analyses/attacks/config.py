"""What an attack is: its name, the norm of its ball, its loss and its budget."""

import math
from dataclasses import dataclass

from scs_eval.analyses.attacks.kinds import NORMS, AttackKind, find_attack
from scs_eval.errors import InputError

LOSSES = ("ce", "margin", "dlr")
AUTOATTACK, TARGETS = "autoattack", 9
MALT, MALT_EXAMPLES = "malt", "try apgd-dlr-targeted-malt or autoattack-malt"


@dataclass(frozen=True, kw_only=True)
class Attack:
    """One attack and its budget.

    name: one of `scs-eval attacks`, or torchattacks:NAME or foolbox:NAME for a class of that package.
    loss: what is maximised; with apgd, ce and dlr are APGD-CE and APGD-DLR.
    steps: gradient steps; for square, queries.
    rel_step_size: size of a step as a share of ε (pgd only: fgsm takes one step of ε, apgd starts at 2 ε and halves).
    restarts: starts per image; the worst of them counts.
    random_start: from a random point of the ball, else from the image; without it a second start would be the first.
    targeted: towards one wrong class, the most likely first; restart r heads for the r-th.
    malt: the class first that a linear model would reach first (`targets.py`); only if targeted.

    >>> import scs_eval
    >>> attack = scs_eval.Attack(name="apgd", norm="l2", steps=5)
    >>> data = scs_eval.load_data("sample", n=3)
    >>> options = scs_eval.PgdOptions(scorecard=None)
    >>> scs_eval.pgd("rohrer25k_scs", data, eps=[0.1], attacks=[attack], options=options).min_eps.shape
    (3,)
    """

    name: str = "pgd"
    norm: str = "linf"
    loss: str = "ce"
    steps: int = 10
    rel_step_size: float = 0.25
    restarts: int = 1
    random_start: bool = True
    targeted: bool = False
    malt: bool = False

    def __post_init__(self) -> None:
        if self.name == "fgsm":  # PGD with one full step from the image itself
            for field, value in (("steps", 1), ("rel_step_size", 1.0), ("random_start", False)):
                object.__setattr__(self, field, value)
        if self.name == "fab":  # it follows the margin's hyperplanes
            object.__setattr__(self, "loss", "margin")
        _one_of("norm", self.norm, NORMS)
        if self.norm not in self.kind.norms:
            raise InputError(f"the attack {self.name} works in {' and '.join(self.kind.norms)}, not in {self.norm}")
        _one_of("loss", self.loss, LOSSES)
        _at_least_one("steps", self.steps)
        _at_least_one("restarts", self.restarts)
        if self.malt and not self.targeted:
            raise InputError(
                f"malt chooses the classes of a targeted attack, which {self.name} is not: {MALT_EXAMPLES}"
            )
        if not (math.isfinite(self.rel_step_size) and self.rel_step_size > 0):
            raise InputError(f"expected a step above 0 as a share of ε, got {self.rel_step_size}")

    @property
    def kind(self) -> AttackKind:
        """What it is, whatever its budget."""
        return find_attack(self.name)

    @property
    def is_external(self) -> bool:
        """Whether its steps are made outside this package."""
        return ":" in self.name or self.kind.function is not None

    @property
    def label(self) -> str:
        """A short name for tables, which `parse_attack` understands: apgd-dlr-l2, pgd-40."""
        norm, loss = self.norm.replace("linf", ""), self.loss.replace("ce", "")
        loss = "" if self.name in ("square", "fab") else loss or ("ce" if self.name == "apgd" else "")
        steps = "" if self.steps == self.kind.steps else str(self.steps)
        parts = (self.name, loss, norm, "targeted" if self.targeted else "", MALT if self.malt else "", steps)
        return "-".join(part for part in parts if part)

    @property
    def cost(self) -> float:
        """Gradient steps per image and ε, at most; a forward pass (square's query, half of fab's step) is a third."""
        return self.steps * self.restarts * self.kind.cost


def parse_attacks(text: str) -> tuple[Attack, ...]:
    """What a word on the command line stands for: one attack, or the four of autoattack (-l2: its norm; -malt).

    AutoAttack (Croce and Hein 2020): APGD-CE, then towards each of nine classes APGD-DLR and FAB, then Square with
    5,000 queries. A sweep makes them one after the other, each only of what is left.
    """
    name, *words = text.strip().split("-")
    if name != AUTOATTACK:
        return (parse_attack(text),)
    if any(word not in (*NORMS, MALT) for word in words):
        raise InputError(f"expected {AUTOATTACK}, -l2 or -malt after it, got {text!r}; its attacks are as published")
    norm, malt = next((word for word in words if word in NORMS), NORMS[0]), MALT in words
    return (
        Attack(name="apgd", norm=norm, steps=100),
        Attack(name="apgd", norm=norm, loss="dlr", steps=100, targeted=True, malt=malt, restarts=TARGETS),
        Attack(name="fab", norm=norm, steps=100, targeted=True, malt=malt, restarts=TARGETS),
        Attack(name="square", norm=norm, loss="margin", steps=5000),
    )


def parse_attack(text: str) -> Attack:
    """An attack from its name and, after hyphens in any order, norm, loss, `targeted`, `malt` and the number of steps.

    pgd, pgd-l2, pgd-margin-40, apgd-dlr, apgd-dlr-targeted, fgsm, square, torchattacks:PGD, foolbox:LinfPGD …
    """
    name, *words = text.strip().split("-")
    options: dict[str, object] = {"steps": find_attack(name).steps}
    if name == "square":
        options["loss"] = "margin"
    for word in words:
        options.update(_option(word, text))
    return Attack(name=name, **options)  # type: ignore[arg-type]


def _option(word: str, text: str) -> dict[str, object]:
    if word in NORMS:
        return {"norm": word}
    if word in LOSSES:
        return {"loss": word}
    if word in ("targeted", MALT):
        return {word: True}
    if word.isdecimal():
        return {"steps": int(word)}
    known = ", ".join((*NORMS, *LOSSES))
    raise InputError(
        f"expected {known}, targeted, {MALT} or a number of steps after the attack's name, got {word!r} in {text!r}"
    )


def _one_of(what: str, value: str, known: tuple[str, ...]) -> None:
    if value not in known:
        raise InputError(f"expected the {what} {' or '.join(known)}, got {value!r}")


def _at_least_one(what: str, value: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise InputError(f"expected {what} as a whole number of at least 1, got {value!r}")
