"""ROAD, SaCo, monotonicity, sparseness and complexity: against Quantus on the same maps, and slow float64 versions."""

from itertools import pairwise

import numpy as np
import pytest
import quantus
import torch
from quantus.functions.perturb_func import noisy_linear_imputation
from torch import Tensor, nn

from scs_eval.analyses.attribution.attribute import attribute
from scs_eval.analyses.attribution.metrics import entropy, gini
from scs_eval.analyses.attribution.similarity import spearman
from scs_eval.analyses.faithfulness import FaithfulnessOptions, faithfulness
from scs_eval.analyses.faithfulness.bench import Bench
from scs_eval.analyses.faithfulness.pixel_curves import counts_of, ranks_of, replacement_curve, rising_share
from scs_eval.analyses.faithfulness.randomisation import complexity_rise
from scs_eval.analyses.faithfulness.road import SHARES, imputed, road
from scs_eval.analyses.faithfulness.saco import coefficient, saco

GREY = torch.rand(6, 1, 12, 12, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
MAPS = torch.randn(6, 12, 12, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


class Grey(nn.Module):
    """Three classes of grey images (N, 1, H, W): so that a pixel is one feature, as Quantus counts them."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(4)
        self.layers = nn.Sequential(
            nn.Conv2d(1, 4, 3, padding=1), nn.Tanh(), nn.Flatten(), nn.Linear(576, 3)
        ).double()  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        return 4 * self.layers(x.double())


@pytest.fixture
def case() -> tuple[nn.Module, Tensor]:
    model = Grey().eval()
    with torch.no_grad():
        return model, model(GREY).argmax(1)


def arguments(model: nn.Module, targets: Tensor) -> dict[str, object]:
    """What Quantus asks for."""
    return {
        "model": model, "x_batch": GREY.numpy(), "y_batch": targets.numpy(), "a_batch": MAPS[:, None].numpy().copy(),
        "channel_first": True, "device": "cpu",
    }  # fmt: skip


FEW = FaithfulnessOptions(steps=4, samples=5)
OPTIONS = {"abs": False, "normalise": False, "disable_warnings": True}


def test_imputation_is_quantus() -> None:
    draw = np.random.default_rng(0)
    for share in (0.1, 0.5, 0.95):
        image, removed = draw.random((3, 9, 7)), draw.random((9, 7)) < share
        wanted = noisy_linear_imputation(image, np.flatnonzero(removed), noise=0.0)
        np.testing.assert_allclose(imputed(image, removed, noise=0.0, draw=draw), wanted, rtol=1e-9)  # two solvers
    np.testing.assert_array_equal(imputed(image, np.zeros((9, 7), dtype=bool), noise=1.0, draw=draw), image)


def test_imputed_pixels_are_the_means_of_their_neighbours_with_noise() -> None:
    draw, removed = np.random.default_rng(0), np.zeros((40, 40), dtype=bool)
    removed[1::2, 1::2] = True
    image = draw.random((3, 40, 40))
    plain, noisy = (imputed(image, removed, noise=noise, draw=draw) for noise in (0.0, 0.01))
    beside = image[:, 2, 3] + image[:, 4, 3] + image[:, 3, 2] + image[:, 3, 4]
    across = image[:, 2, 2] + image[:, 2, 4] + image[:, 4, 2] + image[:, 4, 4]
    np.testing.assert_allclose(plain[:, 3, 3], beside / 6 + across / 12)
    assert (noisy - plain)[:, removed].std() == pytest.approx(0.01, rel=0.1)  # 1,200 draws: 2 % standard error
    np.testing.assert_array_equal(noisy[:, ~removed], image[:, ~removed])


def test_road_is_quantus(case: tuple[nn.Module, Tensor]) -> None:
    model, targets = case
    percentages = [int(100 * share) for share in SHARES]
    metric = quantus.ROAD(percentages=percentages, noise=0.0, **OPTIONS)
    wanted = metric(**arguments(model, targets), softmax=False)
    found = road(model, GREY, targets, ranks_of(MAPS, seed=0), noise=0.0).double().mean(0)
    assert dict(zip(percentages, found.tolist(), strict=True)) == pytest.approx(wanted)
    assert 0 < found.mean() < 1  # else everything would agree


def put_back(arr: np.ndarray, indices: np.ndarray, **_: object) -> np.ndarray:
    """The image's own pixels. Quantus 0.6 puts the baseline on the baseline, so that its steps change nothing."""
    filled = arr.copy()
    np.put_along_axis(filled, indices, np.take_along_axis(GREY.flatten(1).numpy(), indices, 1), 1)
    return filled


def linear() -> nn.Module:
    """Every pixel speaks for the first class: more of them can only make it likelier."""
    network = Grey().eval()
    network.layers = nn.Sequential(nn.Flatten(), nn.Linear(144, 3, bias=False)).double()
    network.layers[1].weight.data = torch.stack([torch.linspace(0.01, 0.1, 144), *torch.zeros(2, 144)]).double()
    return network


def test_monotonicity_is_quantus(case: tuple[nn.Module, Tensor]) -> None:
    """Its own answer is whether every step rises."""
    shares = []
    for network, targets in (case, (linear(), torch.zeros(6, dtype=torch.long))):
        ranks = 143 - ranks_of(MAPS, seed=0)
        curve = replacement_curve(network, torch.zeros_like(GREY), GREY, targets, ranks, counts=counts_of(144, 18))
        metric = quantus.Monotonicity(features_in_step=8, perturb_func=put_back, perturb_baseline=0.0, **OPTIONS)
        shares.append(rising_share(curve.numpy()))
        assert (shares[-1] == 1).tolist() == metric(**arguments(network, targets), softmax=True)
        by_hand = [np.mean([b >= a for a, b in pairwise(row[1:])]) for row in curve.numpy()]
        np.testing.assert_allclose(shares[-1], by_hand)
    assert (shares[0] < 1).all()
    assert (shares[1] == 1).all()


@pytest.mark.parametrize(("side", "steps"), [(12, 18), (9, 2)])  # 81 pixels in halves: 40 and 41
def test_the_rising_curve_is_that_of_deletion_backwards(side: int, steps: int) -> None:
    images = torch.rand(3, 1, side, side, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    torch.manual_seed(3)
    model = nn.Sequential(nn.Flatten(), nn.Linear(side**2, 3).double())
    targets, maps = torch.tensor([0, 1, 2]), torch.randn(images.shape, dtype=torch.float64)
    options = FaithfulnessOptions(steps=steps)
    bench = Bench(model=model, images=images, targets=targets, options=options, shown=1, kept=1, start=0, seed=0)
    pixels = side**2
    last_first = pixels - 1 - ranks_of(maps.sum(1), seed=0)
    counts = counts_of(pixels, steps)
    wanted = replacement_curve(model, torch.zeros_like(images), images, targets, last_first, counts=counts)
    found = bench.rising(bench.curves(maps).deletion, ranks_of(maps.sum(1), seed=0))
    np.testing.assert_allclose(found, wanted, rtol=1e-12)  # float64; other images beside it in a batch


def test_sparseness_and_complexity_are_quantus(case: tuple[nn.Module, Tensor]) -> None:
    model, targets = case
    given = arguments(model, targets) | {"a_batch": MAPS.abs()[:, None].numpy().copy()}
    sparse = quantus.Sparseness(**OPTIONS)(**given)
    np.testing.assert_allclose(gini(MAPS.abs().numpy()), sparse, rtol=1e-5)  # Quantus adds 1e-7 to every pixel
    given = arguments(model, targets) | {"a_batch": MAPS.abs()[:, None].numpy().copy()}
    complex_ = quantus.Complexity(**OPTIONS)(**given)
    np.testing.assert_allclose(entropy(MAPS.abs().numpy()) * np.log(144), complex_, rtol=1e-8)  # and 1e-12 in the log


def test_saco_by_the_papers_algorithm(case: tuple[nn.Module, Tensor]) -> None:
    """Algorithm 1 of Wu et al. 2024, step by step."""
    model, targets = case
    found = saco(model, GREY, targets, MAPS, ranks_of(MAPS, seed=0), groups=9)
    for number in range(6):
        image, salience = GREY[number].clone(), MAPS[number].flatten()
        order = salience.argsort(descending=True)
        parts, sums = [], []
        with torch.no_grad():
            before = model(image[None]).softmax(1)[0, targets[number]]
            for group in order.split(16):
                without = image.clone().view(1, -1)
                without[:, group] = image.mean()
                parts.append((before - model(without.view(1, 1, 12, 12)).softmax(1)[0, targets[number]]).item())
                sums.append(salience[group].sum().item())
        score = total = 0.0
        for i in range(8):
            for j in range(i + 1, 9):
                weight = sums[i] - sums[j] if parts[i] >= parts[j] else -(sums[i] - sums[j])
                score, total = score + weight, total + abs(weight)
        assert found[number] == pytest.approx(score / total, rel=1e-9)


def test_saco_at_its_ends() -> None:
    salience, falls = np.array([[3.0, 2, 1]]), np.array([[0.5, 0.3, 0.1]])
    assert coefficient(salience, falls) == 1
    assert coefficient(salience, falls[:, ::-1]) == -1
    assert np.isnan(coefficient(np.ones((1, 3)), falls))


def test_efficient_parameter_randomisation_is_quantus(case: tuple[nn.Module, Tensor]) -> None:
    """On the same maps of the same two networks, which Quantus asks of us in turn."""
    model, targets = case
    forgotten = torch.randn(6, 12, 12, generator=torch.Generator().manual_seed(2), dtype=torch.float64) ** 3
    asked = iter([MAPS[:, None].numpy(), forgotten[:, None].numpy()])
    metric = quantus.EfficientMPRT(**OPTIONS, complexity_func_kwargs={"n_bins": 100})
    wanted = metric(**arguments(model, targets), softmax=True, explain_func=lambda **_: next(asked))
    found = complexity_rise(MAPS.numpy(), forgotten.numpy())
    np.testing.assert_allclose(found, wanted, rtol=1e-9)
    assert np.abs(found).min() > 0.1
    assert np.isnan(complexity_rise(np.ones((1, 4, 4)), np.eye(4)[None]))  # an even map has no histogram to rise from
    assert np.isnan(complexity_rise(np.eye(4)[None], np.full((1, 4, 4), np.nan)))


def test_the_untrained_control_is_of_a_network_that_learned_nothing() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(256, 4)).eval()
    images = torch.rand(5, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    targets = model(images).argmax(1)
    settings = {"classes": list("abcd"), "methods": "ixg", "options": FEW}
    result = faithfulness(model, images, targets, **settings)
    untrained = result.maps[result.methods.index("untrained")]
    assert np.abs(spearman(untrained, result.maps[0])).mean() < 0.5
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(3).add_(0.1)  # what was learned is another thing: the control does not know
    np.testing.assert_allclose(
        faithfulness(model, images, targets, **settings).maps[-1], untrained, rtol=1e-5, atol=1e-7
    )


def test_a_network_without_a_gradient_has_no_untrained_control() -> None:
    class Steps(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.head = nn.Linear(192, 4)

        def forward(self, x: Tensor) -> Tensor:
            return self.head(x.flatten(1)).detach()

    images = torch.rand(3, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    result = faithfulness(Steps(), images, classes=list("abcd"), methods="occlusion", options=FEW)
    assert result.methods == ("occlusion", "random", "edges")
    assert "not differentiable" in result.left_out["untrained"]


def test_the_result_has_them_all() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(256, 4)).eval()
    images = torch.rand(5, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    result = faithfulness(model, images, classes=list("abcd"), methods="grad", options=FEW)
    table = result.more_table()
    assert set(table["metric"]) == {"road", "saco", "monotonicity", "emprt", "sparseness", "complexity"}
    assert set(table["method"]) == {"grad", "random", "edges", "untrained"}
    assert "metrics" in result.tables()
    assert {"ROAD ↓", "SaCo ↑"} <= set(result.summary())
    maps = attribute(model, images, torch.from_numpy(result.targets), method="grad").sum(1).abs().numpy()
    row = table[(table["method"] == "grad") & (table["metric"] == "sparseness")].iloc[0]
    assert row["mean"] == pytest.approx(gini(maps).mean(), rel=1e-5)  # maps are kept in fp32
    names = ("road", "saco", "monotonicity", "emprt", "sparseness", "complexity")
    assert set(names) <= set(result.tables()["images"])
