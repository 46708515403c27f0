"""Calibration against sklearn, torch's optimiser, and populations whose calibration is known."""

from pathlib import Path

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from scipy import stats
from sklearn.calibration import calibration_curve
from sklearn.metrics import brier_score_loss, log_loss
from torch import Tensor, nn

from scs_eval import InputError, calibration, load_data, load_model, load_result
from scs_eval.analyses.calibration import CalibrationComparison, halves, outcomes
from scs_eval.analyses.calibration.bins import (
    debiased_ece,
    ece_interval,
    equal_mass,
    folded_normal_mean,
    plugin_ece,
    squared_error,
)
from scs_eval.analyses.calibration.temperature import LEAST, MOST, fit_temperature
from scs_eval.cli.main import cli
from tests.helpers.cut_off import CutOff, StopError

CLASSES = ("a", "b", "c")


class Logits(nn.Module):
    """The first three pixels of the red channel, ten times, are the logits."""

    def forward(self, images: Tensor) -> Tensor:
        return 10 * images[:, 0, 0, :3]


def random_data(n: int = 60) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    return torch.rand(n, 3, 4, 4, generator=generator), torch.randint(0, 3, (n,), generator=generator)


def test_outcomes_are_those_of_sklearn() -> None:
    images, labels = random_data()
    result = calibration(Logits(), images, labels, classes=CLASSES, bins=5)
    probabilities = (10 * images[:, 0, 0, :3]).double().softmax(1).numpy()
    assert result.log_loss[0].mean() == pytest.approx(log_loss(labels, probabilities), rel=1e-6)  # float32 logits
    brier = brier_score_loss(labels, probabilities, labels=[0, 1, 2], scale_by_half=False)
    assert result.brier[0].mean() == pytest.approx(brier, rel=1e-6)
    np.testing.assert_allclose(result.confidence[0], probabilities.max(1), rtol=1e-6)
    accuracy, confidence = calibration_curve(result.correct, result.confidence[0], n_bins=5, strategy="quantile")
    bins = result.binned[0]
    np.testing.assert_allclose(bins.accuracy.estimate, accuracy)  # 60 images: quantiles cut between the same ones
    np.testing.assert_allclose(bins.confidence, confidence)
    assert plugin_ece(bins) == pytest.approx(np.abs(accuracy - confidence).mean())  # bins of one size


def test_bins_differ_by_one_image_at_most() -> None:
    rng = np.random.default_rng(0)
    confidence = rng.random(103).round(1)  # with ties
    bins = equal_mass(confidence, confidence > 0.5, bins=10)
    assert set(bins.images) == {10, 11}
    assert (np.diff(bins.confidence) >= 0).all()
    whole = equal_mass(confidence, confidence > 0.5, bins=1)
    assert plugin_ece(whole) == pytest.approx(abs((confidence > 0.5).mean() - confidence.mean()))


def test_the_temperature_is_that_of_an_optimiser() -> None:
    generator = torch.Generator().manual_seed(1)
    logits = 4 * torch.randn(500, 3, generator=generator, dtype=torch.float64)
    labels = (logits / 2.5).softmax(1).multinomial(1, generator=generator)[:, 0]
    log_t = torch.zeros(1, dtype=torch.float64, requires_grad=True)
    optimiser = torch.optim.LBFGS([log_t], max_iter=100, tolerance_grad=1e-14, line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        optimiser.zero_grad()
        loss = nn.functional.cross_entropy(logits / log_t.exp(), labels)
        loss.backward()
        return loss

    optimiser.step(closure)
    assert fit_temperature(logits, labels) == pytest.approx(log_t.exp().item(), rel=1e-4)  # L-BFGS stops about there
    assert closure() >= nn.functional.cross_entropy(logits / fit_temperature(logits, labels), labels)
    assert fit_temperature(logits, labels) == pytest.approx(2.5, rel=0.2)  # what the labels were drawn with; n = 500


def test_temperatures_have_ends() -> None:
    logits = torch.tensor([[2.0, 0], [0, 1]], dtype=torch.float64)
    assert fit_temperature(logits, torch.tensor([0, 1])) == LEAST  # right throughout: the surer the better
    assert fit_temperature(logits, torch.tensor([1, 0])) == MOST


def test_each_half_has_the_temperature_of_the_other() -> None:
    images, labels = random_data()
    result = calibration(Logits(), images, labels, classes=CLASSES, bins=5, seed=3)
    half, logits = torch.from_numpy(result.half), (10 * images[:, 0, 0, :3]).double()
    assert half.bincount().tolist() == [30, 30]
    assert torch.equal(half, halves(60, 3))
    for part in (0, 1):
        fitted = fit_temperature(logits[half != part], labels[half != part])
        assert result.temperatures[part] == pytest.approx(fitted, rel=1e-6)  # float32 logits
        wanted = outcomes(logits[half == part] / fitted, labels[half == part])["brier"]
        np.testing.assert_allclose(result.brier[1][result.half == part], wanted, rtol=1e-5)


def test_a_folded_normals_mean_is_that_of_scipy() -> None:
    for mean, spread in ((0.0, 0.05), (0.02, 0.05), (0.3, 0.01)):
        wanted = stats.foldnorm(mean / spread, scale=spread).mean()
        assert folded_normal_mean(np.array([mean]), np.array([spread]))[0] == pytest.approx(wanted, rel=1e-9)
    assert folded_normal_mean(np.array([0.2]), np.array([0.0]))[0] == 0.2


@pytest.mark.parametrize("truth", [0.0, 0.03, 0.15])
def test_the_error_of_a_known_population(truth: float) -> None:
    rng, seen = np.random.default_rng(0), []
    for _ in range(200):
        confidence = 0.2 + 0.8 * rng.random(1000)
        bins = equal_mass(confidence, rng.random(1000) < confidence - truth, bins=15)
        interval = ece_interval(bins)
        assert interval.low <= interval.estimate <= interval.high
        seen.append((plugin_ece(bins), debiased_ece(bins), squared_error(bins), interval.low <= truth <= interval.high))
    plugin, debiased, squared, inside = np.mean(seen, axis=0)
    error = np.std(seen, axis=0) / 200**0.5
    assert squared == pytest.approx(truth**2, abs=4 * error[2])  # unbiased; 4 standard errors
    assert abs(debiased - truth) < 0.4 * (plugin - truth) + 4 * error[1]  # most of the bias is gone
    assert inside >= 0.92  # 95 %, minus two standard errors of 200 trials


def test_command_result_and_figure(tmp_path: Path) -> None:
    words = ["calibration", "rohrer100k_scs", "rohrer100k_conv", "-n", "40", "--bins", "4", "--out"]
    done = CliRunner().invoke(cli, [*words, str(tmp_path / "o")])
    assert done.exit_code == 0, done.output
    result = load_result(tmp_path / "o")
    assert isinstance(result, CalibrationComparison)
    assert len(result.table()) == 4
    assert len(result.tables()["images"]) == 80
    assert (tmp_path / "o" / "figure.png").exists()
    assert len(result.figure().axes) == 2
    data = load_data("sample", n=40)
    model = load_model("rohrer100k_scs")
    again = calibration(model, data.images, data.labels, classes=data.classes, bins=4, indices=data.indices)
    np.testing.assert_array_equal(again.confidence, result.results[0].confidence)


def test_wrong_requests() -> None:
    images, labels = random_data(4)
    with pytest.raises(InputError, match="bins"):
        calibration(Logits(), images, labels, classes=CLASSES, bins=5)
    with pytest.raises(InputError, match="half"):
        calibration(Logits(), images[:1], labels[:1], classes=CLASSES, bins=1)
    with pytest.raises(InputError, match="two classes"):
        calibration(Logits(), images, 0 * labels, classes=("a",), bins=1)


def test_an_interrupted_run_goes_on(tmp_path: Path) -> None:
    images, labels = random_data()
    stop = CutOff(after=2)

    asked = {"classes": CLASSES, "bins": 5, "batch_size": 20, "checkpoint": tmp_path / "part.npz"}
    with pytest.raises(StopError):
        calibration(Logits(), images, labels, **asked, progress=stop)
    again: list[int] = []
    resumed = calibration(Logits(), images, labels, **asked, progress=again.append)
    assert again == [40, 20]
    whole = calibration(Logits(), images, labels, classes=CLASSES, bins=5)
    assert resumed.temperatures == whole.temperatures
    np.testing.assert_array_equal(resumed.brier, whole.brier)
