"""Which images a result is about, in few words: where from, which of them, chosen by which seed."""

from collections.abc import Mapping
from typing import Any

SHORT = 12  # characters of a digest in a table


def described_images(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The data, which of them (the beginning of their indices' sha256) and the seed; what is not known is left out."""
    known = {
        "data": settings.get("data"),
        "data_indices": str(settings.get("indices_sha256", ""))[:SHORT] or None,
        "data_seed": settings.get("data_seed"),
    }
    return {name: value for name, value in known.items() if value is not None}
