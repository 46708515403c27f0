"""Attacks from outside: a function of (model, images, labels, eps), registered or passed along."""

import inspect
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, overload

from scs_eval.analyses.attacks.config import Attack, parse_attacks
from scs_eval.analyses.attacks.kinds import ATTACKS, PASSED, AttackFunction, AttackKind, find_attack
from scs_eval.errors import InputError, several
from scs_eval.own_functions import check_traits, describe_function, register_function, renamed, trait_names

AttackLike = str | Attack | AttackFunction
TRAITS = trait_names(AttackKind)


@overload
def register_attack(attack: AttackKind, name: str = ...) -> AttackKind: ...
@overload
def register_attack(attack: AttackFunction, name: str = ..., **traits: Any) -> AttackFunction: ...
@overload
def register_attack(attack: str | None = ..., **traits: Any) -> Callable[[AttackFunction], AttackFunction]: ...
def register_attack(attack: Any = None, name: str = "", **traits: Any) -> Any:
    """Make an attack known by its name: to `pgd`, to `scs-eval pgd --attack` and to `scs-eval attacks`.

    A function gets the model, images (n, 3, H, W) in [0, 1], labels (n,) and ε, and gives images; of the arguments
    `norm`, `steps` and `seed` it is told those that it has. What it gives is put back into the ball around each image
    and judged by the model itself; the search for each image's smallest ε is ours. traits: fields of `AttackKind`
    (source, does, norms, steps, unit, cost). A name that is taken raises; a wrong shape or a NaN is reported with it.

    >>> import scs_eval
    >>> @scs_eval.register_attack("darker", source="an example", steps=1)
    ... def darker(model, images, labels, eps):
    ...     return images - eps
    >>> model, data = scs_eval.load_model("rohrer25k_scs"), scs_eval.load_data("sample", n=10)
    >>> options = scs_eval.PgdOptions(scorecard=None)
    >>> scs_eval.pgd(model, data, eps=[0.1, 0.5], attacks=["darker"], options=options).attacks
    ('darker',)
    """
    return register_function(ATTACKS, as_kind, attack, name, traits)


def as_kind(function: Any, name: str = "", **traits: Any) -> AttackKind:
    """The record of a plain function; a record as it is."""
    if isinstance(function, AttackKind):
        return renamed(function, name)
    expected = "an attack by name, an Attack or a function of (model, images, labels, eps)"
    known = describe_function(function, name, expected=expected)
    check_traits(traits, TRAITS, noun="an attack")
    if "-" in known.name:
        raise InputError(f"expected an attack's name without a hyphen, which begins its options, got {known.name!r}")
    kind = AttackKind(
        name=known.name, source=known.source, does=known.text, function=function,
        reads=("steps",) if "steps" in inspect.signature(function).parameters else (),
    )  # fmt: skip
    return replace(kind, **traits)


def as_attacks(attacks: Sequence[AttackLike]) -> tuple[Attack, ...]:
    """Attacks as they are; what a name or a function stands for, with its usual budget."""
    if isinstance(attacks, str | Attack) or callable(attacks):
        attacks = (attacks,)
    chosen = tuple(attack for asked in several(attacks=attacks) for attack in _attacks(asked))
    if not chosen:
        raise InputError("expected attacks, got none")
    return chosen


def _attacks(asked: AttackLike) -> tuple[Attack, ...]:
    if isinstance(asked, Attack):
        return (asked,)
    if isinstance(asked, str):
        return parse_attacks(asked)
    name = next((name for name, kind in ATTACKS.items() if asked is not None and kind.function is asked), None)
    if name is None:
        kind = as_kind(asked)
        if kind.name in ATTACKS:
            raise InputError(f"there is an attack {kind.name!r} already; rename the function that was passed")
        PASSED[kind.name], name = kind, kind.name
    kind = find_attack(name)
    return (Attack(name=name, norm=kind.norms[0], steps=kind.steps),)
