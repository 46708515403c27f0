"""The parts of faithfulness against closed forms in float64, captum, scipy and scikit-image."""

import itertools

import numpy as np
import pytest
import torch
from captum.metrics import infidelity as of_captum
from captum.metrics import infidelity_perturb_func_decorator
from scipy.integrate import trapezoid
from scipy.ndimage import gaussian_filter
from scipy.stats import spearmanr
from skimage.filters import sobel
from skimage.metrics import structural_similarity
from torch import Tensor, nn

from scs_eval.analyses.attribution.similarity import spearman, ssim
from scs_eval.analyses.faithfulness import infidelity as infidelity_module
from scs_eval.analyses.faithfulness import pixel_curves as curves_module
from scs_eval.analyses.faithfulness.controls import edge_map, random_map
from scs_eval.analyses.faithfulness.infidelity import infidelity
from scs_eval.analyses.faithfulness.pixel_curves import ORDERS, area, baseline_of, counts_of, pixel_curves, ranks_of
from scs_eval.analyses.faithfulness.randomisation import cascade, depths_of, randomise_
from scs_eval.analyses.plotting.map_columns import unit_scaled
from scs_eval.errors import InputError
from scs_eval.models.layers import SharpenedSDP2d
from scs_eval.models.zoo.registry import create_model

RNG = np.random.default_rng(0)


class Weighted(nn.Module):
    """Two logits, Σ w x + b and 0, so that the first one's probability is the logistic function of Σ w x + b."""

    def __init__(self, height: int, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.from_numpy(RNG.normal(size=(3, height, width))))

    def forward(self, images: Tensor) -> Tensor:
        first = (self.weight * images).sum((1, 2, 3)) + 0.3
        return torch.stack([first, torch.zeros_like(first)], 1)


def pictures(count: int, height: int, width: int) -> Tensor:
    return torch.from_numpy(RNG.uniform(0.05, 1, size=(count, 3, height, width)))


def logistic(value: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-value))


@pytest.mark.parametrize("baseline", ["black", "mean"])
def test_curves_of_a_linear_model_have_a_closed_form(baseline: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(curves_module, "versions_at_once", lambda _: 7)  # batches that end amid an image
    model, images = Weighted(4, 5), pictures(3, 4, 5)
    x, w = images.numpy(), model.weight.detach().numpy()
    base = np.zeros_like(x) if baseline == "black" else np.broadcast_to(x.mean((2, 3), keepdims=True), x.shape)
    ranks = ranks_of(torch.from_numpy((w * x).sum(1)), seed=0)
    counts = counts_of(20, 20)
    found = pixel_curves(
        model, images, torch.zeros(3, dtype=torch.long), ranks, baseline=baseline_of(images, baseline), counts=counts
    )
    for i in range(3):
        gain = (w * (x - base)[i]).sum(0).ravel()  # what a pixel adds to the logit over its baseline
        best_first = np.argsort(-(w * x[i]).sum(0).ravel())
        shown = np.concatenate([[0], np.cumsum(gain[best_first])])
        empty = (w * base[i]).sum() + 0.3
        np.testing.assert_allclose(found.insertion[i], logistic(empty + shown), rtol=1e-12)
        np.testing.assert_allclose(found.deletion[i], logistic(empty + shown[-1] - shown), rtol=1e-12)


def test_the_order_of_contributions_beats_every_other_order() -> None:
    model, image = Weighted(2, 3), pictures(1, 2, 3)
    orders = torch.tensor(list(itertools.permutations(range(6)))).view(-1, 2, 3)
    best = ranks_of((model.weight.detach() * image).sum(1), seed=0)
    ranks = torch.cat([best, orders])
    many, asked = image.expand(len(ranks), -1, -1, -1), torch.zeros(len(ranks), dtype=torch.long)
    counts = counts_of(6, 6)
    found = pixel_curves(model, many, asked, ranks, baseline=torch.zeros_like(many), counts=counts)
    fractions = counts.numpy() / 6
    deletion, insertion = (area(curve.numpy(), fractions) for curve in found)
    assert deletion[0] == deletion.min() < np.sort(deletion)[2]  # the best one is also among the 720
    assert insertion[0] == insertion.max() > np.sort(insertion)[-3]


def test_insertion_is_deletion_in_the_reverse_order_read_backwards() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 36, 3)).double()
    images, asked = pictures(2, 8, 8), torch.tensor([0, 2])
    ranks, counts = ranks_of(random_map(images, seed=1), seed=0), counts_of(64, 8)
    options = {"baseline": baseline_of(images, "blur"), "counts": counts}
    forth, back = (pixel_curves(model, images, asked, each, **options) for each in (ranks, 63 - ranks))
    torch.testing.assert_close(forth.insertion, back.deletion.flip(1))
    torch.testing.assert_close(forth.deletion[:, 0], model(images).softmax(1).gather(1, asked[:, None])[:, 0])


def test_orders_and_ties() -> None:
    maps = torch.tensor([[1.0, -5.0], [-2.0, 3.0]]).view(1, 2, 1, 2)  # two channels, two pixels
    assert ORDERS["signed"].function(maps).tolist() == [[[-1.0, -2.0]]]
    assert ORDERS["magnitude"].function(maps).tolist() == [[[2.0, 5.0]]]
    assert ranks_of(torch.tensor([[[0.2, 0.9], [0.5, -1.0]]]), seed=3).tolist() == [[[2, 0], [1, 3]]]
    blank = ranks_of(torch.zeros(1, 4, 4), seed=0).flatten()
    assert sorted(blank.tolist()) == list(range(16))
    assert blank.tolist() != list(range(16))  # not from the top left down
    assert blank.tolist() != ranks_of(torch.zeros(1, 4, 4), seed=1).flatten().tolist()


def test_steps() -> None:
    assert counts_of(10, 4).tolist() == [0, 2, 5, 8, 10]
    for steps in (0, -1, 11):
        with pytest.raises(InputError, match="from 1 to 10 steps"):
            counts_of(10, steps)


def test_area_is_scipys_trapezoids() -> None:
    curves, x = RNG.uniform(size=(2, 3, 6)), np.sort(RNG.uniform(size=6))
    np.testing.assert_allclose(area(curves, x), trapezoid(curves, x, axis=-1), rtol=1e-12)


def test_blurred_baseline_is_scipys() -> None:
    image = pictures(1, 16, 24)
    expected = [gaussian_filter(channel, 2.0, mode="mirror", truncate=3.0) for channel in image[0].numpy()]
    np.testing.assert_allclose(baseline_of(image, "blur")[0], expected, rtol=1e-6)  # torchvision's kernel is in fp32
    flat = baseline_of(image, "mean")
    np.testing.assert_allclose(flat[0, :, 3, 4], image[0].mean((1, 2)), rtol=1e-12)


def test_spearman_is_scipys_also_with_ties() -> None:
    first, second = RNG.normal(size=(4, 9, 9)), RNG.normal(size=(4, 9, 9))
    second[1] = np.maximum(second[1], 0)  # half of the pixels tie
    second[2] = -np.exp(first[2])
    second[3] = 1.0
    expected = [spearmanr(a.ravel(), b.ravel()).statistic for a, b in zip(first[:3], second[:3], strict=True)]
    found = spearman(first, second)
    np.testing.assert_allclose(found[:3], expected, rtol=1e-10)
    assert found[2] == pytest.approx(-1)
    assert np.isnan(found[3])
    assert np.isnan(spearman(first, np.full_like(first, np.nan))).all()


def test_ssim_is_scikit_images_of_what_is_drawn() -> None:
    first, second = RNG.uniform(size=(3, 12, 12)), RNG.uniform(size=(3, 12, 12))
    second[1], second[2] = 5 * first[1], 0
    found = ssim(first, second)
    expected = structural_similarity(unit_scaled(first[0]), unit_scaled(second[0]), data_range=1.0)
    assert found[0] == pytest.approx(expected, rel=1e-12)
    assert found[1] == pytest.approx(1)  # a map's scale is not drawn
    assert np.isnan(found[2])


def test_control_maps() -> None:
    images = pictures(2, 9, 9)
    grey = (images[1] * torch.tensor([0.2125, 0.7154, 0.0721], dtype=torch.float64)[:, None, None]).sum(0)
    np.testing.assert_allclose(edge_map(images)[1], sobel(grey.numpy()), rtol=1e-10)
    noise = random_map(images, seed=0)
    assert torch.equal(noise, random_map(images, seed=0))
    assert not torch.equal(noise, random_map(images, seed=1))
    assert not torch.equal(noise[0], noise[1])


def test_infidelity_of_a_linear_models_own_map_is_zero() -> None:
    model, images = Weighted(7, 7), pictures(3, 7, 7)
    asked, weight = torch.zeros(3, dtype=torch.long), model.weight.detach().expand(3, -1, -1, -1)
    zero = infidelity(model, images, asked, torch.zeros_like(images), gradient=False, scale=False)
    assert (zero > 1e-4).all()
    for maps, gradient in ((weight * images, False), (weight, True)):
        exact = infidelity(model, images, asked, maps, gradient=gradient, scale=False)
        assert (exact < 1e-20 * zero).all() or (exact < 1e-25).all()
        times = infidelity(model, images, asked, 7 * maps, gradient=gradient)
        assert (times < 1e-9 * zero).all()  # the best factor undoes the 7
        wrong = infidelity(model, images, asked, 7 * maps, gradient=gradient, scale=False)
        torch.testing.assert_close(wrong, 36 * zero)  # (7 − 1)² of the change
    mixed = infidelity(model, images, asked, weight, gradient=False, scale=False)
    assert (mixed > 0.01 * zero).all()  # a gradient is not a contribution


def test_infidelity_has_the_variance_that_theory_says() -> None:
    model, images = Weighted(7, 7), pictures(1, 7, 7)
    maps = torch.from_numpy(RNG.normal(size=(1, 3, 7, 7)))
    gap = (maps - model.weight.detach() * images).sum(1)
    found = infidelity(
        model, images, torch.zeros(1, dtype=torch.long), maps, gradient=False, scale=False, sigma=0.1, samples=20_000
    )
    # Var Σ m gap = σ² Σ gap²; the mean of 20,000 squares of a normal variable has a deviation of 1 %.
    assert found.item() == pytest.approx(0.01 * (gap**2).sum().item(), rel=0.05)


@pytest.mark.parametrize("scale", [False, True])
def test_infidelity_is_captums(scale: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(1)
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Tanh(), nn.Flatten(), nn.Linear(4 * 36, 3)).double()
    images, asked = pictures(2, 8, 8), torch.tensor([2, 0])
    maps = torch.from_numpy(RNG.normal(size=images.shape))
    shares = 0.1 * torch.randn(20, 1, 8, 8, generator=torch.Generator().manual_seed(5)).double()

    @infidelity_perturb_func_decorator(True)  # captum divides by the input itself
    def perturbed(repeated: Tensor, baselines: Tensor | None = None) -> Tensor:
        return repeated * (1 - shares.repeat(2, 1, 1, 1))

    expected = of_captum(
        model, perturbed, images, maps, torch.zeros_like(images), target=asked, n_perturb_samples=20, normalize=scale
    )
    options = {"gradient": False, "scale": scale, "sigma": 0.1, "samples": 20, "seed": 5}
    found = infidelity(model, images, asked, maps, **options)
    torch.testing.assert_close(found, expected.detach())
    monkeypatch.setattr(infidelity_module, "versions_at_once", lambda _: 6)  # several passes, the same noise
    torch.testing.assert_close(infidelity(model, images, asked, maps, **options), found)
    alone = infidelity(model, images[1:], asked[1:], maps[1:], **options)
    torch.testing.assert_close(alone, found[1:])


NETWORKS = ("rohrer25k_scs", "rohrer25k_ssdp", "resnet20_conv", "resnet20_bcos")


@pytest.mark.parametrize("name", NETWORKS)
def test_only_the_layers_above_are_new(name: str) -> None:
    model = create_model(name).eval()
    before = {key: value.clone() for key, value in model.state_dict().items()}
    image, state = torch.rand(1, 3, 32, 32, generator=torch.Generator().manual_seed(0)), torch.get_rng_state()
    depths = depths_of(model, image)
    assert not any(module._forward_pre_hooks for module in model.modules())
    new: set[str] = set()
    for depth, network in zip(depths, cascade(model, depths, seed=0), strict=True):
        modules = dict(network.named_modules())
        new |= {
            f"{module}.{key}".lstrip(".")
            for module in depth.modules
            for key, _ in modules[module].named_parameters(recurse=False)
        }
        parameters = dict(network.named_parameters())
        changed = {key for key, value in parameters.items() if (value != before[key]).any()}
        assert changed == new
        assert all((parameters[key] != before[key]).float().mean() > 0.95 for key in new)  # every value, bar chance
        assert network(image).isfinite().all()
    assert new == {key for key, _ in model.named_parameters()}
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())
    assert torch.equal(torch.get_rng_state(), state)


def test_head_first_and_norms_with_their_layer() -> None:
    image = torch.zeros(1, 3, 32, 32)
    names = [depth.name for depth in depths_of(create_model("rohrer100k_scs").eval(), image)]
    assert names == ["head", "stages.2.layer", "stages.1.layer", "stages.0.layer"]
    depths = depths_of(create_model("resnet20_conv").eval(), image)
    assert all(len(depth.modules) == 2 for depth in depths if depth.name not in ("head", "fc", "classifier"))
    assert len(depths) in (20, 22)  # with projections on the shortcuts


def test_cascade_depends_on_the_seed_alone() -> None:
    model = create_model("rohrer25k_scs").eval()
    depths = depths_of(model, torch.zeros(1, 3, 32, 32))

    def last(seed: int) -> dict[str, Tensor]:
        torch.rand(3)
        return list(cascade(model, depths, seed=seed))[-1].state_dict()

    one, same, other = last(0), last(0), last(1)
    assert all(torch.equal(value, same[key]) for key, value in one.items())
    assert not any(torch.equal(value, other[key]) for key, value in one.items())


def test_sharpened_layers_forget_exponents_and_q() -> None:
    model = create_model("rohrer100k_scs")
    layers = [module for module in model.modules() if isinstance(module, SharpenedSDP2d)]
    with torch.no_grad():
        for layer in layers:
            layer.p.fill_(7)
            layer.log_q.fill_(-1)  # type: ignore[operator]
    for layer in layers:
        randomise_(layer)
        assert 1 <= layer.p.min() < layer.p.max() <= 3
        assert 0 < abs(layer.log_q.item() - np.log(1e-3)) <= 0.5  # type: ignore[operator]


def test_norms_forget_scale_shift_and_statistics() -> None:
    norm = nn.BatchNorm2d(50)
    with torch.no_grad():
        norm.weight.fill_(9)
        norm.bias.fill_(-4)
        norm.running_mean.fill_(3)  # type: ignore[union-attr]
    randomise_(norm)
    assert 0.5 <= norm.weight.min() < norm.weight.max() <= 1.5
    assert -0.5 <= norm.bias.min() < norm.bias.max() <= 0.5
    assert not norm.running_mean.any()  # type: ignore[union-attr]


def test_parameters_without_an_initialisation_keep_mean_and_deviation() -> None:
    class Own(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.token = nn.Parameter(3 + 2 * torch.randn(5000, generator=torch.Generator().manual_seed(0)))

    own = Own()
    old = own.token.detach().clone()
    randomise_(own)
    assert own.token.mean().item() == pytest.approx(3, abs=0.15)
    assert own.token.std().item() == pytest.approx(2, abs=0.15)
    assert abs(np.corrcoef(old, own.token.detach())[0, 1]) < 0.1


def test_nothing_to_randomise() -> None:
    with pytest.raises(InputError, match="no parameters"):
        depths_of(nn.Flatten(), torch.zeros(1, 3, 8, 8))
