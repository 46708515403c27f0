"""The attacks by name: one record each, with all that the rest of the package has to know. No torch here."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from scs_eval.plugins import Registry

if TYPE_CHECKING:
    from torch import Tensor

AttackFunction = Callable[..., "Tensor"]  # (model, images, labels, eps) -> images; see `register_attack`
Option = Literal["steps", "loss", "rel_step_size", "targeted"]
NORMS = ("linf", "l2")
TORCHATTACKS, FOOLBOX = "torchattacks:", "foolbox:"
USUAL_STEPS = 10


@dataclass(frozen=True, kw_only=True)
class AttackKind:
    """What an attack is, whatever its budget.

    source: the paper. does: what it does, in words. norms: of the balls it can stay in.
    steps: its usual budget; unit: what a step is. cost: of a step, in gradients of an image.
    reads: which settings of an `Attack` it heeds besides the norm and the restarts. fails: where it finds too little.
    function: of one from outside.

    >>> import scs_eval
    >>> kind = scs_eval.AttackKind(
    ...     name="fade", source="an example", does="towards grey", steps=1,
    ...     function=lambda model, images, labels, eps: images + eps * (0.5 - images).sign(),
    ... )
    >>> scs_eval.register_attack(kind).norms
    ('linf', 'l2')
    """

    name: str
    source: str
    does: str
    norms: tuple[str, ...] = NORMS
    steps: int = USUAL_STEPS
    unit: str = "gradient steps"
    cost: float = 1
    reads: tuple[Option, ...] = ("steps",)
    fails: str = ""
    function: AttackFunction | None = None


ATTACKS: Registry[AttackKind] = Registry(
    "an attack", group="scs_eval.attacks", register="scs_eval.analyses.attacks.own_attacks:register_attack"
)
for _kind in (
    AttackKind(
        name="pgd",
        source="Madry et al. 2018",
        does="steps of one size along the gradient of the loss, back into the ball after each; then polished",
        reads=("steps", "loss", "rel_step_size", "targeted"),
        fails="where gradients vanish or mislead (masked gradients); 10 steps of one size may stop short",
    ),
    AttackKind(
        name="fgsm",
        source="Goodfellow et al. 2015",
        does="one step of ε along the gradient, from the image itself",
        steps=1,
        reads=("loss", "targeted"),
        fails="as soon as the loss bends within ε: a curve by it alone shows little",
    ),
    AttackKind(
        name="apgd",
        source="Croce and Hein 2020",
        does="PGD with momentum that halves its step where the loss stalls; apgd-ce and apgd-dlr; then polished",
        steps=100,
        reads=("steps", "loss", "targeted"),
        fails="where gradients vanish or mislead; the DLR loss needs four classes",
    ),
    AttackKind(
        name="fab",
        source="Croce and Hein 2020 (FAB)",
        does="towards the nearest point of the linearised decision boundary",
        steps=100,
        cost=4 / 3,  # a gradient of every class, and half a step of forward passes
        reads=("targeted",),
        fails="where gradients vanish or mislead; its cost grows with the number of classes",
    ),
    AttackKind(
        name="square",
        source="Andriushchenko et al. 2020",
        does="random squares of colour, kept where the loss rises; needs no gradient",
        steps=1000,
        unit="queries",
        cost=1 / 3,  # a forward pass
        reads=("targeted",),
        fails="weaker than the others where gradients are sound; thousands of queries",
    ),
):
    ATTACKS.add(_kind.name, _kind)
ATTACKS.close()
PASSED: dict[str, AttackKind] = {}  # functions that were passed where a name is accepted, by theirs


def find_attack(name: str) -> AttackKind:
    """The attack of that name, also torchattacks:NAME and foolbox:NAME; an unknown one suggests the nearest."""
    for prefix, package in ((TORCHATTACKS, "torchattacks"), (FOOLBOX, "foolbox")):
        if name.startswith(prefix) and len(name) > len(prefix):
            return AttackKind(
                name=name, source=package, does=f"the class {name.removeprefix(prefix)} of {package}",
                reads=("steps", "rel_step_size", "targeted"),
            )  # fmt: skip
    if name in PASSED and name not in ATTACKS:
        return PASSED[name]
    return ATTACKS.find(name, also=", torchattacks:NAME, foolbox:NAME")
