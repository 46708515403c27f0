"""Do tests and intervals keep their promises at the n they are given? The table goes into docs/statistics.md.

Every rate is of so many samples that chance moves it by 0.2 points (one standard error; 0.5 for whole comparisons).
"""

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from scs_eval import SaliencyOptions, accuracy, load_data, load_model, localisation, saliency
from scs_eval.analyses.compare import result as compare_result
from scs_eval.analyses.compare.metrics import metrics_of
from scs_eval.analyses.compare.result import CompareResult
from scs_eval.analyses.core.statistics import bootstrap_interval, mcnemar, mean_interval, sign_flip_p, wilson
from scs_eval.analyses.core.trainings import training_effect, variance_components
from scs_eval.analyses.localisation import MosaicOptions, select_mosaics

PAGE = Path(__file__).parents[2] / "docs" / "statistics.md"
SIZES = (10, 24, 40, 100)
TRAININGS = (3, 5)
TRIALS = 20_000
COVERED = 10_000  # of those that take longest, the bootstraps
FAMILIES = 2000
RATIOS = 3000
PARTS = 20  # of the samples, each with resamples or flips of its own: one set errs for all samples alike
RESAMPLES = 2000  # fewer than in use, which only adds noise
MOST_ERRORS, LEAST_COVERAGE = 0.06, 0.93

Draw = Callable[[np.random.Generator, tuple[int, ...]], np.ndarray]


@cache
def real() -> dict[str, np.ndarray]:
    """Scores of trained networks on the sample: (n, 2), SCS beside convolution."""
    models = [load_model(name) for name in ("rohrer100k_scs", "rohrer100k_conv")]
    data = load_data("sample")
    images, labels = data.images[:300], data.labels[:300]
    gini = [saliency(model, images, labels, classes=data.classes, method="grad").gini for model in models]
    two = {"a": models[0], "b": models[1]}
    mosaics = select_mosaics(two, data, MosaicOptions(side=2, count=100))
    grids = [localisation(two[name], data, mosaics[name], method="ixg").grid_scores for name in two]
    return {"Gini": np.stack(gini, 1), "grid": np.stack(grids, 1)}


def draws() -> dict[str, tuple[Draw, float]]:
    """What scores may look like, and their true mean."""
    made: dict[str, tuple[Draw, float]] = {
        "normal": (lambda rng, shape: rng.normal(size=shape), 0.0),
        "exponential": (lambda rng, shape: rng.exponential(size=shape), 1.0),
        "beta(0.3, 2)": (lambda rng, shape: rng.beta(0.3, 2, shape), 0.3 / 2.3),
    }
    for name, pool in real().items():
        made[f"{name}, SCS"] = (lambda rng, shape, pool=pool[:, 0]: rng.choice(pool, shape), pool[:, 0].mean())
        gap = pool[:, 0] - pool[:, 1]
        made[f"{name}, difference"] = (lambda rng, shape, pool=gap: rng.choice(pool, shape), gap.mean())
    return made


def covered(draw: Draw, mean: float, n: int) -> float:
    """How often the interval of the mean holds it; a sample of equal values has no interval, and does not count."""
    holds = []
    for seed, part in enumerate(np.array_split(draw(np.random.default_rng(n), (n, COVERED)), PARTS, axis=1)):
        _, low, high = mean_interval(part, resamples=RESAMPLES, seed=seed)
        there = np.isfinite(low)
        holds.append(((low <= mean) & (mean <= high))[there])
    return float(np.concatenate(holds).mean())


def false_alarms(draw: Draw, mean: float, n: int) -> float:
    """How often sign flips see a difference where there is none."""
    return _rejected(draw(np.random.default_rng(n), (n, TRIALS)) - mean)


def _rejected(values: np.ndarray) -> float:
    """The share of columns with p ≤ 5 %."""
    parts = np.array_split(values, PARTS, axis=1)
    return float(
        np.mean([(sign_flip_p(part, resamples=RESAMPLES, seed=i) <= 0.05).mean() for i, part in enumerate(parts)])
    )


def swapped_alarms(pool: np.ndarray, n: int) -> float:
    """The same for two models that are equally good: image by image either may have either score."""
    rng = np.random.default_rng(n)
    return _rejected(rng.choice(pool[:, 0] - pool[:, 1], (n, TRIALS)) * rng.choice([-1, 1], (n, TRIALS)))


def two_classifiers(rng: np.random.Generator, shape: tuple[int, ...]) -> list[np.ndarray]:
    """Two networks of 70 % accuracy, right on partly the same images."""
    easy = rng.random(shape) < 0.5
    return [easy | (rng.random(shape) < 0.4) for _ in range(2)]


def mcnemar_alarms(n: int) -> float:
    right = two_classifiers(np.random.default_rng(n), (TRIALS, n))
    return float(np.mean([mcnemar(a, b).p_value <= 0.05 for a, b in zip(*right, strict=True)]))


def wilson_covered(n: int) -> float:
    """On average over accuracies from 5 % to 95 %."""
    shares = np.random.default_rng(n).uniform(0.05, 0.95, TRIALS)
    _, low, high = wilson(np.random.default_rng(n + 1).binomial(n, shares), n)
    return float(((low <= shares) & (shares <= high)).mean())


def ratio_covered(n: int) -> float:
    """A ratio of two means over the same images, as the mean corruption error is one."""
    rng, holds = np.random.default_rng(n), []
    for seed in range(RATIOS):
        hard = rng.beta(1, 2, n)
        columns = np.clip(hard[:, None] + rng.normal(0, 0.1, (n, 2)), 0.01, 1)
        _, low, high = bootstrap_interval(
            columns, lambda means: means[..., 0] / means[..., 1], resamples=RESAMPLES, seed=seed
        )
        holds.append(low <= 1 <= high)
    return float(np.mean(holds))


@cache
def over_trainings() -> dict[str, np.ndarray]:
    """Differences of real networks (trainings, examples): SCS minus convolution, in pairs of one seed."""
    data = load_data("sample")
    images, labels = data.images[:300], data.labels[:300]
    pairs = [[load_model(f"rohrer100k_{layer}@{seed}") for layer in ("scs", "conv")] for seed in range(5)]
    few = SaliencyOptions(samples=0)
    measures: dict[str, Callable[[Any], np.ndarray]] = {
        "Gini": lambda model: saliency(model, images, labels, classes=data.classes, options=few).gini,
        "right or wrong": lambda model: accuracy(model, images, labels).correct.astype(float),
    }
    return {name: np.array([of(scs) - of(conv) for scs, conv in pairs]) for name, of in measures.items()}


@cache
def training_draws() -> dict[str, Callable[[np.random.Generator, int, int], np.ndarray]]:
    """Differences (T, n) whose mean is 0.

    Normal, with standard deviations of trainings : examples : rest; skewed; and with those of real networks, whose
    examples and rests are drawn as they are.
    """

    def made(trainings: float, examples: float, *, skewed: bool = False) -> Any:
        def draw(rng: np.random.Generator, count: int, n: int) -> np.ndarray:
            one = (lambda shape: rng.exponential(size=shape) - 1) if skewed else (lambda shape: rng.normal(size=shape))
            return trainings * rng.normal(size=(count, 1)) + examples * one((1, n)) + one((count, n))

        return draw

    def real(table: np.ndarray) -> Any:
        rows, columns = table.mean(1, keepdims=True), table.mean(0, keepdims=True)
        rest, spread = table - rows - columns + table.mean(), float(np.sqrt(variance_components(table).trainings))

        def draw(rng: np.random.Generator, count: int, n: int) -> np.ndarray:
            over = rng.choice(columns[0] - table.mean(), (1, n))
            return spread * rng.normal(size=(count, 1)) + over + rng.choice(rest.ravel(), (count, n))

        return draw

    normal = {f"normal, σ {a:g} : {b:g} : 1": made(a, b) for a, b in ((0.5, 0.1), (0.1, 0.5), (0.1, 0.1), (0.5, 0.5))}
    skewed = {"exponential, σ 0.1 : 0.5 : 1": made(0.1, 0.5, skewed=True)}
    return normal | skewed | {f"{name}, SCS − convolution": real(table) for name, table in over_trainings().items()}


def training_rates(draw: Any, count: int, n: int) -> tuple[float, float]:
    """How often the interval over trainings holds 0, and how often the test sees a difference."""
    rng = np.random.default_rng(1000 * count + n)
    effects = [training_effect(draw(rng, count, n)) for _ in range(TRIALS)]
    assert all(effect.scope == f"{count} trainings" for effect in effects[:3])
    holds = [effect.low <= 0 <= effect.high for effect in effects]
    return float(np.mean(holds)), float(np.mean([effect.p_value <= 0.05 for effect in effects]))


def family_alarms(n: int) -> float:
    """How often a whole comparison of two equally good models marks anything: all its metrics, Holm's correction."""
    metrics = metrics_of(("accuracy", "saliency", "localisation", "pgd", "faithfulness"), (0.01,))
    rng, pools = np.random.default_rng(n), list(real().values())
    marked = 0
    for _ in range(FAMILIES):
        rows = []
        for place, metric in enumerate(metrics):
            pool = pools[place % len(pools)]
            pair = pool[rng.integers(0, len(pool), n)].T
            pair = (pair > np.median(pool)).astype(float) if metric.shares else pair
            rows.append(np.where(rng.random(n) < 0.5, pair, pair[::-1]))
        result = CompareResult(
            label="x", models=("a", "b"), metrics=tuple(tuple(metric) for metric in metrics), outcomes=np.stack(rows)
        )
        marked += bool((result.tests()["p_holm"] <= 0.05).any())
    return marked / FAMILIES


def table(rows: dict[str, list[float]]) -> str:
    lines = ["| | " + " | ".join(f"n = {n}" for n in SIZES) + " |", "|---|" + "---:|" * len(SIZES)]
    lines += [f"| {name} | " + " | ".join(f"{100 * rate:.1f}" for rate in rates) + " |" for name, rates in rows.items()]
    return "\n".join(lines) + "\n"


SAMPLES = f"{TRIALS:,} samples of each size ({COVERED:,} of bootstraps, {FAMILIES:,} comparisons, {RATIOS:,} ratios)"
WORDS = (
    f"## Simulated\n\n{SAMPLES}; in per cent. Written by "
    "`pytest -m slow tests/core/test_statistics_simulation.py`,\n"
    f"which fails above {100 * MOST_ERRORS:g} % of false alarms and below {100 * LEAST_COVERAGE:g} % of coverage.\n\n"
)


@pytest.mark.slow
def test_error_rates_and_coverage_by_simulation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compare_result, "RESAMPLES", RESAMPLES)
    gap = (lambda rng, shape: np.subtract(*two_classifiers(rng, shape), dtype=float), 0.0)
    coverage = {f"mean, {name}": [covered(*each, n) for n in SIZES] for name, each in draws().items()}
    coverage["mean, right or wrong, difference"] = [covered(*gap, n) for n in SIZES]
    coverage["proportion (Wilson; mean over 5 to 95 %)"] = [wilson_covered(n) for n in SIZES]
    coverage["ratio of means (corruptions)"] = [ratio_covered(n) for n in SIZES]
    gaps = {name: each for name, each in draws().items() if "difference" in name or name == "normal"}
    errors = {f"sign flips, {name}": [false_alarms(*each, n) for n in SIZES] for name, each in gaps.items()}
    errors |= {
        f"sign flips, {name}, swapped": [swapped_alarms(pool, n) for n in SIZES] for name, pool in real().items()
    }
    laplace = (lambda rng, shape: rng.exponential(size=shape) - rng.exponential(size=shape), 0.0)
    errors["sign flips, exponential, swapped"] = [false_alarms(*laplace, n) for n in SIZES]
    errors["McNemar"] = [mcnemar_alarms(n) for n in SIZES]
    for name, draw in training_draws().items():
        for count in TRAININGS:
            rates = [training_rates(draw, count, n) for n in SIZES]
            coverage[f"{count} trainings, {name}"] = [rate[0] for rate in rates]
            errors[f"{count} trainings, {name}"] = [rate[1] for rate in rates]
    errors["`compare`, any mark of the whole family"] = [family_alarms(n) for n in SIZES]
    head = PAGE.read_text(encoding="utf-8").partition("## Simulated")[0]
    PAGE.write_text(
        f"{head}{WORDS}How often a 95 % interval holds the true value:\n\n{table(coverage)}\n"
        f"How often a test at the level of 5 % sees a difference where there is none:\n\n{table(errors)}",
        encoding="utf-8",
    )
    assert {name: rates for name, rates in coverage.items() if min(rates) < LEAST_COVERAGE} == {}
    assert {name: rates for name, rates in errors.items() if max(rates) > MOST_ERRORS} == {}


def test_the_simulation_can_fail() -> None:
    """Percentile intervals do not keep the promise."""
    rng = np.random.default_rng(0)
    values = rng.exponential(size=(400, 10))
    ends = [
        stats.bootstrap((row,), np.mean, method="percentile", n_resamples=300, random_state=1).confidence_interval
        for row in values
    ]
    assert np.mean([end.low <= 1 <= end.high for end in ends]) < LEAST_COVERAGE - 0.02


def test_the_page_has_the_simulation() -> None:
    text = PAGE.read_text()
    assert "## Simulated" in text
    for name in ("normal", "exponential", "Gini, SCS", "grid, difference", "McNemar", "5 trainings", "`compare`"):
        assert name in text
