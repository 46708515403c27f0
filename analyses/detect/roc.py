"""How well a score tells known images from others: AUROC, TNR at 95 % TPR, detection accuracy, with intervals."""

import numpy as np

from scs_eval.analyses.core.statistics import Floats, Interval, wilson

TPR = 0.95


def placements(known: np.ndarray, other: np.ndarray) -> tuple[Floats, Floats]:
    """Of each known image (n,) the share of others that score lower, of each other one (m,) that of known ones higher.

    A tie counts half. The mean of either is the AUROC.
    """
    ordered_other, ordered_known = np.sort(other), np.sort(known)
    below = [np.searchsorted(ordered_other, known, side=side) for side in ("left", "right")]
    above = [len(known) - np.searchsorted(ordered_known, other, side=side) for side in ("left", "right")]
    return np.mean(below, axis=0) / len(other), np.mean(above, axis=0) / len(known)


def auroc(known: np.ndarray, other: np.ndarray) -> Interval:
    """The area under the ROC curve, with Wilson's interval for as many images as its variance is worth.

    The variance is DeLong's (1988), that of both placements; A (1−A) divided by it is the number of images. That is at
    least min(n, m): the variance is never above A (1−A) / min(n, m) (Birnbaum and Klose 1957). Where DeLong's is 0,
    that least number counts: a perfect separation of few images proves little.
    """
    of_known, of_other = placements(known, other)
    area, least = float(of_known.mean()), min(len(known), len(other))
    variance = sum(part.var(ddof=1) / len(part) for part in (of_known, of_other) if len(part) > 1)
    worth = max(area * (1 - area) / variance, least) if variance > 0 else least
    return wilson(area * worth, worth)


def threshold_at_tpr(known: np.ndarray, *, tpr: float = TPR) -> float:
    """The largest score that at least this share of known images reaches."""
    return float(np.sort(known)[int(np.floor((1 - tpr) * len(known) + 1e-9))])


def tnr_at_tpr(known: np.ndarray, other: np.ndarray, *, tpr: float = TPR) -> Interval:
    """The share of other images below that threshold, with Wilson's interval; the threshold is held."""
    return wilson((other < threshold_at_tpr(known, tpr=tpr)).sum(), len(other))


def detection_accuracy(known: np.ndarray, other: np.ndarray) -> Interval:
    """The best mean of TPR and TNR over all thresholds (Lee et al. 2018), with an interval for that threshold.

    The threshold is chosen on these very images, as is usual. Ends: the two shares' Wilson intervals, combined as
    independent errors are (Newcombe 1998).
    """
    thresholds = np.unique(np.concatenate([known, other, [np.inf]]))
    true_positive = len(known) - np.searchsorted(np.sort(known), thresholds, side="left")
    true_negative = np.searchsorted(np.sort(other), thresholds, side="left")
    best = int((true_positive / len(known) + true_negative / len(other)).argmax())
    shares = [wilson(true_positive[best], len(known)), wilson(true_negative[best], len(other))]
    middle = sum(float(share.estimate) for share in shares) / 2
    below, above = (
        np.sqrt(sum((float(share.estimate) - float(share[end])) ** 2 for share in shares)) / 2 for end in (1, 2)
    )
    return Interval(np.asarray(middle), np.asarray(max(0, middle - below)), np.asarray(min(1, middle + above)))


def curve(known: np.ndarray, other: np.ndarray) -> tuple[Floats, Floats]:
    """False and true positive rates as the threshold falls: others and known images at or above it."""
    thresholds = np.concatenate([[np.inf], np.unique(np.concatenate([known, other]))[::-1]])
    rates = [
        (len(part) - np.searchsorted(np.sort(part), thresholds, side="left")) / len(part) for part in (other, known)
    ]
    return rates[0], rates[1]
