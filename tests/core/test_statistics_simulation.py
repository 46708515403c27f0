"""Do tests and intervals keep their promises at the n they are given? The table goes into docs/statistics.md."""

from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from scs_eval import load_data, load_model, localisation, saliency
from scs_eval.analyses.compare.metrics import metrics_of
from scs_eval.analyses.compare.result import CompareResult
from scs_eval.analyses.core.statistics import mcnemar, mean_interval, sign_flip_p, wilson
from scs_eval.analyses.localisation import MosaicOptions, select_mosaics

PAGE = Path(__file__).parents[2] / "docs" / "statistics.md"
SIZES = (10, 24, 40, 100)
TRIALS = 4000
FLIPPED = 20_000  # samples of a sign-flip test: of 4,000, a rate of 5.5 % may well come out as 6.6 %
RESAMPLES = 2000  # fewer than in use, which only adds noise
MOST_ERRORS, LEAST_COVERAGE = 0.06, 0.93
NOISE = 3 * np.sqrt(0.05 * 0.95 / TRIALS)  # three standard errors of a rate of 5 %: 0.010

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
    """How often the interval of the mean holds it."""
    _, low, high = mean_interval(draw(np.random.default_rng(n), (n, TRIALS)), resamples=RESAMPLES)
    return float(((low <= mean) & (mean <= high)).mean())


def false_alarms(draw: Draw, mean: float, n: int) -> float:
    """How often sign flips see a difference where there is none."""
    values = draw(np.random.default_rng(n), (n, FLIPPED)) - mean
    return _rejected(values)


def _rejected(values: np.ndarray) -> float:
    """The share of columns with p ≤ 5 %, in parts with flips of their own: one set errs for all columns alike."""
    parts = np.array_split(values, 40, axis=1)
    return float(
        np.mean([(sign_flip_p(part, resamples=RESAMPLES, seed=i) <= 0.05).mean() for i, part in enumerate(parts)])
    )


def swapped_alarms(pool: np.ndarray, n: int) -> float:
    """The same for two models that are equally good: image by image either may have either score."""
    rng = np.random.default_rng(n)
    gaps = rng.choice(pool[:, 0] - pool[:, 1], (n, FLIPPED)) * rng.choice([-1, 1], (n, FLIPPED))
    return _rejected(gaps)


def mcnemar_alarms(n: int) -> float:
    """Two networks of 70 % accuracy, right on partly the same images."""
    rng = np.random.default_rng(n)
    easy = rng.random((TRIALS, n)) < 0.5
    right = [easy | (rng.random((TRIALS, n)) < 0.4) for _ in range(2)]
    return float(np.mean([mcnemar(a, b).p_value <= 0.05 for a, b in zip(*right, strict=True)]))


def wilson_covered(n: int) -> float:
    """Over accuracies from 5 % to 95 %."""
    shares = np.random.default_rng(n).uniform(0.05, 0.95, TRIALS)
    _, low, high = wilson(np.random.default_rng(n + 1).binomial(n, shares), n)
    return float(((low <= shares) & (shares <= high)).mean())


def family_alarms(n: int, *, families: int = 300) -> float:
    """How often a whole comparison of two equally good models marks anything: all its metrics, Holm's correction."""
    metrics = metrics_of(("accuracy", "saliency", "localisation", "pgd", "faithfulness"), (0.01,))
    rng, pools = np.random.default_rng(n), list(real().values())
    marked = 0
    for _ in range(families):
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
    return marked / families


def table(rows: dict[str, list[float]]) -> str:
    lines = ["| | " + " | ".join(f"n = {n}" for n in SIZES) + " |", "|---|" + "---:|" * len(SIZES)]
    lines += [f"| {name} | " + " | ".join(f"{100 * rate:.1f}" for rate in rates) + " |" for name, rates in rows.items()]
    return "\n".join(lines) + "\n"


@pytest.mark.slow
def test_error_rates_and_coverage_by_simulation() -> None:
    coverage = {f"mean, {name}": [covered(*each, n) for n in SIZES] for name, each in draws().items()}
    coverage["proportion (Wilson)"] = [wilson_covered(n) for n in SIZES]
    gaps = {name: each for name, each in draws().items() if "difference" in name or name == "normal"}
    errors = {f"sign flips, {name}": [false_alarms(*each, n) for n in SIZES] for name, each in gaps.items()}
    errors |= {
        f"sign flips, {name}, swapped": [swapped_alarms(pool, n) for n in SIZES] for name, pool in real().items()
    }
    laplace = (lambda rng, shape: rng.exponential(size=shape) - rng.exponential(size=shape), 0.0)
    errors["sign flips, exponential, swapped"] = [false_alarms(*laplace, n) for n in SIZES]
    errors["McNemar"] = [mcnemar_alarms(n) for n in SIZES]
    errors["`compare`, any mark of the whole family"] = [family_alarms(n) for n in SIZES]
    head = PAGE.read_text().partition("## Simulated")[0]
    PAGE.write_text(
        f"{head}## Simulated\n\n{TRIALS:,} samples of each size ({FLIPPED:,} of sign flips, 300 whole comparisons); in "
        "per cent. Printed by "
        "`pytest -m slow tests/core/test_statistics_simulation.py`.\n\n"
        f"How often a 95 % interval holds the true value:\n\n{table(coverage)}\n"
        f"How often a test at the level of 5 % sees a difference where there is none:\n\n{table(errors)}"
    )
    for name, rates in coverage.items():
        assert min(rates) >= LEAST_COVERAGE - NOISE, name
    for name, rates in errors.items():
        assert max(rates) <= MOST_ERRORS + NOISE, name


def test_the_simulation_can_fail() -> None:
    """Percentile intervals do not keep the promise."""
    rng = np.random.default_rng(0)
    values = rng.exponential(size=(400, 10))
    ends = [
        stats.bootstrap((row,), np.mean, method="percentile", n_resamples=300, random_state=1).confidence_interval
        for row in values
    ]
    assert np.mean([end.low <= 1 <= end.high for end in ends]) < LEAST_COVERAGE - NOISE


def test_the_page_has_the_simulation() -> None:
    text = PAGE.read_text()
    assert "## Simulated" in text
    for name in ("normal", "exponential", "Gini, SCS", "grid, difference", "McNemar", "`compare`"):
        assert name in text
