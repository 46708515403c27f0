"""How much of a number its map leaves out: shares, and the limit above which a map is marked."""

import numpy as np

LIMIT = 1e-3  # of the logit or activation: a residual above it means that the map is not the whole story


def complete(residual: np.ndarray, whole: np.ndarray) -> np.ndarray:
    """Whether the residual is within a thousandth of the whole."""
    return np.asarray(np.abs(residual) <= LIMIT * np.abs(whole))


def ratio(part: np.ndarray, whole: np.ndarray) -> np.ndarray:
    """part/whole; 0 of 0 is 0."""
    return np.divide(part, whole, out=np.where(part == 0, 0.0, np.inf), where=whole != 0)


def percent(share: float) -> str:
    """Rounded to what can be read."""
    text = f"{100 * share:.0f} %" if abs(share) >= 0.1 or share == 0 else f"{100 * share:.2g} %"
    return text.replace("-", "−")  # the sign that is printed
