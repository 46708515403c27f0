"""Confidence intervals and paired tests: what turns per-example outcomes into numbers with their uncertainty.

Proportions have Wilson's interval, means the studentised bootstrap. Two models on the same images are compared in
pairs: McNemar's exact test for right or wrong, sign flips for anything else, Holm's correction when several comparisons
are made at once. docs/statistics.md has the error rates of all of them, by simulation.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import bdtr, ndtr, ndtri, stdtrit  # scipy.stats takes half a second to import

from scs_eval.errors import InputError

Floats = NDArray[np.float64]
Bounds = tuple[float | None, float | None]

ANY, SHARE, SIGNED_SHARE = (None, None), (0.0, 1.0), (-1.0, 1.0)  # where values can lie
RESAMPLES = 10_000
FEWEST = 6  # examples of a test: of 5, sign flips cannot give p below 1/16, whatever they show
BOOTSTRAPPED = 10  # examples of a bootstrap: of fewer, too many resamples are nearly constant
EXACT = 16  # examples up to which all 2ⁿ sign flips are tried
LEAST_SPREAD = 1e-15  # variance of values in [−1, 1] that are equal but for rounding
_DRAWS_AT_ONCE = 2**21  # of resamples and sign flips: bounds their memory to some 50 MB


class Interval(NamedTuple):
    """An estimate and the ends of its confidence interval; arrays of one shape (0-d for a single number)."""

    estimate: Floats
    low: Floats
    high: Floats


class Paired(NamedTuple):
    """The mean of a − b with its interval, and the p-value of "there is no difference"; NaN of too few examples."""

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
    z = ndtri(0.5 + confidence / 2)
    with np.errstate(invalid="ignore"):
        share = k / total
    spread = z * np.sqrt(k * (1 - np.nan_to_num(share)) + z**2 / 4)
    low, high = ((k + z**2 / 2 + side * spread) / (total + z**2) for side in (-1, 1))
    # By the formula the estimate is inside; rounding may put it just outside where all or none succeed.
    return Interval(share, np.fmax(0, np.fmin(low, share)), np.fmin(1, np.fmax(high, share)))


def mean_interval(
    values: ArrayLike, *, confidence: float = 0.95, resamples: int = RESAMPLES, seed: int = 0, bounds: Bounds = ANY
) -> Interval:
    """Mean over examples with its interval, for values (n,) or several columns (n, k), resampled together.

    mean − t · s/√n, where t are the quantiles of the bootstrap's own t = (mean* − mean) / (s*/√n): the studentised
    bootstrap (Efron 1979), which keeps its level for skewed scores at n = 10 where percentiles (BCa too) do not. It is
    never narrower than Student's interval, which is all there is below 10 examples. Where many resamples are of equal
    values, as of rare events, no end is farther from the mean than the farthest example. One example, or examples that
    are all equal, say nothing of the spread: the ends are NaN. bounds: between which values, and so their mean, lie.
    """
    columns = _columns(values)
    low, high = (side if bound is None else bound for bound, side in zip(bounds, (-np.inf, np.inf), strict=True))
    below, above = (end.clip(low, high) for end in _studentised_ends(columns, confidence, resamples, seed))
    mean, shape = columns.mean(axis=0), np.shape(values)[1:]
    # A mean may be beyond a bound, by a rounding; never beyond its interval's end.
    ends = np.minimum(below, mean), np.maximum(above, mean)
    return Interval(*(part.reshape(shape) for part in (mean, *ends)))


def bootstrap_interval(
    values: ArrayLike, function: Callable[[Floats], Floats], *, confidence: float = 0.95, resamples: int = RESAMPLES,
    seed: int = 0,
) -> Interval:  # fmt: skip
    """A function of the means of columns (n, k), such as a ratio of two, with a percentile bootstrap's interval.

    The percentiles are expanded, Φ(√(n/(n−1)) t) with Student's t of n−1 degrees of freedom: resamples spread less than
    samples do (Hesterberg 2015). function: from means (…, k) to (…). NaN ends below 10 examples, of which too many
    resamples are nearly constant.
    """
    columns = _columns(values)
    estimate = np.asarray(function(columns.mean(axis=0)))
    if len(columns) < BOOTSTRAPPED:
        return Interval(estimate, np.array(np.nan), np.array(np.nan))
    drawn = [
        function(counts @ columns / len(columns))
        for counts in _counts(np.random.default_rng(seed), len(columns), resamples)
    ]
    n = len(columns)
    levels = [float(ndtr(np.sqrt(n / (n - 1)) * stdtrit(n - 1, 0.5 + side * confidence / 2))) for side in (-1, 1)]
    low, high = np.nanquantile(np.concatenate(drawn), levels)
    return Interval(estimate, np.asarray(low), np.asarray(high))


def paired_test(
    a: ArrayLike, b: ArrayLike, *, confidence: float = 0.95, resamples: int = RESAMPLES, seed: int = 0
) -> Paired:
    """The mean difference a − b over the same examples (n,), and whether it is more than chance.

    p is the share of sign flips of the differences whose mean is at least as far from 0: all 2ⁿ of them up to n = 16,
    above `resamples` at random (and the differences as they are, so that p is never too small). That is exact if
    neither model is better: then a and b might as well be swapped. NaN below 6 examples, which cannot show anything.
    """
    if np.ndim(a) != 1 or np.shape(a) != np.shape(b):
        raise InputError(f"expected two lists of one length, got shapes {np.shape(a)} and {np.shape(b)}")
    difference = _columns(a) - _columns(b)
    mean, low, high = mean_interval(difference[:, 0], confidence=confidence, resamples=resamples, seed=seed)
    p_value = sign_flip_p(difference, resamples=resamples, seed=seed)[0] if len(difference) >= FEWEST else np.nan
    return Paired(float(mean), float(low), float(high), float(p_value))


def sign_flip_p(differences: Floats, *, resamples: int = RESAMPLES, seed: int = 0) -> Floats:
    """(k,) two-sided p-values of "the mean is 0" for columns of differences (n, k)."""
    observed = np.abs(differences.sum(axis=0)) * (1 - 1e-12)  # sums in another order may differ by rounding
    exact = len(differences) <= EXACT
    reached = sum(
        (np.abs(signs @ differences) >= observed).sum(axis=0)
        for signs in _signs(len(differences), resamples=None if exact else resamples, seed=seed)
    )
    return reached / 2 ** len(differences) if exact else (reached + 1) / (resamples + 1)


def mcnemar(a_correct: ArrayLike, b_correct: ArrayLike) -> McNemar:
    """McNemar's exact test of two classifiers on the same images, each given as right or wrong (n,).

    Among the m images that just one of them has right, either should have half: p = min(1, 2 P(X ≤ min)), X ~ B(m, ½).
    """
    only_a, only_b = _discordant(a_correct, b_correct)
    tail = bdtr(min(only_a, only_b), only_a + only_b, 0.5) if only_a + only_b else 1.0
    return McNemar(only_a, only_b, min(1.0, 2 * float(tail)))


def share_difference(a_correct: ArrayLike, b_correct: ArrayLike, *, confidence: float = 0.95) -> Interval:
    """How much more often a is right than b on the same images (n,), with Bonett and Price's (2012) interval.

    Wald's, as if there were one image more that only a has right and one that only b has: it stays inside [−1, 1] and
    has a width also where few images tell the two apart, of which a bootstrap knows next to nothing.
    """
    only_a, only_b = _discordant(a_correct, b_correct)
    n = np.size(a_correct)
    shares = np.array([only_a + 1, only_b + 1]) / (n + 2)
    middle = shares[0] - shares[1]
    spread = ndtri(0.5 + confidence / 2) * np.sqrt((shares.sum() - middle**2) / (n + 2))
    low, high = max(-1.0, middle - spread), min(1.0, middle + spread)
    return Interval(np.asarray((only_a - only_b) / n), np.asarray(low), np.asarray(high))


def _discordant(a_correct: ArrayLike, b_correct: ArrayLike) -> tuple[int, int]:
    a, b = np.asarray(a_correct, dtype=bool), np.asarray(b_correct, dtype=bool)
    if a.shape != b.shape or a.ndim != 1:
        raise InputError(f"expected two lists of one length, got shapes {a.shape} and {b.shape}")
    return int((a & ~b).sum()), int((b & ~a).sum())


def holm(p_values: ArrayLike) -> Floats:
    """Holm's (1979) adjusted p-values, in the order given: reject where ≤ α, and the chance of any false alarm is ≤ α.

    The i-th smallest of m (from 0) is multiplied by m − i; then each is at least the one before, and at most 1. NaN is
    no test: it stays NaN and does not count.
    """
    p = np.asarray(p_values, dtype=float)
    tested = ~np.isnan(p)
    if p.ndim != 1 or not np.all((p[tested] >= 0) & (p[tested] <= 1)):
        raise InputError("expected a list of p-values in [0, 1]")
    order = np.argsort(p, kind="stable")[: tested.sum()]
    adjusted = np.full_like(p, np.nan)
    adjusted[order] = np.minimum(1, np.maximum.accumulate(p[order] * np.arange(len(order), 0, -1)))
    return adjusted


def too_few(n: int, what: str = "images") -> str:
    """Instead of a verdict, where a test of n examples could not show anything; empty where it could."""
    return f"too few {what} (n = {n})" if n < FEWEST else ""


def _columns(values: ArrayLike) -> Floats:
    """Values as (n, k) floats: n ≥ 1 examples, all finite."""
    array = np.asarray(values, dtype=float)
    if array.ndim not in (1, 2) or len(array) == 0:
        raise InputError(f"expected at least one example in shape (n,) or (n, k), got shape {array.shape}")
    if not np.isfinite(array).all():
        raise InputError("expected finite values, got NaN or infinity; leave out examples without a value first")
    return array.reshape(len(array), -1)


def _studentised_ends(columns: Floats, confidence: float, resamples: int, seed: int) -> tuple[Floats, Floats]:
    n = len(columns)
    if n < 2:
        nothing = np.full(columns.shape[1], np.nan)
        return nothing, nothing
    mean, error = columns.mean(axis=0), columns.std(axis=0, ddof=1) / np.sqrt(n)
    error = np.where(np.ptp(columns, axis=0) > 1e-12 * np.abs(mean), error, np.nan)  # equal but for rounding
    levels = (0.5 - confidence / 2, 0.5 + confidence / 2)
    lower, upper = (np.full(columns.shape[1], stdtrit(n - 1, level)) for level in levels)
    if n >= BOOTSTRAPPED:
        t, equal = _resampled_t(columns - mean, resamples, seed)
        farthest = np.where(equal > levels[0], np.abs(columns - mean).max(axis=0) / error, np.inf)
        quantiles = np.quantile(t, levels, axis=0)
        lower = np.minimum(lower, np.maximum(quantiles[0], -farthest))
        upper = np.maximum(upper, np.minimum(quantiles[1], farthest))
    return mean - upper * error, mean - lower * error


def _resampled_t(deviations: Floats, resamples: int, seed: int) -> tuple[Floats, Floats]:
    """(resamples, k) t of n examples drawn with replacement, for deviations from the mean; far out where s* is 0.

    And (k,) the share of resamples where it is.
    """
    n, parts, equal = len(deviations), [], np.zeros(deviations.shape[1])
    scale = np.maximum(np.abs(deviations).max(axis=0), np.finfo(float).tiny)
    unit = deviations / scale
    for counts in _counts(np.random.default_rng(seed), n, resamples):
        mean = counts @ unit / n
        spread = counts @ unit**2 / n - mean**2
        equal += (spread < LEAST_SPREAD).sum(axis=0)
        parts.append(mean / np.sqrt(np.maximum(spread, LEAST_SPREAD) / (n - 1)))  # over the error of the mean
    return np.concatenate(parts), equal / resamples


def _counts(rng: np.random.Generator, n: int, resamples: int) -> Iterator[Floats]:
    """In blocks of rows: how often each of n examples was drawn in each resample."""
    for rows in _blocks(resamples, n):
        drawn = rng.integers(0, n, (rows, n)) + np.arange(rows)[:, None] * n
        yield np.bincount(drawn.ravel(), minlength=rows * n).reshape(rows, n).astype(float)


def _signs(n: int, *, resamples: int | None, seed: int) -> Iterator[Floats]:
    """In blocks of rows: −1 or 1 for each of n examples, at random or, without `resamples`, every combination."""
    if resamples is None:
        numbers = np.arange(2**n)[:, None]
        yield np.where((numbers >> np.arange(n)) & 1, -1.0, 1.0)
        return
    rng = np.random.default_rng(seed)
    for rows in _blocks(resamples, n):
        yield np.where(rng.integers(0, 2, (rows, n), dtype=np.int8), -1.0, 1.0)


def _blocks(total: int, n: int) -> Iterator[int]:
    block = max(1, _DRAWS_AT_ONCE // n)
    return (min(block, total - start) for start in range(0, total, block))
