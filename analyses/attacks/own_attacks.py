"""Attacks from outside: a function of (model, images, labels, eps), registered or passed along."""

import inspect
from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from typing import Any, overload

from scs_eval.analyses.attacks.config import Attack, parse_attacks
from scs_eval.analyses.attacks.kinds import ATTACKS, PASSED, AttackFunction, AttackKind, find_attack
from scs_eval.errors import InputError, did_you_mean, several

AttackLike = str | Attack | AttackFunction
TRAITS = tuple(item.name for item in fields(AttackKind) if item.name not in ("name", "function"))


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
    if isinstance(attack, AttackKind):
        return ATTACKS.add(name or attack.name, replace(attack, name=name or attack.name))
    if attack is None or isinstance(attack, str):
        return lambda function: register_attack(function, attack or name, **traits)
    kind = as_kind(attack, name, **traits)
    ATTACKS.add(kind.name, kind, origin=attack)
    return attack


def as_kind(function: Any, name: str = "", **traits: Any) -> AttackKind:
    """The record of a plain function."""
    if not callable(function) or inspect.isclass(function):
        raise InputError(
            f"expected an attack by name, an Attack or a function of (model, images, labels, eps), got {function!r:.60}"
        )
    if wrong := [trait for trait in traits if trait not in TRAITS]:
        hint = did_you_mean(wrong[0], TRAITS, otherwise=f"traits are {', '.join(TRAITS)}", most=1)
        raise InputError(f"an attack has no trait {wrong[0]!r}; {hint}")
    called = name or getattr(function, "__name__", type(function).__name__)
    if "-" in called:
        raise InputError(f"expected an attack's name without a hyphen, which begins its options, got {called!r}")
    text = (inspect.getdoc(function) or "").partition("\n")[0] if inspect.isroutine(function) else ""
    kind = AttackKind(
        name=called, source=getattr(function, "__module__", "") or "not said", does=text or "not said by its author",
        reads=("steps",) if "steps" in inspect.signature(function).parameters else (), function=function,
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
