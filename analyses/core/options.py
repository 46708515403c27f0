"""What dataclasses of options check alike. No torch here: the command line makes its options of them."""

from dataclasses import fields
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from scs_eval.errors import InputError, brief, check_whole, is_number, is_whole, several

# What a value of each type is called, and whether something is one.
PLAIN: dict[Any, tuple[str, Any]] = {
    int: ("a whole number", is_whole),
    float: ("a finite number", is_number),
    str: ("text", lambda value: isinstance(value, str)),
    bool: ("True or False", lambda value: isinstance(value, bool)),
    Path: ("a path", lambda value: isinstance(value, str | Path)),
    NoneType: ("None", lambda value: value is None),
}


def check_fields(options: Any) -> None:
    """Raise unless every field is of the type that its annotation names, numbers finite and True no number."""
    hints = get_type_hints(type(options))
    for item in fields(options):
        value, hint = getattr(options, item.name), hints[item.name]
        if not _fits(value, hint):
            raise InputError(f"expected {item.name} as {_words(hint)}, got {brief(value)}")


def check_at_least(least: int, **counts: int | None) -> None:
    """Raise unless every count that is given is at least so large."""
    check_whole(least, **{name: count for name, count in counts.items() if count is not None})


def _fits(value: Any, hint: Any) -> bool:
    kind, parts = get_origin(hint), get_args(hint)
    if kind is Literal:
        return any(type(value) is type(part) and value == part for part in parts)
    if kind in (Union, UnionType):
        return any(_fits(value, part) for part in parts)
    if kind is tuple and parts[-1] is Ellipsis:
        return _all_fit(value, parts[0])
    return hint not in PLAIN or PLAIN[hint][1](value)


def _all_fit(values: Any, hint: Any) -> bool:
    try:
        return all(_fits(value, hint) for value in several(it=values))
    except InputError:
        return False


def _words(hint: Any) -> str:
    kind, parts = get_origin(hint), get_args(hint)
    if kind is Literal:
        return f"one of {', '.join(map(str, parts))}"
    if kind in (Union, UnionType):
        return " or ".join(map(_words, parts))
    if kind is tuple and parts[-1] is Ellipsis:
        return f"a list, each {_words(parts[0])}"
    return PLAIN[hint][0] if hint in PLAIN else "it is described"
