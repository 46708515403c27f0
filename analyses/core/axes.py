"""The axes of a result's arrays, as a class declares them."""

from collections.abc import Mapping


def axes_of(names: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    """Field → its axes, from axes → the fields that have them: commas between axes, spaces between fields.

    >>> from scs_eval.analyses.core.axes import axes_of
    >>> axes_of({"image": "labels margins", "eps, image": "is_adversarial"})
    {'labels': ('image',), 'margins': ('image',), 'is_adversarial': ('eps', 'image')}
    """
    return {field: tuple(axes.split(", ")) for axes, fields in names.items() for field in fields.split()}
