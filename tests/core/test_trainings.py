"""Trainings as a level: the random-effects model against statsmodels, and its error rates by simulation."""

import numpy as np
import pandas as pd
import pytest
from statsmodels.regression.mixed_linear_model import MixedLM

from scs_eval import InputError
from scs_eval.analyses.accuracy import AccuracyComparison, AccuracyResult
from scs_eval.analyses.core.trainings import seeds_needed, training_effect, variance_components
from scs_eval.models.zoo.counterparts import references_of
from scs_eval.models.zoo.recipes import same_recipe


def draw(rng: np.random.Generator, trainings: int, n: int, spread: tuple[float, float, float]) -> np.ndarray:
    """Differences with these standard deviations of trainings, examples and the rest, around 0."""
    over_trainings = rng.normal(size=(trainings, 1)) * spread[0]
    return over_trainings + rng.normal(size=(1, n)) * spread[1] + rng.normal(size=(trainings, n)) * spread[2]


def test_the_estimates_are_those_of_a_mixed_model() -> None:
    values = 0.3 + draw(np.random.default_rng(1), 6, 20, (0.5, 1.0, 0.7))
    training, example = np.indices(values.shape)
    frame = pd.DataFrame({"d": values.ravel(), "t": training.ravel(), "i": example.ravel(), "all": 1})
    crossed = {"t": "0 + C(t)", "i": "0 + C(i)"}
    fitted = MixedLM.from_formula("d ~ 1", frame, groups="all", vc_formula=crossed, re_formula="0").fit(reml=True)
    found, parts = training_effect(values), variance_components(values)
    assert found.effect == pytest.approx(fitted.params["Intercept"], rel=1e-6)
    # statsmodels maximises numerically, to about four digits here.
    assert [parts.examples, parts.trainings] == pytest.approx(sorted(fitted.vcomp, reverse=True), rel=2e-3)
    assert parts.rest == pytest.approx(fitted.scale, rel=2e-3)
    count, n = values.shape
    error = np.sqrt(parts.trainings / count + parts.examples / n + parts.rest / (count * n))
    assert error == pytest.approx(fitted.bse["Intercept"], rel=2e-3)
    assert 1.96 * error < found.high - found.effect < 2.6 * error, "Student's t with at least the 5 degrees of freedom"


@pytest.mark.parametrize("spread", [(0.0, 1.0, 1.0), (0.2, 1.0, 1.0), (1.0, 0.1, 0.5)])
@pytest.mark.parametrize("trainings", [3, 5])
def test_null_effects_are_shown_in_no_more_than_about_one_case_of_twenty(
    trainings: int, spread: tuple[float, float, float]
) -> None:
    rng = np.random.default_rng(trainings)
    p = [training_effect(draw(rng, trainings, 40, spread)).p_value for _ in range(1000)]
    assert np.mean(np.array(p) <= 0.05) <= 0.06 + 3 * np.sqrt(0.05 * 0.95 / 1000)  # three standard errors


def test_images_alone_would_err() -> None:
    """What the level is for: networks of one kind that differ between trainings, tested on images of one pair."""
    rng = np.random.default_rng(0)
    p = [training_effect(draw(rng, 1, 40, (0.5, 1.0, 0.5))).p_value for _ in range(300)]
    assert np.mean(np.array(p) <= 0.05) > 0.3


def test_one_training_speaks_of_this_network_only() -> None:
    values = np.random.default_rng(0).normal(1, 1, (2, 30))
    assert training_effect(values[:1]).scope == "this network only"
    assert training_effect(values).scope == "these 2 networks only"
    assert training_effect(np.vstack([values, values])).scope == "4 trainings"
    assert training_effect(values[:, :4]).test == "too few examples (n = 4)"
    assert np.isnan(training_effect(values[:, :4]).p_value)


def test_examples_without_a_value_are_left_out() -> None:
    values = np.random.default_rng(0).normal(size=(3, 12))
    holed = values.copy()
    holed[1, 3] = np.nan
    assert training_effect(holed) == training_effect(np.delete(values, 3, axis=1))
    with pytest.raises(InputError, match="an example with a value of every training"):
        training_effect(np.full((3, 4), np.nan))


def test_smaller_effects_need_more_seeds_or_images() -> None:
    values = 1 + draw(np.random.default_rng(0), 5, 100, (0.3, 0.1, 0.1))
    few, more = seeds_needed(values, 0.8), seeds_needed(values, 0.4)
    assert few is not None
    assert more is not None
    assert 3 <= few < more
    assert seeds_needed(draw(np.random.default_rng(0), 5, 10, (0.0, 3.0, 0.1)), 0.1) is None


def answers(name: str, share: float) -> AccuracyResult:
    """A network that is right on the first images."""
    labels = np.zeros(100, dtype=int)
    predictions = (np.arange(100) >= 100 * share).astype(int)
    options = {"classes": ("a", "b"), "margins": np.zeros(100), "parameters": 1, "seconds": 1.0}
    return AccuracyResult(label=name, labels=labels, predictions=predictions, **options)


def test_a_comparison_tells_trainings_from_networks() -> None:
    names = ("rohrer100k_scs", "rohrer100k_scs@1", "rohrer100k_conv", "rohrer100k_conv@1", "rohrer100k_cos")
    several = AccuracyComparison.of(
        [answers(name, share) for name, share in zip(names, (0.7, 0.8, 0.9, 0.9, 0.5), strict=True)], label="all"
    )
    table = several.trainings().set_index("network")
    assert table.loc["rohrer100k_scs", ["trainings", "mean", "least", "largest"]].tolist() == [2, 0.75, 0.7, 0.8]
    assert table.loc["rohrer100k_scs", ["effect", "reference"]].tolist() == [pytest.approx(-0.15), "rohrer100k_conv"]
    assert table.loc["rohrer100k_scs", "scope"] == "these 2 networks only"
    assert "another recipe" in table.loc["rohrer100k_cos", "test"], "the cosine network is by another recipe"
    assert "trainings" in several.tables()
    assert not len(AccuracyComparison.of(several.results[:1] + several.results[2:3], label="one each").trainings())


def test_a_named_reference_is_that_of_the_same_seed() -> None:
    names = ("rohrer100k_scs", "rohrer100k_scs@1", "rohrer100k_ssdp", "rohrer100k_ssdp@1", "rohrer100k_conv@7")
    chosen = references_of({name: name for name in names}, asked="rohrer100k_ssdp")
    assert chosen == {
        "rohrer100k_scs": "rohrer100k_ssdp",
        "rohrer100k_scs@1": "rohrer100k_ssdp@1",
        "rohrer100k_conv@7": "rohrer100k_ssdp",
    }


def test_recipes_are_the_same_if_all_numbers_are() -> None:
    one = {"optimizer": "adam", "lr": 0.01, "epochs": 12, "mixup": 0.0}
    assert same_recipe(one, {**one, "pgd_eps": 0.0, "pgd_steps": 3})
    assert not same_recipe(one, {**one, "pgd_eps": 0.03})
    assert not same_recipe(one, {**one, "lr": 0.003})
    assert not same_recipe({}, {})
