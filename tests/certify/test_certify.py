"""Certificates of linear classifiers, whose smoothed version and its true radius are known, and the exact bounds."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from scipy import stats
from statsmodels.stats.proportion import proportion_confint
from torch import Tensor, nn

from scs_eval import InputError, certify, load_result
from scs_eval.analyses.certify import CertifyOptions
from scs_eval.analyses.certify.result import CertifyComparison, CertifyResult
from scs_eval.analyses.certify.smoothing import ABSTAIN, Smoothed, certified_radius, lower_bound, votes
from scs_eval.cli.main import cli
from tests.helpers.cut_off import CutOff, StopError

CLASSES = ("below", "above")


class Plane(nn.Module):
    """Says "above" where w·x > ½ Σw; so does its smoothed version, whose radius is the distance to the plane."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(48, generator=torch.Generator().manual_seed(0)))

    def margins(self, images: Tensor) -> Tensor:
        """(n,) signed distances to the plane."""
        return (images.flatten(1) - 0.5) @ self.weight / self.weight.norm()

    def forward(self, images: Tensor) -> Tensor:
        logit = 10 * self.margins(images)
        return torch.stack([-logit, logit], 1)


def images(n: int = 12) -> Tensor:
    return 0.3 + 0.4 * torch.rand(n, 3, 4, 4, generator=torch.Generator().manual_seed(1))


def run(**options: Any) -> tuple[CertifyResult, np.ndarray]:
    """Half of the labels are right; the true distances."""
    model, pictures = Plane(), images()
    distances = model.margins(pictures).detach()
    labels = (distances > 0).long()
    labels[9:] = 1 - labels[9:]
    given = CertifyOptions(**{"sigma": (0.1,), "samples": 500, **options})
    return certify(model, pictures, labels, classes=CLASSES, options=given), distances.abs().numpy()


def test_the_lower_bound_is_clopper_and_pearsons() -> None:
    for successes, n in ((0, 10), (3, 10), (10, 10), (990, 1000), (99_990, 100_000)):
        bound = lower_bound(successes, n, alpha=0.001)
        assert bound == pytest.approx(proportion_confint(successes, n, alpha=0.002, method="beta")[0], abs=1e-12)
        exact = stats.binomtest(successes, n, alternative="greater").proportion_ci(0.999, method="exact").low
        assert bound == pytest.approx(exact, abs=1e-9)  # scipy searches a root
    assert certified_radius(990, 1000, sigma=0.5, alpha=0.001) == pytest.approx(
        0.5 * stats.norm.ppf(lower_bound(990, 1000, alpha=0.001))
    )
    assert certified_radius(510, 1000, sigma=0.5, alpha=0.001) is None


def test_votes_have_the_probability_of_the_gaussian() -> None:
    model, image = Plane(), images(1)[0]
    counts = votes(model, image, sigma=0.2, n=4000, rng=np.random.default_rng(0), classes=2)
    assert counts.sum() == 4000
    wanted = stats.norm.cdf(model.margins(image[None]).item() / 0.2)
    assert counts[1] / 4000 == pytest.approx(wanted, abs=4 * (0.25 / 4000) ** 0.5)  # 4 standard errors at most


def test_the_truth_lies_between_what_is_proven_and_what_is_found() -> None:
    result, truth = run()
    right, found = result.right[0], result.distance[0]
    assert (result.predictions[0][9:] != result.labels[9:]).all()
    assert (found[9:][result.predictions[0][9:] != ABSTAIN] == 0).all(), "wrong when clean"
    assert right[:9].sum() >= 5
    assert (result.proven[0][:9] <= truth[:9]).all()
    assert (found[:9] >= truth[:9] - 1e-6).all()  # float32 pixels
    assert np.isfinite(found[:9][right[:9]]).all()
    assert (found[:9][right[:9]] < truth[:9][right[:9]] + 0.15).all(), (
        "σ = 0.1; 8 draws are off by 0.035, counts by 0.02"
    )


def test_more_copies_prove_more() -> None:
    few, many = (run(samples=samples, attack=False)[0] for samples in (50, 2000))
    assert many.proven.mean() > few.proven.mean()
    assert np.isinf(many.distance[0][:9]).all(), "nobody looked for it"
    certain = few.counts[0] == 50
    most = 0.1 * stats.norm.ppf(0.001 ** (1 / 50))  # all copies agree
    assert few.radius[0][certain] == pytest.approx(most)


def test_smoothed_is_the_mean_of_probabilities() -> None:
    model, pictures = Plane().double(), images(3).double()
    smoothed = Smoothed(model, sigma=0.1, draws=5, shape=pictures.shape[1:], seed=0).double()
    noise = smoothed.get_buffer("noise")
    wanted = torch.stack([model(pictures + each).softmax(1) for each in noise]).mean(0)
    torch.testing.assert_close(smoothed(pictures).exp(), wanted)


def test_curves_and_tables_by_hand() -> None:
    result, _ = run()
    radii = np.array([0.0, 0.05])
    held = [(result.right[0] & (result.radius[0] >= radius)).mean() for radius in radii]
    np.testing.assert_allclose(result.certified(0, radii).estimate, held)
    assert (result.certified(0, radii).estimate <= result.unbroken(0, radii).estimate).all()
    row = result.table().iloc[0]
    assert row["radius"] == pytest.approx(result.proven[0].mean())
    assert row["abstained"] == (result.predictions[0] == ABSTAIN).mean()
    assert len(result.per_image()) == 12


def test_an_interrupted_run_goes_on(tmp_path: Path) -> None:
    model, pictures = Plane(), images()
    labels = (model.margins(pictures) > 0).long()
    given: dict[str, Any] = {"classes": CLASSES, "options": CertifyOptions(samples=50, sigma=(0.1, 0.2), draws=2)}

    stop = CutOff(after=8)

    with pytest.raises(StopError):
        certify(model, pictures, labels, **given, progress=stop, checkpoint=tmp_path / "part.npz")
    again: list[int] = []
    resumed = certify(model, pictures, labels, **given, progress=again.append, checkpoint=tmp_path / "part.npz")
    whole = certify(model, pictures, labels, **given)
    assert again[0] == 12, "the first proof was done"
    assert sum(again) == 3 * 2 * 12
    for name in ("predictions", "counts", "radius", "distance"):
        np.testing.assert_array_equal(getattr(resumed, name), getattr(whole, name))


def test_a_model_is_left_as_it_was() -> None:
    model = Plane().train()
    model.weight.grad = torch.ones(48)
    state = torch.random.get_rng_state()
    certify(model, images(2), [0, 1], classes=CLASSES, options=CertifyOptions(samples=20, draws=2))
    assert model.training
    assert model.weight.requires_grad
    assert (model.weight.grad == 1).all()
    assert torch.equal(torch.random.get_rng_state(), state)


def test_command(tmp_path: Path) -> None:
    words = ["certify", "rohrer100k_scs", "rohrer100k_conv", "-n", "2", "--samples", "30", "--draws", "1"]
    done = CliRunner().invoke(cli, [*words, "--sigma", "0.02", "--sigma", "0.05", "--out", str(tmp_path / "o")])
    assert done.exit_code == 0, done.output
    result = load_result(tmp_path / "o")
    assert isinstance(result, CertifyComparison)
    assert result.results[0].sigma.tolist() == [0.02, 0.05]
    assert len(result.figure().axes) == 2
    assert len(result.table()) == 4


@pytest.mark.parametrize(
    "wrong", [{"sigma": (0.0,)}, {"sigma": ()}, {"sigma": (0.1, 0.1)}, {"samples": 0}, {"alpha": 0.6}]
)
def test_wrong_options(wrong: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        CertifyOptions(**wrong)
