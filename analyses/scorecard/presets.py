"""How thorough a scorecard is."""

from dataclasses import dataclass

from scs_eval.errors import check_one_of


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
    check_one_of(PRESETS, preset=name)
    return PRESETS[name]
