"""Attribution methods against captum called directly, against hand-computed cases, and what they leave behind."""

import numpy as np
import pytest
import torch
from captum import attr
from skimage.segmentation import quickshift
from torch import Tensor, nn

from scs_eval.analyses.attribution.attribute import attribute
from scs_eval.analyses.attribution.cam import last_convolution
from scs_eval.analyses.attribution.methods import METHODS
from scs_eval.analyses.attribution.perturbation import ridge, rise_masks, superpixels
from scs_eval.errors import InputError, NotApplicableError
from scs_eval.models.explain.decomposition import decompose
from scs_eval.models.zoo.registry import create_model


def tiny() -> nn.Sequential:
    torch.manual_seed(0)
    first, second = nn.Conv2d(3, 4, 3, padding=1), nn.Conv2d(4, 6, 3, padding=1)
    return nn.Sequential(
        first, nn.ReLU(), nn.MaxPool2d(2), second, nn.ReLU(inplace=True), nn.Flatten(), nn.Linear(96, 5)
    )


IMAGES = torch.rand(3, 3, 8, 8, generator=torch.Generator().manual_seed(3))
TARGETS = torch.tensor([4, 0, 2])


def not_in_place() -> nn.Sequential:
    model = tiny().eval()
    model[4] = nn.ReLU()
    return model


def direct(method: str, model: nn.Sequential) -> Tensor:
    """What captum says when called by hand."""
    if method == "grad":
        return attr.Saliency(model).attribute(IMAGES, target=TARGETS, abs=False)
    if method == "ixg":
        return attr.InputXGradient(model).attribute(IMAGES, target=TARGETS)
    if method == "intgrad":
        return attr.IntegratedGradients(model).attribute(IMAGES, target=TARGETS, n_steps=50)
    if method == "guided-backprop":
        return attr.GuidedBackprop(model).attribute(IMAGES, target=TARGETS)
    if method == "deeplift":
        return attr.DeepLift(model).attribute(IMAGES, torch.zeros_like(IMAGES), target=TARGETS)
    if method == "gradcam":
        coarse = attr.LayerGradCam(model, model[3]).attribute(IMAGES, target=TARGETS, relu_attributions=True)
        return nn.functional.interpolate(coarse, (8, 8), mode="bilinear").expand(-1, 3, -1, -1)
    assert method == "occlusion"
    return attr.Occlusion(model).attribute(
        IMAGES, target=TARGETS, sliding_window_shapes=(3, 1, 1), strides=(3, 1, 1)
    )  # fmt: skip


@pytest.mark.parametrize("method", ["grad", "ixg", "intgrad", "guided-backprop", "deeplift", "gradcam", "occlusion"])
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_is_what_captum_says(method: str) -> None:
    found = attribute(tiny(), IMAGES, TARGETS, method=method)
    assert found.abs().max() > 0
    torch.testing.assert_close(found, direct(method, not_in_place()).detach(), rtol=1e-4, atol=1e-6)  # fp32


def test_gradient_of_a_sharpened_network() -> None:
    model = create_model("rohrer25k_scs").eval()
    images = torch.rand(2, 3, 32, 32, generator=torch.Generator().manual_seed(0)).requires_grad_()
    expected = torch.autograd.grad(model(images)[[0, 1], [3, 7]].sum(), images)[0]
    torch.testing.assert_close(attribute(model, images.detach(), torch.tensor([3, 7])), expected)


def test_smoothgrad_is_the_mean_gradient_of_noisy_copies() -> None:
    model = not_in_place()
    torch.manual_seed(7)
    noisy = (IMAGES[:1].repeat(25, 1, 1, 1) + 0.15 * torch.randn(25, 3, 8, 8)).requires_grad_()
    expected = torch.autograd.grad(model(noisy)[:, 4].sum(), noisy)[0].mean(0)
    found = attribute(model, IMAGES[:1], TARGETS[:1], method="smoothgrad", seed=7)[0]
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-6)  # fp32, another order of sums


def test_wx_keeps_the_sum_of_a_pixel() -> None:
    model = create_model("rohrer25k_bcos").eval()
    images, targets = torch.rand(2, 3, 32, 32, generator=torch.Generator().manual_seed(0)), torch.tensor([1, 2])
    found, parts = attribute(model, images, targets, method="wx"), decompose(model, images, targets)
    assert found.shape == images.shape
    assert parts.weights.shape[1] == 6
    torch.testing.assert_close(found.sum(1), parts.contributions.sum(1))
    torch.testing.assert_close(found.sum((1, 2, 3)) + parts.bias, model(images).detach()[[0, 1], targets])


class Pooled(nn.Module):
    """A 1×1 convolution a = K x at every place, summed over the places, and a linear head V: the gradient of a is V."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 2, 1, bias=False)
        self.head = nn.Linear(2, 5)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.conv(x).sum((2, 3)))


def test_normgrad_by_hand() -> None:
    torch.manual_seed(0)
    model, images = Pooled().double(), IMAGES.double()
    kernel = model.conv.weight.detach().numpy()[:, :, 0, 0]
    response = np.einsum("kc,nchw->nkhw", kernel, images.numpy())
    slope = np.linalg.norm(model.head.weight.detach().numpy()[TARGETS], axis=1)
    expected = np.sqrt((response**2).sum(1)) * slope[:, None, None]
    found = attribute(model, images, TARGETS, method="normgrad")
    np.testing.assert_allclose(found[:, 0].numpy(), expected, rtol=1e-12)
    assert torch.equal(found[:, 0], found[:, 2])


def test_rise_is_the_weighted_mean_of_its_masks() -> None:
    model = not_in_place()
    masks = rise_masks(IMAGES.shape[2:], 2)
    assert masks.shape == (1000, 1, 8, 8)
    assert 0.45 < masks.mean() < 0.55  # 64,000 tosses or so: the standard error is below 0.01
    with torch.no_grad():
        scores = model(IMAGES[1] * masks).softmax(1)[:, 0]
    expected = sum((score - scores.mean()) * mask for score, mask in zip(scores, masks, strict=True)) / 500
    found = attribute(model, IMAGES, TARGETS, method="rise", seed=2)[1]
    torch.testing.assert_close(found, expected.expand(3, -1, -1), rtol=1e-4, atol=1e-6)  # fp32 sums of 1000


def test_ridge_solves_the_normal_equations() -> None:
    draw = np.random.default_rng(0)
    shown, answers = draw.integers(0, 2, (40, 5)).astype(float), draw.random(40)
    length = np.sqrt(shown.sum(1))
    cosine = np.divide(shown.sum(1), length * np.sqrt(5), where=length > 0, out=np.zeros(40))
    weight = np.diag(np.exp(-((1 - cosine) ** 2) / 0.25**2) ** 0.5)
    design = np.column_stack([np.ones(40), shown])
    penalty = np.diag([0, 1, 1, 1, 1, 1])  # the intercept is free
    expected = np.linalg.solve(design.T @ weight @ design + penalty, design.T @ weight @ answers)[1:]
    np.testing.assert_allclose(ridge(torch.tensor(shown), torch.tensor(answers)).numpy(), expected, rtol=1e-9)


class LeftHalf(nn.Module):
    """Two classes: is the left half bright?"""

    def forward(self, x: Tensor) -> Tensor:
        left = x[..., : x.shape[-1] // 2].mean((1, 2, 3))
        return torch.stack([left, 1 - left], 1) * 8


@pytest.mark.parametrize("method", ["lime", "rise", "occlusion"])
def test_hiding_finds_what_matters(method: str) -> None:
    image = torch.rand(1, 3, 32, 32, generator=torch.Generator().manual_seed(0)) / 4
    image[:, :, 8:24, 4:12] += 0.75  # superpixels whose colour is not the mean of the image
    found = attribute(LeftHalf(), image, torch.tensor([0]), method=method)[0, 0]
    if method != "lime":
        assert found[:, :12].mean() > found[:, 20:].mean()
        return
    segments = superpixels(image[0])
    assert segments.max() >= 5
    for number in segments.unique():  # one value per superpixel
        assert found[segments == number].unique().numel() == 1


def test_superpixels_are_quickshifts_where_there_are_enough() -> None:
    coarse = torch.rand(3, 12, 12, generator=torch.Generator().manual_seed(0))
    large = coarse.repeat_interleave(8, 1).repeat_interleave(8, 2)
    expected = quickshift(large.permute(1, 2, 0).numpy(), kernel_size=4, max_dist=200, ratio=0.2, rng=42)
    found = superpixels(large)
    assert found.max() >= 9
    pairs = set(zip(found.flatten().tolist(), expected.flatten().tolist(), strict=True))
    assert len(pairs) == found.max() + 1 == len(np.unique(expected))  # the same pieces, by whatever numbers
    assert superpixels(torch.full((3, 32, 32), 0.5)).max() >= 9  # of one colour: SLIC's


@pytest.mark.parametrize("method", ["smoothgrad", "lime", "rise"])
def test_neighbours_and_runs_do_not_matter(method: str) -> None:
    both = attribute(tiny(), IMAGES, TARGETS, method=method)
    alone = attribute(tiny(), IMAGES[1:2], TARGETS[1:2], method=method)
    torch.testing.assert_close(both[1:2], alone, rtol=1e-4, atol=1e-6)  # fp32, other batch sizes


def state(model: nn.Module) -> list[object]:
    hooks = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
    modules = [
        (module.training, sorted(vars(module)), [len(getattr(module, hook)) for hook in hooks])
        for module in model.modules()
    ]
    parameters = [(p.requires_grad, p.grad is None or p.grad.sum().item(), p.sum().item()) for p in model.parameters()]
    return [modules, parameters, torch.get_rng_state().tolist(), torch.is_grad_enabled()]


@pytest.mark.parametrize(
    "method", [name for name, method in METHODS.items() if "attention" not in method.needs]
)  # test_rollout.py has those
@pytest.mark.parametrize("fails", [False, True])
def test_model_comes_out_untouched(method: str, fails: bool) -> None:
    model = tiny().train()
    model[3].eval()
    model[0].weight.requires_grad_(False)
    model[6].bias.grad = torch.ones(5)
    calls = []

    def break_later(_module: nn.Module, _inputs: object) -> None:
        calls.append(1)
        if fails and len(calls) > 1:
            raise KeyError("broken on the way")

    model[5].register_forward_pre_hook(break_later)
    before, images = state(model), IMAGES.clone()
    if fails:
        with pytest.raises(KeyError):
            attribute(model, images, TARGETS, method=method)
    else:
        assert attribute(model, images, TARGETS, method=method).shape == IMAGES.shape
    assert state(model) == before
    assert torch.equal(images, IMAGES)
    assert not images.requires_grad


class Reused(nn.Module):
    """One ReLU module in two places."""

    def __init__(self) -> None:
        super().__init__()
        self.relu, self.one, self.two = nn.ReLU(), nn.Linear(192, 8), nn.Linear(8, 5)

    def forward(self, x: Tensor) -> Tensor:
        return self.relu(self.two(self.relu(self.one(x.flatten(1)))))


def bent() -> nn.Module:
    """Not linear in any sense; seeded, since one in thirty such networks is nearly linear on these images."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(192, 8), nn.GELU(), nn.Linear(8, 5))


class Steps(nn.Module):
    """Not differentiable."""

    def forward(self, x: Tensor) -> Tensor:
        return (x > 0.5).float().mean((2, 3))


@pytest.mark.parametrize(
    ("model", "method", "why"),
    [
        (nn.Sequential(nn.Flatten(), nn.Linear(192, 5)), "gradcam", "needs a convolution"),
        (nn.Sequential(nn.Flatten(), nn.Linear(192, 5)), "normgrad", "needs a convolution"),
        (nn.Sequential(nn.Flatten(), nn.Linear(192, 5)), "guided-backprop", "needs ReLU modules"),
        (Reused(), "deeplift", "deeplift cannot follow"),
        (nn.Sequential(nn.Flatten(), nn.Linear(192, 8), nn.Hardswish(), nn.Linear(8, 5)), "deeplift", "misses f"),
        (bent(), "wx", "dynamic-linear"),
        (nn.Sequential(Steps(), nn.Flatten(), nn.Linear(3, 5)).requires_grad_(False), "grad", "not differentiable"),
        (tiny(), "rollout", "attention"),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_says_why_not(model: nn.Module, method: str, why: str) -> None:
    with pytest.raises(NotApplicableError, match=why):
        attribute(model, IMAGES, TARGETS, method=method)


@pytest.mark.parametrize(
    ("name", "method", "why"),
    [
        ("rohrer25k_scs", "guided-backprop", "has none"),
        ("rohrer25k_scs_relu", "guided-backprop", "part of SCS2d"),
        ("rohrer25k_scs", "deeplift", "no rule for SCS2d"),
        ("rohrer25k_conv_maxabspool", "deeplift", "no rule for MaxAbsPool2d"),
    ],
)
def test_sharpened_networks_are_not_for_everything(name: str, method: str, why: str) -> None:
    image = torch.rand(1, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    with pytest.raises(NotApplicableError, match=why):
        attribute(create_model(name), image, torch.tensor([0]), method=method)


@pytest.mark.parametrize(
    ("images", "targets", "method", "message"),
    [
        (IMAGES, TARGETS, "gradd", "did you mean grad"),
        (IMAGES * float("nan"), TARGETS, "grad", r"expected images in \[0, 1\]"),
        (IMAGES[:, :, :6], TARGETS, "grad", "cannot take images of 3×6×8"),
        (IMAGES, TARGETS + 1, "grad", "targets from 0 to 4"),
        (IMAGES, TARGETS[:2], "grad", "expected 3 targets"),
        (IMAGES, TARGETS.float(), "grad", "whole numbers"),
    ],
)
def test_bad_input(images: Tensor, targets: Tensor, method: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        attribute(tiny(), images, targets, method=method)


def test_a_convolution_that_classifies_is_not_the_last_one() -> None:
    model = create_model("bcos_cnn9_w=0.125").eval()
    found = last_convolution(model, torch.rand(1, 3, 32, 32), method="gradcam")
    assert found is model.layers[-1]
