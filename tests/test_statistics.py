"""Intervals and tests, against scipy and against numbers worked out by hand."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from scs_eval.analyses.statistics import _resampled_means, bootstrap_mean, holm, mcnemar, paired_bootstrap, wilson
from scs_eval.errors import InputError


@pytest.mark.parametrize(("k", "n"), [(0, 10), (10, 10), (1, 2), (762, 1000), (9999, 10000)])
@pytest.mark.parametrize("confidence", [0.8, 0.95, 0.99])
def test_wilson_equals_scipy(k: int, n: int, confidence: float) -> None:
    expected = stats.binomtest(k, n).proportion_ci(confidence, method="wilson")
    estimate, low, high = wilson(k, n, confidence=confidence)
    assert estimate == k / n
    np.testing.assert_allclose([low, high], [expected.low, expected.high], atol=1e-12)  # both are closed forms


def test_wilson_by_hand() -> None:
    """8 of 10 at z = 1.96: (8 + 1.9208 ± 1.96 √(1.6 + 0.9604)) / 13.8416 = 0.4902, 0.9433."""
    np.testing.assert_allclose(wilson(8, 10)[1:], [0.4902, 0.9433], atol=1e-4)


def test_wilson_works_on_arrays_and_on_nothing() -> None:
    estimate, low, high = wilson([0, 3, 0], [4, 4, 0])
    assert estimate[:2].tolist() == [0, 0.75]
    assert np.isnan(estimate[2])
    assert (low[2], high[2]) == (0, 1)
    assert low[0] == 0 < high[0]


@given(st.integers(0, 10_000), st.integers(0, 10_000))
def test_wilson_holds_its_estimate(right: int, wrong: int) -> None:
    """Exactly: a figure refuses an error bar of length −1e-17."""
    estimate, low, high = wilson(right, right + wrong)
    assert 0 <= low <= high <= 1
    if right + wrong:
        assert low <= estimate <= high


@pytest.mark.parametrize(("k", "n"), [(3, 2), (-1, 2), (float("nan"), 2)])
def test_wilson_refuses_impossible_counts(k: float, n: int) -> None:
    with pytest.raises(InputError, match="successes"):
        wilson(k, n)


@pytest.mark.parametrize("draw", ["normal", "lognormal", "beta"])
def test_bootstrap_equals_scipys_bca(draw: str) -> None:
    rng = np.random.default_rng(3)
    values = {"normal": rng.normal(size=80), "lognormal": rng.lognormal(size=80), "beta": rng.beta(0.3, 2, 80)}[draw]
    expected = stats.bootstrap((values,), np.mean, n_resamples=10_000, method="BCa", rng=1).confidence_interval
    mean, low, high = bootstrap_mean(values, seed=7)
    # Two sets of 10,000 resamples: a 2.5 % quantile of them is known to about 0.03 standard errors.
    tolerance = 5 * 0.03 * values.std() / np.sqrt(80)
    assert mean == pytest.approx(values.mean())
    np.testing.assert_allclose([low, high], [expected.low, expected.high], atol=tolerance)


# So skewed that z₀ and a both matter.
SKEWED = np.array([0.1, 0.13, 0.21, 0.3, 0.42, 0.55, 0.7, 1.1, 1.9, 3.7, 9.2, 31.6])


def test_bootstrap_equals_the_formula_written_out() -> None:
    """Efron's (1987) formula step by step on the same resamples, with the jackknife done one by one."""
    means = _resampled_means(SKEWED[:, None], 10_000, 4)[:, 0]
    z0 = stats.norm.ppf((means < SKEWED.mean()).mean() + (means == SKEWED.mean()).mean() / 2)
    left_out = np.array([np.delete(SKEWED, i).mean() for i in range(len(SKEWED))])
    pull = left_out.mean() - left_out
    a = (pull**3).sum() / (6 * (pull**2).sum() ** 1.5)
    assert min(abs(z0), a) > 0.05, "the case would not tell a wrong correction"
    for end, z in zip(bootstrap_mean(SKEWED, seed=4)[1:], stats.norm.ppf([0.025, 0.975]), strict=True):
        level = stats.norm.cdf(z0 + (z0 + z) / (1 - a * (z0 + z)))
        assert end == pytest.approx(np.quantile(means, level), rel=1e-9)  # rounding only


@pytest.mark.parametrize("shift", [-1.2, -0.5, 1.0, 2.0])
def test_the_interval_of_level_p_ends_at_zero(shift: float) -> None:
    """To within one resample of 10,000, where neighbours differ by less than 0.02."""
    moved = SKEWED - SKEWED.mean() + shift
    p = paired_bootstrap(moved, np.zeros(12)).p_value
    found = paired_bootstrap(moved, np.zeros(12), confidence=1 - p)
    assert 0.001 < p < 0.999
    assert min(abs(found.low), abs(found.high)) < 0.02


def test_bootstrap_corrects_for_skewness() -> None:
    """Where plain percentiles are off by more than the tolerance above, so that the comparison can fail."""
    values = np.random.default_rng(3).lognormal(size=80)
    plain = stats.bootstrap((values,), np.mean, n_resamples=10_000, method="percentile", rng=1).confidence_interval
    assert abs(bootstrap_mean(values).high - plain.high) > 5 * 0.03 * values.std() / np.sqrt(80)


def test_bootstrap_covers_the_mean_19_times_in_20() -> None:
    """200 samples of 50 as columns; 0.95 ± 3 standard errors of 200 draws is 0.90 to 1."""
    columns = np.random.default_rng(0).normal(size=(50, 200))
    _, low, high = bootstrap_mean(columns, resamples=2000)
    assert 0.88 <= ((low <= 0) & (high >= 0)).mean() <= 0.99


def test_bootstrap_columns_equal_one_at_a_time_and_repeat() -> None:
    values = np.random.default_rng(0).random((30, 3))
    together = bootstrap_mean(values, resamples=500, seed=5)
    for i in range(3):
        alone = bootstrap_mean(values[:, i], resamples=500, seed=5)
        np.testing.assert_allclose([part[i] for part in together], alone, rtol=1e-12)  # summation order only
    assert bootstrap_mean(values[:, 0], resamples=500, seed=6).low != together.low[0]


def test_bootstrap_in_blocks_has_all_resamples(monkeypatch: pytest.MonkeyPatch) -> None:
    values = np.random.default_rng(0).random(30)
    whole = bootstrap_mean(values, resamples=1000)
    monkeypatch.setattr("scs_eval.analyses.statistics._DRAWS_AT_ONCE", 30 * 7)
    np.testing.assert_allclose(bootstrap_mean(values, resamples=1000), whole, rtol=1e-12)


def test_bootstrap_of_a_constant_and_of_one() -> None:
    assert [float(part) for part in bootstrap_mean([0.1] * 7)] == pytest.approx([0.1] * 3, abs=1e-15)
    assert np.isnan(bootstrap_mean([0.1]).low)


@pytest.mark.parametrize("values", [[], [1.0, float("nan")], [[[1.0]]], 3.0])
def test_bootstrap_refuses_what_has_no_mean(values: object) -> None:
    with pytest.raises(InputError):
        bootstrap_mean(values)  # type: ignore[arg-type]


def test_paired_bootstrap_agrees_with_the_t_test() -> None:
    """For normal differences at n = 400 the two p-values differ by sampling only."""
    rng = np.random.default_rng(1)
    a = rng.normal(size=400)
    noise = rng.normal(size=400)
    b = a - (noise - noise.mean() + 0.1)  # a mean difference of 0.1 with a standard error of about 0.05
    expected = stats.ttest_rel(a, b)
    found = paired_bootstrap(a, b)
    assert found.difference == pytest.approx((a - b).mean())
    assert 0.02 < expected.pvalue < 0.1
    assert found.p_value == pytest.approx(expected.pvalue, rel=0.2)
    interval = expected.confidence_interval()
    np.testing.assert_allclose([found.low, found.high], interval, atol=0.01)


def test_paired_bootstrap_is_paired() -> None:
    """A tiny difference that every example shows is certain, however much the examples differ."""
    base = np.random.default_rng(0).normal(0, 100, 50)
    found = paired_bootstrap(base + 0.01, base)
    assert found.low == pytest.approx(0.01)
    assert 2 / 10_000 <= found.p_value < 1e-3  # 2 / resamples, but for the bias that rounding leaves


@settings(max_examples=40, deadline=None)
@given(st.lists(st.floats(-1, 1), min_size=2, max_size=30), st.sampled_from([0.8, 0.95]), st.integers(0, 3))
def test_p_value_and_interval_agree(difference: list[float], confidence: float, seed: int) -> None:
    found = paired_bootstrap(difference, np.zeros(len(difference)), confidence=confidence, resamples=1000, seed=seed)
    swapped = paired_bootstrap(np.zeros(len(difference)), difference, confidence=confidence, resamples=1000, seed=seed)
    assert swapped.difference == pytest.approx(-found.difference)
    if found.p_value < 0.8 * (1 - confidence):  # 1,000 resamples: the level is known to about ± 0.01
        assert found.low >= 0 or found.high <= 0
    if found.p_value > 1.25 * (1 - confidence):
        assert found.low <= 0 <= found.high


@pytest.mark.parametrize(("b", "c"), [(0, 0), (1, 0), (5, 12), (12, 5), (7, 7), (60, 90), (900, 1100)])
def test_mcnemar_equals_the_binomial_test(b: int, c: int) -> None:
    first = np.array([1] * b + [0] * c + [1] * 20 + [0] * 5, dtype=bool)
    second = np.array([0] * b + [1] * c + [1] * 20 + [0] * 5, dtype=bool)
    expected = stats.binomtest(b, b + c).pvalue if b + c else 1.0
    found = mcnemar(first, second)
    assert found[:2] == (b, c)
    assert found.p_value == pytest.approx(expected, rel=1e-9)


def test_mcnemar_by_hand() -> None:
    """1 against 6: 2 (1 + 7) / 2⁷ = 0.125."""
    assert mcnemar([1, 0, 0, 0, 0, 0, 0], [0, 1, 1, 1, 1, 1, 1]) == (1, 6, 0.125)


def test_holm_by_hand() -> None:
    """Smallest first: 0.01·4, 0.02·3 → 0.06, 0.03·2 = 0.06, 0.5·1."""
    np.testing.assert_allclose(holm([0.03, 0.5, 0.01, 0.02]), [0.06, 0.5, 0.04, 0.06])
    np.testing.assert_allclose(holm([0.9, 0.8]), [1, 1])
    assert holm([]).shape == (0,)


@pytest.mark.parametrize("p", [[1.1], [-0.1], [float("nan")], [[0.1]]])
def test_holm_refuses_what_is_no_p_value(p: list[object]) -> None:
    with pytest.raises(InputError):
        holm(p)  # type: ignore[arg-type]


@pytest.mark.parametrize("test", [mcnemar, paired_bootstrap])
def test_pairs_must_match(test: object) -> None:
    with pytest.raises(InputError, match="one length"):
        test([1, 0], [1])  # type: ignore[operator]
