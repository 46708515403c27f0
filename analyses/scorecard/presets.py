"""How thorough a scorecard is."""

from dataclasses import dataclass

from scs_eval.errors import InputError


@dataclass(frozen=True, kw_only=True)
class Preset:
    """How thorough a scorecard is: on how many images (0: all), and how long the searches are."""

    images: int
    queries: int
    points: int
    afresh: int


PRESETS = {
    "fast": Preset(images=100, queries=300, points=50, afresh=4),
    "full": Preset(images=0, queries=5000, points=1000, afresh=8),
}


def find_preset(name: str) -> Preset:
    """The preset of that name."""
    if name not in PRESETS:
        raise InputError(f"expected a preset of {', '.join(PRESETS)}, got {name!r}")
    return PRESETS[name]
