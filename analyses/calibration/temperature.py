"""The one number that logits are divided by so that confidences fit (Guo et al. 2017)."""

import math

from torch import Tensor

LEAST, MOST = 1e-2, 1e2  # a half that the model has right throughout would have it at 0


def fit_temperature(logits: Tensor, labels: Tensor) -> float:
    """The T in [LEAST, MOST] by which softmax(logits / T) has the least log loss, for logits (n, K) in float64.

    The loss is convex in 1/T; there, its slope is the mean over images of Σ p·z − z_label, which rises from logits that
    are too flat to ones that are too sharp, so its root is the minimum.
    """
    from scipy.optimize import brentq

    right = logits.gather(1, labels[:, None])[:, 0]

    def slope(log_sharpness: float) -> float:
        expected = ((logits * math.exp(log_sharpness)).softmax(1) * logits).sum(1)
        return float((expected - right).mean())

    ends = (-math.log(MOST), -math.log(LEAST))
    if slope(ends[0]) >= 0:
        return MOST
    return LEAST if slope(ends[1]) <= 0 else math.exp(-brentq(slope, *ends, xtol=1e-12))
