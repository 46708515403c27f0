"""Functions from outside as records: what registering a method, an attack and a metric has in common. No torch here."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any, NamedTuple, TypeVar

from scs_eval.errors import InputError, did_you_mean
from scs_eval.plugins import Registry

Record = TypeVar("Record")
NOT_SAID = "not said by its author"


class Described(NamedTuple):
    """What a function says of itself: its name, the first line of its docstring, the module that it comes from."""

    name: str
    text: str
    source: str


def register_function(
    registry: Registry[Record], record_of: Callable[..., Record], given: Any, name: str, traits: Mapping[str, Any]
) -> Any:
    """Add a record, or the record of a function; without either, a decorator that will."""
    if given is None or isinstance(given, str):
        return lambda function: register_function(registry, record_of, function, given or name, traits)
    record: Any = record_of(given, name, **traits)
    registry.add(record.name, record, origin=None if isinstance(given, type(record)) else given)
    return given


def renamed(record: Any, name: str, **changes: Any) -> Any:
    """A record that was passed as it is, under another name if there is one."""
    return replace(record, name=name or record.name, **changes)


def trait_names(record_type: type, *not_traits: str) -> tuple[str, ...]:
    """The fields of a record that its author may declare."""
    return tuple(item.name for item in fields(record_type) if item.name not in ("name", "function", *not_traits))


def check_traits(given: Mapping[str, Any], traits: Sequence[str], *, noun: str) -> None:
    """Raise for a trait that there is not, and suggest the nearest. noun: of what, with its article."""
    if wrong := [trait for trait in given if trait not in traits]:
        hint = did_you_mean(wrong[0], traits, otherwise=f"traits are {', '.join(traits)}", most=1)
        raise InputError(f"{noun} has no trait {wrong[0]!r}; {hint}")


def describe_function(function: Any, name: str, *, expected: str) -> Described:
    """What a function says of itself; anything but a function raises. name: what it is to be called instead."""
    if not callable(function) or inspect.isclass(function):
        raise InputError(f"expected {expected}, got {function!r:.60}")
    text = (inspect.getdoc(function) or "").partition("\n")[0] if inspect.isroutine(function) else ""
    called = name or getattr(function, "__name__", type(function).__name__)
    return Described(called, text or NOT_SAID, getattr(function, "__module__", "") or "not said")
