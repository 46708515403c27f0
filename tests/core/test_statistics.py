"""Intervals and tests, against scipy and against numbers worked out by hand."""

from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from statsmodels.stats.contingency_tables import mcnemar as statsmodels_mcnemar
from statsmodels.stats.multitest import multipletests
from statsmodels.stats.proportion import proportion_confint
from statsmodels.stats.weightstats import DescrStatsW

from scs_eval.analyses.core.statistics import (
    _counts,
    _signs,
    holm,
    mcnemar,
    mean_interval,
    paired_test,
    share_difference,
    too_few,
    wilson,
)
from scs_eval.errors import InputError


@pytest.mark.parametrize(("k", "n"), [(0, 10), (10, 10), (1, 2), (762, 1000), (9999, 10000)])
@pytest.mark.parametrize("confidence", [0.8, 0.95, 0.99])
def test_wilson_equals_scipy(k: int, n: int, confidence: float) -> None:
    expected = stats.binomtest(k, n).proportion_ci(confidence, method="wilson")
    estimate, low, high = wilson(k, n, confidence=confidence)
    assert estimate == k / n
    np.testing.assert_allclose([low, high], [expected.low, expected.high], atol=1e-12)  # both are closed forms
    peer = proportion_confint(k, n, alpha=1 - confidence, method="wilson")
    np.testing.assert_allclose([low, high], peer, atol=1e-12)


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


# So skewed that Student's interval and the bootstrap's differ.
SKEWED = np.array([0.1, 0.13, 0.21, 0.3, 0.42, 0.55, 0.7, 1.1, 1.9, 3.7, 9.2, 31.6])


@pytest.mark.parametrize("n", [2, 5, 9])
@pytest.mark.parametrize("confidence", [0.8, 0.95])
def test_few_values_have_students_interval(n: int, confidence: float) -> None:
    values = np.random.default_rng(n).lognormal(size=n)
    expected = stats.ttest_1samp(values, 0).confidence_interval(confidence)
    mean, low, high = mean_interval(values, confidence=confidence)
    assert mean == pytest.approx(values.mean())
    np.testing.assert_allclose([low, high], expected, rtol=1e-9)  # both are closed forms
    peer = DescrStatsW(values).tconfint_mean(1 - confidence)
    np.testing.assert_allclose([low, high], peer, rtol=1e-9)


def test_the_interval_equals_the_formula_written_out() -> None:
    """Efron's bootstrap-t step by step on the same resamples, one at a time."""
    counts = np.concatenate(list(_counts(np.random.default_rng(4), 12, 2000)))
    t = []
    for row in counts.astype(int):
        drawn = np.repeat(SKEWED, row)
        t.append((drawn.mean() - SKEWED.mean()) / (drawn.std(ddof=1) / np.sqrt(12)))
    error = SKEWED.std(ddof=1) / np.sqrt(12)
    low_t, high_t = np.quantile(t, [0.025, 0.975])
    student = stats.t.ppf(0.975, 11)
    assert low_t < -1.2 * student, "the case would not tell Student's interval"
    _, low, high = mean_interval(SKEWED, resamples=2000, seed=4)
    assert high == pytest.approx(SKEWED.mean() - low_t * error, rel=1e-9)  # rounding only
    assert low == pytest.approx(SKEWED.mean() - max(high_t, student) * error, rel=1e-9)


def test_many_values_have_scipys_bca_interval_nearly() -> None:
    """Both are second-order correct: at n = 2,000 they differ by resampling only, 0.03 standard errors an end."""
    values = np.random.default_rng(3).beta(0.3, 2, 2000)
    expected = stats.bootstrap((values,), np.mean, n_resamples=5000, method="BCa", random_state=1, batch=200)
    tolerance = 5 * 0.03 * values.std() / np.sqrt(2000)
    np.testing.assert_allclose(mean_interval(values)[1:], expected.confidence_interval, atol=tolerance)


def test_columns_equal_one_at_a_time_and_repeat() -> None:
    values = np.random.default_rng(0).lognormal(size=(30, 3))
    together = mean_interval(values, resamples=500, seed=5)
    for i in range(3):
        alone = mean_interval(values[:, i], resamples=500, seed=5)
        np.testing.assert_allclose([part[i] for part in together], alone, rtol=1e-12)  # summation order only
    assert mean_interval(values[:, 0], resamples=500, seed=6).high != together.high[0]


def test_blocks_have_all_resamples(monkeypatch: pytest.MonkeyPatch) -> None:
    values = np.random.default_rng(0).random(30)
    whole = mean_interval(values, resamples=1000), paired_test(values, np.full(30, 0.4), resamples=1000)
    monkeypatch.setattr("scs_eval.analyses.core.statistics._DRAWS_AT_ONCE", 30 * 7)
    np.testing.assert_allclose(mean_interval(values, resamples=1000), whole[0], rtol=1e-12)
    assert len(np.concatenate(list(_signs(30, resamples=1000, seed=0)))) == 1000


def test_equal_values_say_nothing_of_the_spread() -> None:
    for values in ([0.1], [0.1] * 7, [0.1] * 100, [0.1 + 0.2, 0.3] * 20):
        mean, low, high = mean_interval(values)
        assert float(mean) == pytest.approx(np.mean(values))
        assert np.isnan([low, high]).all()


@pytest.mark.parametrize("values", [[], [1.0, float("nan")], [[[1.0]]], 3.0])
def test_intervals_refuse_what_has_no_mean(values: object) -> None:
    with pytest.raises(InputError):
        mean_interval(values)  # type: ignore[arg-type]


@pytest.mark.parametrize("n", [6, 10, 13])
def test_few_pairs_are_tested_as_scipy_tests_them(n: int) -> None:
    """All 2ⁿ sign flips."""
    rng = np.random.default_rng(n)
    a, b = rng.normal(0.4, 1, n), rng.normal(size=n)
    expected = stats.permutation_test(
        (a - b,), np.mean, permutation_type="samples", n_resamples=np.inf, vectorized=True
    )
    assert paired_test(a, b).p_value == pytest.approx(expected.pvalue, rel=1e-12)


def test_many_pairs_are_tested_as_scipy_tests_them() -> None:
    """Two sets of 10,000 flips: a p near 0.12 is known to 0.003 (0.005 by scipy, which doubles a side); 4 × 0.006."""
    rng = np.random.default_rng(5)
    a, b = rng.normal(0.3, 1, 60), rng.normal(size=60)
    expected = stats.permutation_test(
        (a - b,), np.mean, permutation_type="samples", n_resamples=9999, vectorized=True, random_state=1
    ).pvalue
    assert 0.01 < expected < 0.2
    assert paired_test(a, b).p_value == pytest.approx(expected, abs=0.024)


def test_a_test_of_few_examples_cannot_say_more_than_it_knows() -> None:
    """Six differences of one sign: 2 of 2⁶ flips are as far out. Fewer cannot reach 5 %, and say nothing."""
    assert paired_test([1.0, 2, 3, 4, 5, 6], np.zeros(6)).p_value == 2 / 64
    assert np.isnan(paired_test([0.01, 0.02], [0, 0]).p_value)
    assert np.isnan(paired_test(np.arange(1.0, 6), np.zeros(5)).p_value)
    assert too_few(5) == "too few images (n = 5)"
    assert too_few(4, "grids") == "too few grids (n = 4)"
    assert too_few(6) == ""
    assert paired_test(np.ones(30), np.zeros(30)).p_value == 1 / 10_001


def test_p_is_one_where_nothing_differs() -> None:
    for n in (8, 40):
        found = paired_test(np.arange(n), np.arange(n))
        assert (found.difference, found.p_value) == (0, 1)


def test_the_test_agrees_with_the_t_test() -> None:
    """For normal differences at n = 400 the two p-values differ by sampling only."""
    rng = np.random.default_rng(1)
    a = rng.normal(size=400)
    noise = rng.normal(size=400)
    b = a - (noise - noise.mean() + 0.1)  # a mean difference of 0.1 with a standard error of about 0.05
    expected = stats.ttest_rel(a, b)
    found = paired_test(a, b)
    assert found.difference == pytest.approx((a - b).mean())
    assert 0.02 < expected.pvalue < 0.1
    assert found.p_value == pytest.approx(expected.pvalue, rel=0.2)
    np.testing.assert_allclose([found.low, found.high], expected.confidence_interval(), atol=0.01)


def test_the_test_is_paired() -> None:
    """A tiny difference that every example shows is certain, however much the examples differ."""
    base = np.random.default_rng(0).normal(0, 100, 50)
    found = paired_test(base + 0.01, base)
    assert found.difference == pytest.approx(0.01)
    assert found.p_value < 1e-3


@settings(max_examples=40, deadline=None)
@given(st.lists(st.floats(-1, 1), min_size=6, max_size=30), st.integers(0, 3))
def test_a_and_b_may_be_swapped(difference: list[float], seed: int) -> None:
    zeros = np.zeros(len(difference))
    found = paired_test(difference, zeros, resamples=1000, seed=seed)
    swapped = paired_test(zeros, difference, resamples=1000, seed=seed)
    assert swapped.difference == pytest.approx(-found.difference)
    assert swapped.p_value == found.p_value
    assert 0 < found.p_value <= 1


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


def test_mcnemar_equals_statsmodels() -> None:
    rng = np.random.default_rng(0)
    first, second = rng.random(80) < 0.7, rng.random(80) < 0.6
    table = [[(first & second).sum(), (first & ~second).sum()], [(~first & second).sum(), (~first & ~second).sum()]]
    assert mcnemar(first, second).p_value == pytest.approx(statsmodels_mcnemar(table, exact=True).pvalue, rel=1e-9)


def test_a_difference_of_shares_has_the_published_interval() -> None:
    """Fagerland, Lydersen and Laake (2014), hyperresponsive airways before and after: 1 against 7 of 21 children."""
    before, after = [1] * 2 + [0] * 19, [1] + [0] + [1] * 7 + [0] * 12
    estimate, low, high = share_difference(before, after)
    assert float(estimate) == pytest.approx(-6 / 21)
    assert (round(float(low), 3), round(float(high), 3)) == (-0.508, -0.013)


@pytest.mark.parametrize("n", [10, 24, 40, 100])
@pytest.mark.parametrize("shares", [(0.01, 0.0), (0.05, 0.05), (0.1, 0.02), (0.3, 0.3), (0.2, 0.0)])
def test_an_interval_of_a_difference_of_shares_covers_it(n: int, shares: tuple[float, float]) -> None:
    """Over all outcomes, not simulated: how many images only the one, and only the other has right."""
    only_a, only_b = np.indices((n + 1, n + 1)).reshape(2, -1)
    possible = only_a + only_b <= n
    counts = np.stack([only_a, only_b, n - only_a - only_b], axis=1)[possible]
    chances = stats.multinomial(n, [*shares, 1 - sum(shares)]).pmf(counts)
    likely = chances > 1e-9
    ends = [share_difference(*_answers(*count)) for count in counts[likely]]
    held = [low - 1e-12 <= shares[0] - shares[1] <= high + 1e-12 for _, low, high in ends]
    assert chances[likely][held].sum() >= 0.93


def _answers(only_a: int, only_b: int, rest: int) -> tuple[np.ndarray, np.ndarray]:
    return np.repeat([1, 0, 0], [only_a, only_b, rest]), np.repeat([0, 1, 0], [only_a, only_b, rest])


@pytest.mark.parametrize("seldom", [1, 2, 3])
def test_a_mean_of_rare_events_has_an_interval_of_possible_values(seldom: int) -> None:
    """Of a third of the resamples all values are equal, and their t is without bounds."""
    values = np.repeat([1.0, 0.0], [seldom, 200 - seldom])
    estimate, low, high = mean_interval(values)
    assert estimate + 1 >= high > estimate > low > -0.01


def test_holm_by_hand() -> None:
    """Smallest first: 0.01·4, 0.02·3 → 0.06, 0.03·2 = 0.06, 0.5·1."""
    np.testing.assert_allclose(holm([0.03, 0.5, 0.01, 0.02]), [0.06, 0.5, 0.04, 0.06])
    np.testing.assert_allclose(holm([0.9, 0.8]), [1, 1])
    assert holm([]).shape == (0,)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=20))
def test_holm_equals_statsmodels(p: list[float]) -> None:
    with mock.patch("gc.collect"):  # which statsmodels calls every time, and which takes a second in a large process
        expected = multipletests(p, method="holm")[1]
    np.testing.assert_allclose(holm(p), expected, rtol=1e-12)


def test_a_row_without_a_test_does_not_count() -> None:
    np.testing.assert_allclose(holm([0.03, float("nan"), 0.01]), [0.03, float("nan"), 0.02])


@pytest.mark.parametrize("p", [[1.1], [-0.1], [[0.1]]])
def test_holm_refuses_what_is_no_p_value(p: list[object]) -> None:
    with pytest.raises(InputError):
        holm(p)  # type: ignore[arg-type]


@pytest.mark.parametrize("test", [mcnemar, paired_test])
def test_pairs_must_match(test: object) -> None:
    with pytest.raises(InputError, match="one length"):
        test([1, 0], [1])  # type: ignore[operator]


def test_a_mean_of_shares_is_a_share() -> None:
    """Of two images Student's interval alone is wider than all that is possible."""
    values = np.array([0.5, 1.0])
    assert mean_interval(values).low < 0
    assert tuple(map(float, mean_interval(values, bounds=(0, 1)))) == (0.75, 0, 1)
    assert np.isnan(mean_interval(np.ones(1), bounds=(0, 1)).low)
    beyond = mean_interval(np.array([1, 1 + 1e-7] * 5), bounds=(0, 1))  # by a rounding
    assert beyond.low <= beyond.estimate <= beyond.high
