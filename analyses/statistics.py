"""Confidence intervals and paired tests: what turns per-example outcomes into numbers with their uncertainty.

Proportions have Wilson's interval, means the bias-corrected and accelerated (BCa) bootstrap. Two models on the same
images are compared in pairs: McNemar's exact test for right or wrong, the paired bootstrap for anything else, Holm's
correction when several comparisons are made at once.
"""

import math
from collections.abc import Iterator
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from scs_eval.errors import InputError

Floats = NDArray[np.float64]

RESAMPLES = 10_000
_DRAWS_AT_ONCE = 2**21  # of the bootstrap: bounds its memory to some 50 MB


class Interval(NamedTuple):
    """An estimate and the ends of its confidence interval; arrays of one shape (0-d for a single number)."""

    estimate: Floats
    low: Floats
    high: Floats


class Paired(NamedTuple):
    """The mean of a − b with its interval, and the p-value of "there is no difference"."""

    difference: float
    low: float
    high: float
    p_value: float


class McNemar(NamedTuple):
    """How many only a has right, how many only b, and the p-value of "both are right equally often"."""

    only_a: int
    only_b: int
    p_value: float


def wilson(successes: ArrayLike, n: ArrayLike, *, confidence: float = 0.95) -> Interval:
    """Wilson's (1927) interval for a proportion k/n; works element by element on arrays.

    (k + z²/2 ± z √(k (n−k)/n + z²/4)) / (n + z²). It stays inside [0, 1] and does not collapse at 0 or n successes,
    unlike the textbook p ± z √(p (1−p)/n). Without any trial the estimate is NaN and the interval [0, 1].
    """
    k, total = np.broadcast_arrays(np.asarray(successes, dtype=float), np.asarray(n, dtype=float))
    if not np.all((k >= 0) & (k <= total)):
        raise InputError("expected 0 ≤ successes ≤ n for each proportion")
    z = _quantile(0.5 + confidence / 2)
    with np.errstate(invalid="ignore"):
        share = k / total
    spread = z * np.sqrt(k * (1 - np.nan_to_num(share)) + z**2 / 4)
    low, high = ((k + z**2 / 2 + side * spread) / (total + z**2) for side in (-1, 1))
    # By the formula the estimate is inside; rounding may put it just outside where all or none succeed.
    return Interval(share, np.fmax(0, np.fmin(low, share)), np.fmin(1, np.fmax(high, share)))


def bootstrap_mean(
    values: ArrayLike, *, confidence: float = 0.95, resamples: int = RESAMPLES, seed: int = 0
) -> Interval:
    """Mean over examples with its BCa bootstrap interval (Efron 1987), for values (n,) or several columns (n, k).

    All columns are resampled together. BCa shifts the percentiles for bias (z₀) and skewness (a), which matters for
    scores that pile up at 0 or 1. One example says nothing of the spread: the ends are NaN.
    """
    columns = _columns(values)
    low, high = _bca_ends(columns, _resampled_means(columns, resamples, seed), confidence)
    shape = np.shape(values)[1:]
    return Interval(*(part.reshape(shape) for part in (columns.mean(axis=0), low, high)))


def paired_bootstrap(
    a: ArrayLike, b: ArrayLike, *, confidence: float = 0.95, resamples: int = RESAMPLES, seed: int = 0
) -> Paired:
    """The mean difference a − b over the same examples (n,).

    The two-sided p-value is the level at which the BCa interval just touches 0: to within one resample, p is below
    1 − confidence if and only if the interval excludes 0. It is never below 2 / resamples.
    """
    if np.ndim(a) != 1 or np.shape(a) != np.shape(b):
        raise InputError(f"expected two lists of one length, got shapes {np.shape(a)} and {np.shape(b)}")
    difference = _columns(a) - _columns(b)
    means = _resampled_means(difference, resamples, seed)
    low, high = _bca_ends(difference, means, confidence)
    return Paired(float(difference.mean()), float(low[0]), float(high[0]), _p_value(difference, means))


def mcnemar(a_correct: ArrayLike, b_correct: ArrayLike) -> McNemar:
    """McNemar's exact test of two classifiers on the same images, each given as right or wrong (n,).

    Among the m images that just one of them has right, either should have half: p = min(1, 2 P(X ≤ min)), X ~ B(m, ½).
    """
    a, b = np.asarray(a_correct, dtype=bool), np.asarray(b_correct, dtype=bool)
    if a.shape != b.shape or a.ndim != 1:
        raise InputError(f"expected two lists of one length, got shapes {a.shape} and {b.shape}")
    only_a, only_b = int((a & ~b).sum()), int((b & ~a).sum())
    trials = only_a + only_b
    tail = sum(_binomials(trials, min(only_a, only_b)))
    return McNemar(only_a, only_b, min(1.0, 2 * tail / 2**trials))  # whole numbers until here: exact for any m


def holm(p_values: ArrayLike) -> Floats:
    """Holm's (1979) adjusted p-values, in the order given: reject where ≤ α, and the chance of any false alarm is ≤ α.

    The i-th smallest of m (from 0) is multiplied by m − i; then each is at least the one before, and at most 1.
    """
    p = np.asarray(p_values, dtype=float)
    if p.ndim != 1 or not np.all((p >= 0) & (p <= 1)):
        raise InputError("expected a list of p-values in [0, 1]")
    order = np.argsort(p, kind="stable")
    adjusted = np.empty_like(p)
    adjusted[order] = np.minimum(1, np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1)))
    return adjusted


def _columns(values: ArrayLike) -> Floats:
    """Values as (n, k) floats: n ≥ 1 examples, all finite."""
    array = np.asarray(values, dtype=float)
    if array.ndim not in (1, 2) or len(array) == 0:
        raise InputError(f"expected at least one example in shape (n,) or (n, k), got shape {array.shape}")
    if not np.isfinite(array).all():
        raise InputError("expected finite values, got NaN or infinity; leave out examples without a value first")
    return array.reshape(len(array), -1)


def _resampled_means(columns: Floats, resamples: int, seed: int) -> Floats:
    """(resamples, k) means of n examples drawn with replacement: how often each was drawn, times the values."""
    rng = np.random.default_rng(seed)
    centre = columns.mean(axis=0)  # so that rounding cannot make a constant column vary
    sums = [counts @ (columns - centre) for counts in _counts(rng, len(columns), resamples)]
    return centre + np.concatenate(sums) / len(columns)


def _counts(rng: np.random.Generator, n: int, resamples: int) -> Iterator[Floats]:
    """In blocks of rows: how often each of n examples was drawn in each resample."""
    block = max(1, _DRAWS_AT_ONCE // n)
    for start in range(0, resamples, block):
        rows = min(block, resamples - start)
        drawn = rng.integers(0, n, (rows, n)) + np.arange(rows)[:, None] * n
        yield np.bincount(drawn.ravel(), minlength=rows * n).reshape(rows, n).astype(float)


def _bca_ends(columns: Floats, means: Floats, confidence: float) -> tuple[Floats, Floats]:
    """The ends of each column's interval: percentiles of the means at Φ(z₀ + (z₀ ± z) / (1 − a (z₀ ± z)))."""
    if len(columns) < 2:
        nothing = np.full(columns.shape[1], np.nan)
        return nothing, nothing
    bias, acceleration = _correction(columns, means)
    z = _quantile(0.5 + confidence / 2)
    low, high = (
        _percentiles(means, _normal_cdf(bias + shifted / (1 - acceleration * shifted)))
        for shifted in (bias - z, bias + z)
    )
    return low, high


def _percentiles(means: Floats, levels: Floats) -> Floats:
    """Each column's own percentile."""
    return np.array([np.quantile(column, level) for column, level in zip(means.T, levels, strict=True)])


def _correction(columns: Floats, means: Floats) -> tuple[Floats, Floats]:
    """BCa's z₀ and a of each column; for the mean, the jackknife values are the deviations themselves."""
    deviation = columns - columns.mean(axis=0)
    square = (deviation**2).sum(axis=0)
    with np.errstate(invalid="ignore", divide="ignore"):
        acceleration = np.nan_to_num((deviation**3).sum(axis=0) / (6 * square**1.5))
    return _normal_score(means, columns.mean(axis=0)), acceleration


def _normal_score(means: Floats, value: Floats | float) -> Floats:
    """Φ⁻¹ of the share of means below the value, ties half; kept off 0 and 1 by one resample."""
    below = ((means < value).mean(axis=0) + (means <= value).mean(axis=0)) / 2
    edge = 1 / len(means)
    return np.array([_quantile(share) for share in np.clip(below, edge, 1 - edge)])


def _p_value(difference: Floats, means: Floats) -> float:
    """The level whose BCa end is 0: the interval's formula, solved for the level."""
    if len(difference) < 2 or not difference.any():
        return 1.0
    bias, acceleration = _correction(difference, means)
    shifted = _normal_score(means, 0.0) - bias
    level = float(_normal_cdf(shifted / (1 + acceleration * shifted) - bias)[0])
    return min(1.0, max(2 * min(level, 1 - level), 2 / len(means)))


def _binomials(trials: int, last: int) -> Iterator[int]:
    """C(m, 0), C(m, 1) … C(m, last), each from the one before."""
    value = 1
    for i in range(last + 1):
        yield value
        value = value * (trials - i) // (i + 1)


def _quantile(level: float) -> float:
    return NormalDist().inv_cdf(level)


def _normal_cdf(scores: Floats) -> Floats:
    return np.array([0.5 * math.erfc(-score / math.sqrt(2)) for score in scores])
