"""What dataclasses of options check alike. No torch here: the command line makes its options of them."""

from typing import Literal, get_args, get_origin, get_type_hints

from scs_eval.errors import InputError


def check_choices(options: object) -> None:
    """Raise unless every field that has a list of values has one of them."""
    for name, hint in get_type_hints(type(options)).items():
        if get_origin(hint) is Literal and (value := getattr(options, name)) not in get_args(hint):
            raise InputError(f"expected {name} as one of {', '.join(get_args(hint))}, got {value!r}")


def check_at_least(least: int, **counts: int | None) -> None:
    """Raise unless every count that is given is at least so large."""
    for name, count in counts.items():
        if count is not None and count < least:
            raise InputError(f"expected {name} of at least {least}, got {count}")
