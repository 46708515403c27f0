"""Detectors against pytorch-ood on the same features, ROC measures against scikit-learn, and the command."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from pytorch_ood.detector import ODIN, EnergyBased, Mahalanobis, MahalanobisODIN, MaxSoftmax
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score, roc_curve
from torch import nn

from scs_eval import InputError, detect, load_data, load_model, load_result
from scs_eval.analyses.core.result import side_by_side
from scs_eval.analyses.detect import DetectOptions
from scs_eval.analyses.detect.gaussians import TiedGaussians
from scs_eval.analyses.detect.parts import FIT, TEST, TRAIN, halves, noise_images, roles
from scs_eval.analyses.detect.regression import fit_logistic
from scs_eval.analyses.detect.result import DetectComparison
from scs_eval.analyses.detect.roc import auroc, curve, detection_accuracy, placements, tnr_at_tpr
from scs_eval.analyses.detect.runner import steps
from scs_eval.analyses.detect.scores import plain_scores, stage_features, stage_scores
from scs_eval.analyses.detect.stages import stages_of
from scs_eval.cli.main import cli
from tests.helpers.cut_off import CutOff, StopError
from tests.helpers.figure_words import cut_words

DATA = load_data("sample", n=80)
MODEL = load_model("rohrer100k_scs")
LABELS, IMAGES = DATA.labels, DATA.images[:]


def random_features(n: int = 300, width: int = 8) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(n) % 3
    mixed = torch.randn(n, width, generator=generator) @ torch.randn(width, width, generator=generator)
    return mixed + 2 * labels[:, None], labels


def test_gaussians_are_those_of_pytorch_ood() -> None:
    features, labels = random_features()
    mine = TiedGaussians.fit(features[:200], labels[:200]).score(features[200:])
    peer = Mahalanobis(None).fit_features(features[:200].double(), labels[:200])
    # Its covariance is the sum, ours the mean over 200 images, and its score is half the squared distance.
    theirs = peer.predict_features(features[200:])
    np.testing.assert_allclose(-mine.numpy(), 2 * 200 * theirs.numpy(), rtol=1e-3)  # it fits in float32
    values, own = features[:200].double().numpy(), labels[:200].numpy()
    means = np.stack([values[own == k].mean(0) for k in range(3)])
    inverse = np.linalg.inv(sum(np.outer(v - means[k], v - means[k]) for v, k in zip(values, own, strict=True)) / 200)
    rest = features[200:].double().numpy()
    wanted = [-min((row - mean) @ inverse @ (row - mean) for mean in means) for row in rest]
    np.testing.assert_allclose(mine.numpy(), wanted, rtol=1e-9)  # float64


def test_a_feature_that_never_varies_has_no_say() -> None:
    features, labels = random_features()
    wider = torch.cat([features, torch.ones(300, 1)], 1)
    expected = TiedGaussians.fit(features, labels).score(features)
    torch.testing.assert_close(TiedGaussians.fit(wider, labels).score(wider), expected, rtol=1e-6, atol=1e-6)


def test_softmax_energy_and_odin_are_those_of_pytorch_ood() -> None:
    images = IMAGES[:12]
    scores = plain_scores(MODEL, images, noise=0.0014, classes=10)
    peers = [MaxSoftmax(MODEL), EnergyBased(MODEL), ODIN(MODEL, temperature=1000, eps=0.0014)]
    for mine, peer in zip(scores, peers, strict=True):
        theirs = -peer.predict(images).detach().double()  # it calls outliers large
        torch.testing.assert_close(mine, theirs, rtol=1e-5, atol=1e-6)  # float32 softmax


def test_preprocessed_mahalanobis_is_that_of_pytorch_ood() -> None:
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Tanh(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 10)).double()
    features = stage_features(net, IMAGES.double(), ("0",), classes=10)[0]
    gaussian = TiedGaussians.fit(features, LABELS)
    mine = stage_scores(net, IMAGES[:10].double(), ("0",), [gaussian], noise=0.002, classes=10)[0]

    def encoder(batch: torch.Tensor) -> torch.Tensor:
        return net[0](batch).mean((2, 3))

    peer = MahalanobisODIN(encoder, eps=0.002)
    peer._base.mu, peer._base.precision = gaussian.means, gaussian.precision
    torch.testing.assert_close(mine, -2 * peer.predict(IMAGES[:10].double()).detach(), rtol=1e-9, atol=1e-9)  # float64


def test_the_regression_is_scikit_learns() -> None:
    rng = np.random.default_rng(0)
    known, other = rng.normal(0, [1, 20, 0.1], (80, 3)), rng.normal([1, -30, 0], [1, 20, 0.1], (60, 3))
    rows, sides = np.concatenate([known, other]), np.repeat([1, 0], [80, 60])
    scaled = (rows - rows.mean(0)) / rows.std(0)
    peer = LogisticRegression(C=1.0, tol=1e-10, max_iter=1000).fit(scaled, sides)
    weights, intercept = fit_logistic(known, other)
    np.testing.assert_allclose(rows @ weights + intercept, peer.decision_function(scaled), atol=1e-4)  # its stop


def test_roc_measures_are_scikit_learns() -> None:
    rng = np.random.default_rng(0)
    known, other = rng.normal(1, 1, 70).round(1), rng.normal(0, 1, 50).round(1)  # with ties
    sides, scores = np.repeat([1, 0], [70, 50]), np.concatenate([known, other])
    assert auroc(known, other).estimate == pytest.approx(roc_auc_score(sides, scores))
    assert [part.mean() for part in placements(known, other)] == pytest.approx([roc_auc_score(sides, scores)] * 2)
    false, true, _thresholds = roc_curve(sides, scores, drop_intermediate=False)
    np.testing.assert_allclose(curve(known, other), [false, true])
    at = true >= 0.95
    assert tnr_at_tpr(known, other).estimate == pytest.approx(1 - false[at].min())
    assert detection_accuracy(known, other).estimate == pytest.approx(((true + 1 - false) / 2).max())


def test_intervals_of_auroc_hold() -> None:
    rng, inside = np.random.default_rng(0), 0
    truth = 0.9213503964748574  # Φ(2 / √2) of two normals two apart
    for _ in range(300):
        area = auroc(rng.normal(2, 1, 30), rng.normal(0, 1, 20))
        inside += area.low <= truth <= area.high
    assert inside >= 0.93 * 300  # 95 %, minus 1.6 standard errors of 300 trials
    perfect = auroc(np.arange(10.0) + 100, np.arange(8.0))
    assert (perfect.estimate, perfect.high) == (1, 1)
    assert perfect.low < 0.75, "8 images do not prove a perfect detector"


def test_parts_are_disjoint_and_even() -> None:
    labels = torch.arange(40) % 10
    role = roles(labels, seed=0, fitted_elsewhere=False)
    assert np.bincount(role).tolist() == [20, 10, 10]
    assert all(np.bincount(role[labels.numpy() == k], minlength=3).tolist() == [2, 1, 1] for k in range(10))
    assert set(roles(labels, seed=0, fitted_elsewhere=True)) == {TRAIN, TEST}
    assert np.bincount(halves(7, seed=0)).tolist() == [0, 3, 4]


def test_stages_are_layers_in_depth() -> None:
    assert stages_of(MODEL, IMAGES[:1]) == ("stages.0.layer", "stages.1.layer", "stages.2.layer")
    deep = stages_of(load_model("resnet20_conv"), IMAGES[:1])
    assert len(deep) == 6
    assert deep[0] == "conv1"
    assert deep[-1] != "fc"


def run(**options: Any) -> Any:
    given: dict[str, Any] = {"others": {"noise": noise_images(20, IMAGES.shape[1:], seed=0)}, "seed": 1}
    return detect(MODEL, DATA, **{**given, "options": DetectOptions(eps=(5 / 255,)), **options})


def test_outcomes_are_those_of_the_parts() -> None:
    result = run()
    assert result.kinds == ("ε = 5/255", "noise")
    role = roles(LABELS, seed=1, fitted_elsewhere=False)
    np.testing.assert_array_equal(result.indices, DATA.indices[torch.from_numpy(role == TEST)])
    fitted = IMAGES[torch.from_numpy(role == FIT)]
    assert result.fitted == len(fitted) == 40
    assert "sample" in result.fitted_on
    layers = ("stages.0", "stages.1", "stages.2")
    features = stage_features(MODEL, fitted, layers, classes=10)
    gaussians = [TiedGaussians.fit(column, LABELS[torch.from_numpy(role == FIT)]) for column in features]
    tested = IMAGES[torch.from_numpy(role == TEST)]
    staged = stage_scores(MODEL, tested, layers, gaussians, noise=0.0014, classes=10)
    np.testing.assert_allclose(result.known[0, 3], staged[-1], rtol=1e-3)  # float32 features, other batches
    fooled = ~np.isnan(result.other[0, 0, :20])
    assert 0 < fooled.sum() < 20, "some are wrong when clean and so not counted"
    np.testing.assert_array_equal(np.isnan(result.detectability(0)), ~fooled)
    assert np.nanmean(result.detectability(0)) == pytest.approx(auroc(*result.pair(0, 4)).estimate)
    assert np.isnan(result.other[1, 0, 10:]).all(), "ten images of noise were tested"
    assert len(result.table()) == 10


def test_progress_and_fitting_elsewhere() -> None:
    told: list[int] = []
    result = run(fit=DATA.subset(slice(0, 40)), progress=told.append)
    assert result.fitted == 40
    assert len(result.indices) == 40
    noise = {"noise": IMAGES[:20]}
    assert sum(told) == steps(80, noise, DetectOptions(eps=(5 / 255,)), fitted_elsewhere=True) == 180


def test_a_model_is_left_as_it_was() -> None:
    model = load_model("rohrer100k_scs").train()
    state = torch.random.get_rng_state()
    detect(model, DATA, options=DetectOptions(eps=(), batch_size=20), others={"dark": 0.1 * IMAGES[:8]})
    assert model.training
    assert all(parameter.requires_grad and parameter.grad is None for parameter in model.parameters())
    assert not any(module._forward_hooks for module in model.modules())
    assert torch.equal(torch.random.get_rng_state(), state)


def test_command(tmp_path: Path) -> None:
    words = ["detect", "rohrer100k_scs", "rohrer100k_conv", "-n", "60", "--eps", "5/255", "--hold-out", "cat"]
    done = CliRunner().invoke(cli, [*words, "--other", "noise", "--out", str(tmp_path / "o")])
    assert done.exit_code == 0, done.output
    result = load_result(tmp_path / "o")
    assert isinstance(result, DetectComparison)
    assert result.results[0].kinds == ("ε = 5/255", "held out: cat", "noise")
    assert (tmp_path / "o" / "figure.png").exists()
    copies = [replace(result.results[0], label=f"rohrer25k_scs_{i}") for i in range(12)]
    many = side_by_side(copies, label="many").figure()
    assert not cut_words(many)
    first = [line.get_linestyle() for line in many.axes[0].lines if line.get_label().startswith("rohrer")]
    assert len(set(first)) > 1  # networks of one layer are told apart


def test_wrong_requests() -> None:
    with pytest.raises(InputError, match="something to tell"):
        detect(MODEL, DATA, options=DetectOptions(eps=()))
    with pytest.raises(InputError, match="above 0"):
        DetectOptions(eps=(0.0,))
    with pytest.raises(InputError, match="unknown layer"):
        run(options=DetectOptions(stages=("nothing",)))


def test_an_interrupted_run_goes_on(tmp_path: Path) -> None:
    """After the clean images and those of one ε, before all of the noise."""
    given: dict[str, Any] = {"others": {"noise": noise_images(20, IMAGES.shape[1:], seed=0)}}
    given["options"] = DetectOptions(eps=(8 / 255,), batch_size=16)
    stop = CutOff(after=4)

    part = tmp_path / "part.npz"
    with pytest.raises(StopError):
        detect(MODEL, IMAGES, LABELS, classes=DATA.classes, **given, progress=stop, checkpoint=part)
    again: list[int] = []
    resumed = detect(MODEL, IMAGES, LABELS, classes=DATA.classes, **given, progress=again.append, checkpoint=part)
    assert (stop.told, again) == ([32, 32, 16, 16], [80, 16, 4]), (
        "of 40 clean images, each scored twice, and 20 of noise"
    )
    whole = detect(MODEL, IMAGES, LABELS, classes=DATA.classes, **given)
    for name in ("known", "other", "weights"):
        np.testing.assert_array_equal(getattr(resumed, name), getattr(whole, name))
    given["options"] = replace(given["options"], noise=0.0)
    again.clear()
    detect(MODEL, IMAGES, LABELS, classes=DATA.classes, **given, progress=again.append, checkpoint=part)
    assert again == [32, 32, 16, 16, 4], "what was kept is of other options"
