"""The one exception for a wrong request, how its message suggests a name, and what arguments are checked for alike."""

import math
from collections.abc import Iterable
from numbers import Integral, Real
from typing import Any

LONGEST_MESSAGE = 800  # characters; what a user or a file wrote may be as long as it likes


class InputError(ValueError):
    """What the user asked for cannot be done as asked.

    The message is one line: what was expected, what came, what to do. The command line prints it and exits with 2;
    any other exception is a failure of the work and exits with 1. What a file or a name brought into it cannot write
    to the terminal: see `printable`.

    >>> import scs_eval
    >>> try:
    ...     scs_eval.load_model("rohrer100k_scss", weights="none")
    ... except scs_eval.InputError as error:
    ...     print(error)
    unknown model 'rohrer100k_scss'; did you mean rohrer100k_scs...
    """

    def __str__(self) -> str:
        text = printable(super().__str__())
        return text if len(text) <= LONGEST_MESSAGE else f"{text[: LONGEST_MESSAGE // 2]} … {text[-200:]}"


class NotApplicableError(InputError):
    """An analysis or a method does not apply to this model; the message says why."""


def printable(text: str) -> str:
    """The text on one line, with control characters, escape sequences and lone surrogates spelled out (`\\x1b`)."""
    if text.isprintable():
        return text
    line = " ".join(text.split("\n"))
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in line)


def shortened(text: str, *, most: int = 60) -> str:
    """A value that was typed, in quotes, for a message."""
    shown = repr(text[:most])
    return shown if len(text) <= most else f"{shown}… ({len(text):,} characters)"


def did_you_mean(name: str, names: Iterable[str], *, otherwise: str, most: int = 3) -> str:
    """The end of a message about an unknown name: the nearest of the known names, else what to do instead."""
    from difflib import get_close_matches  # only where a name is wrong: the command line starts without it

    near = get_close_matches(name, list(names), n=most, cutoff=0.5)
    return f"did you mean {' or '.join(near)}?" if near else otherwise


LONGEST_NAME = 200  # characters: what a figure and a table can still show


def check_name(name: str, *, what: str) -> None:
    """Raise unless a label or a class name can be written to files, tables and figures; ask before the work."""
    if not isinstance(name, str):
        raise InputError(f"expected a {what} as text, got {type(name).__name__}")
    if not name or len(name) > LONGEST_NAME:
        shown = f"{name[:40]!r}… with {len(name):,}" if name else "none"
        raise InputError(f"expected a {what} of 1 to {LONGEST_NAME} characters, got {shown}; choose another name")
    if not name.isprintable():  # control characters and what is not UTF-8
        raise InputError(f"expected a {what} of printable UTF-8 characters, got {name!a}; choose another name")


def check_text(**texts: object) -> None:
    """Raise unless every argument is text."""
    for name, text in texts.items():
        if not isinstance(text, str):
            raise InputError(f"expected {name} as text, got {brief(text)}")


def is_whole(value: object) -> bool:
    """Whether a value counts something; True does not."""
    return isinstance(value, Integral) and not isinstance(value, bool)


def is_number(value: object) -> bool:
    """Whether a value is a finite number; True is none."""
    return not isinstance(value, bool) and isinstance(value, Real) and math.isfinite(value)


def check_whole(least: int, **numbers: Any) -> None:
    """Raise unless every argument is a whole number, and at least so large."""
    for name, number in numbers.items():
        if not is_whole(number) or number < least:
            raise InputError(f"expected {name} as a whole number of at least {least}, got {brief(number)}")


def check_positive(**numbers: Any) -> None:
    """Raise unless every argument is a finite number above 0."""
    for name, number in numbers.items():
        if not is_number(number) or number <= 0:
            raise InputError(f"expected {name} as a finite number above 0, got {brief(number)}")


def check_one_of(known: Iterable[Any], **arguments: object) -> None:
    """Raise unless every argument is one of what is known."""
    known = tuple(known)
    for name, value in arguments.items():
        if not any(type(value) is type(item) and value == item for item in known):
            raise InputError(f"expected {name} as one of {', '.join(map(str, known))}, got {brief(value)}")


def several(**arguments: Any) -> list[Any]:
    """The items of an argument that wants several; text, or one alone, raises."""
    ((name, items),) = arguments.items()
    try:
        if not isinstance(items, str | bytes):
            return list(items)
    except TypeError:  # one alone, or an array without axes
        pass
    raise InputError(f"expected {name} as a list, got {brief(items)}")


def brief(value: object) -> str:
    """A value for a message, cut where it is long."""
    return f"{value!r:.60}"
