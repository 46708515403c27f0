"""Which images a result is about, in few words: where from, which of them, chosen by which seed."""

import hashlib
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

SHORT = 12  # characters of a digest in a table


def indices_digest(indices: ArrayLike) -> str:
    """The sha256 of a list of whole numbers (as 8-byte little-endian): two runs saw the same images iff it is equal."""
    return hashlib.sha256(np.asarray(indices).astype("<i8").tobytes()).hexdigest()


def described_images(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The data, which of them (the beginning of their indices' sha256) and the seed; what is not known is left out."""
    known = {
        "data": settings.get("data"),
        "data_indices": str(settings.get("indices_sha256", ""))[:SHORT] or None,
        "data_seed": settings.get("data_seed"),
    }
    return {name: value for name, value in known.items() if value is not None}
