"""Trainings as a level above images: what is true of a layer, and not of one file of weights only.

`NAME@*` is a group: one network, several trainings. Two groups are compared in pairs of one seed (and one recipe) on
the same examples. d[t, i], the difference of pair t on example i, is a mean plus random effects of the training, of the
example, and of both together, all of which would be others in another sample: a two-way random-effects model. Balanced
as it is, its REML estimates are those of the analysis of variance.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy.special import stdtr, stdtrit

from scs_eval.analyses.core.statistics import FEWEST, Floats, Interval, paired_test
from scs_eval.errors import InputError

FEWEST_TRAININGS = 3  # of two, the spread over trainings is too uncertain: simulated errors of up to 9 % instead of 5
MOST_FREEDOM = 1.5  # degrees of freedom for each of T - 1 trainings, at most
MOST_SEEDS = 200  # that are worth suggesting
POWER = 0.8


class Components(NamedTuple):
    """Variances of differences (T, n): over trainings, over examples, and what is left."""

    trainings: float
    examples: float
    rest: float


class TrainingEffect(NamedTuple):
    """The mean difference of two groups, its interval and p; NaN where there are too few trainings or examples.

    scope: what it speaks of. trainings, examples: how many pairs and how many examples.
    """

    effect: float
    low: float
    high: float
    p_value: float
    trainings: int
    examples: int
    scope: str
    test: str


def training_effect(differences: Floats, *, confidence: float = 0.95) -> TrainingEffect:
    """The mean of differences (T, n) over pairs of trainings and examples, and whether it is more than chance.

    Var = (σ²_trainings / T + σ²_examples / n + σ²_rest / (T n)); Student's t with Satterthwaite's degrees of freedom,
    at most 1.5 (T − 1): where few trainings happen to be alike, his estimate is too large, and the test errs in up to
    7.6 % of simulated cases (docs/statistics.md).
    Below 3 trainings it is about the networks at hand alone: sign flips over the examples of their mean.
    """
    values = _table(differences)
    trainings, examples = values.shape
    if trainings < FEWEST_TRAININGS or examples < FEWEST:
        return _of_these_networks(values, confidence)
    effect, (error, freedom) = float(values.mean()), _standard_error(values)
    reach = float(stdtrit(freedom, 0.5 + confidence / 2)) * error
    p_value = 2 * float(stdtr(freedom, -abs(effect) / error)) if error > 0 else float(effect == 0)
    scope, test = f"{trainings} trainings", "random effects of trainings and examples"
    return TrainingEffect(effect, effect - reach, effect + reach, p_value, trainings, examples, scope, test)


def variance_components(differences: Floats) -> Components:
    """From the mean squares of a two-way table (T, n), T and n ≥ 2; none is below 0."""
    values = _table(differences)
    trainings, examples, rest = _mean_squares(values)
    count, n = values.shape
    return Components(max(0.0, (trainings - rest) / n), max(0.0, (examples - rest) / count), rest)


def seeds_needed(differences: Floats, effect: float) -> int | None:
    """How many pairs of trainings would show this effect on as many examples, 4 times in 5, at 5 %.

    None where no number up to 200 would, since examples differ too much: take more of them.
    """
    values = _table(differences)
    if min(values.shape) < 2 or effect == 0:
        return None
    between, over_examples, rest = variance_components(values)
    n = values.shape[1]
    for count in range(FEWEST_TRAININGS, MOST_SEEDS + 1):
        error = np.sqrt(between / count + over_examples / n + rest / (count * n))
        freedom = count - 1  # if trainings are what counts; more if examples are
        if (stdtrit(freedom, 0.975) + stdtrit(freedom, POWER)) * error <= abs(effect):
            return count
    return None


def range_of(values: Sequence[float]) -> Interval:
    """The mean over trainings with the least and the largest."""
    array = np.asarray(values, dtype=float)
    return Interval(array.mean(), array.min(), array.max())


def _of_these_networks(values: Floats, confidence: float) -> TrainingEffect:
    trainings, examples = values.shape
    scope = "this network only" if trainings == 1 else f"these {trainings} networks only"
    mean = values.mean(0)
    effect, low, high, p_value = paired_test(mean, np.zeros_like(mean), confidence=confidence)
    test = "sign flips" if examples >= FEWEST else f"too few examples (n = {examples})"
    return TrainingEffect(effect, low, high, p_value, trainings, examples, scope, test)


def _standard_error(values: Floats) -> tuple[float, float]:
    """Of the mean, and its degrees of freedom (Satterthwaite 1946)."""
    count, n = values.shape
    trainings, examples, rest = _mean_squares(values)
    square = rest + max(0.0, trainings - rest) + max(0.0, examples - rest)
    spread = trainings**2 / (count - 1) + examples**2 / (n - 1) + rest**2 / ((count - 1) * (n - 1))
    freedom = square**2 / spread if spread > 0 else count - 1
    return float(np.sqrt(square / values.size)), min(freedom, MOST_FREEDOM * (count - 1))


def _mean_squares(values: Floats) -> tuple[float, float, float]:
    """Of trainings, of examples, and of what is left."""
    count, n = values.shape
    mean, rows, columns = values.mean(), values.mean(1, keepdims=True), values.mean(0, keepdims=True)
    rest = values - rows - columns + mean
    return (
        float(n * ((rows - mean) ** 2).sum() / (count - 1)),
        float(count * ((columns - mean) ** 2).sum() / (n - 1)),
        float((rest**2).sum() / ((count - 1) * (n - 1))),
    )


def _table(differences: Floats) -> Floats:
    """(T, n) finite values: the examples that every pair has a value of."""
    values = np.asarray(differences, dtype=float)
    if values.ndim != 2 or not values.size:
        raise InputError(f"expected differences in shape (trainings, examples), got shape {values.shape}")
    there = np.isfinite(values).all(0)
    if not there.any():
        raise InputError("expected an example with a value of every training, got none")
    return values[:, there]
