"""The axes of a result's arrays, as a class declares them."""


def axes_of(*groups: str) -> dict[str, tuple[str, ...]]:
    """Field → its axes, from "axes: the fields that have them", with commas between axes and spaces between fields.

    >>> from scs_eval.analyses.core.axes import axes_of
    >>> axes_of("image: labels margins", "eps, image: is_adversarial")
    {'labels': ('image',), 'margins': ('image',), 'is_adversarial': ('eps', 'image')}
    """
    pairs = (group.split(": ") for group in groups)
    return {field: tuple(axes.split(", ")) for axes, fields in pairs for field in fields.split()}
