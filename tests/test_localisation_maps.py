"""Maps of several classes at once, through windows and of disconnected cells: against captum, autograd and `bcos`."""

from functools import partial

import numpy as np
import pytest
import torch
from bcos.models import resnet as published
from bcos.models.vit import Attention as PublishedAttention
from bcos.modules import BcosConv2d as PublishedConv
from bcos.modules import norms
from captum import attr
from torch import Tensor, nn

from scs_eval.analyses import many_classes, perturbation
from scs_eval.analyses.attribution import attribute
from scs_eval.analyses.disconnected import disconnect, disconnected_maps, tiles, untiled
from scs_eval.analyses.game_grids import Grids, compose, published_grids
from scs_eval.analyses.layer_maps import UnsuitableError
from scs_eval.analyses.localisation import LOOKS, localisation
from scs_eval.analyses.many_classes import pixel_maps
from scs_eval.analyses.perturbation import window
from scs_eval.analyses.windows import Windows, has_attention, takes
from scs_eval.errors import InputError
from scs_eval.models.decomposition import decompose
from scs_eval.models.registry import create_model

GRIDS = torch.rand(2, 3, 16, 16, generator=torch.Generator().manual_seed(5))
TARGETS = torch.tensor([[0, 3, 2, 4], [1, 0, 4, 3]])


def convolutional() -> nn.Sequential:
    """Takes any size; five classes."""
    torch.manual_seed(1)
    layers = nn.Conv2d(3, 6, 3, padding=1), nn.ReLU(), nn.Conv2d(6, 8, 3, padding=1), nn.ReLU(inplace=True)
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 5)).eval()


def flat() -> nn.Sequential:
    """Takes 8×8 only."""
    torch.manual_seed(2)
    return nn.Sequential(
        nn.Conv2d(3, 4, 3, padding=1), nn.Tanh(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(64, 5)
    ).eval()


def count_passes(model: nn.Module) -> list[int]:
    """How many images each forward pass had."""
    seen: list[int] = []
    model.register_forward_pre_hook(lambda _m, inputs: seen.append(len(inputs[0])))
    return seen


CAPTUMS = ["grad", "ixg", "intgrad", "gradcam", "guided-backprop", "deeplift", "smoothgrad"]


@pytest.mark.parametrize("method", [*CAPTUMS, "occlusion", "lime", "rise"])
def test_several_classes_are_one_after_another(method: str) -> None:
    found = pixel_maps(convolutional(), GRIDS, TARGETS, method=method)
    rounding = 1e-3 if method == "rise" else 2e-6  # fp32, sums in another order; RISE's masks all but cancel
    for k in range(4):
        one = attribute(convolutional(), GRIDS, TARGETS[:, k], method=method).sum(1)  # class by class
        assert (found[:, k] - one).abs().max() <= rounding * one.abs().max()


def test_occlusion_of_several_classes_is_captums() -> None:
    """On 16 pixels the last squares of three end at the edge; on 27 those of four, every two pixels, are cut there."""
    for extent in (16, 27):
        image = torch.rand(1, 3, extent, extent, generator=torch.Generator().manual_seed(extent))
        found = pixel_maps(convolutional(), image, TARGETS[:1], method="occlusion")
        side = window(image)
        shapes = {"sliding_window_shapes": (3, side, side), "strides": (3, side // 2, side // 2)}
        for k in range(4):
            one = attr.Occlusion(convolutional()).attribute(image, target=int(TARGETS[0, k]), **shapes).sum(1)
            assert (found[:, k] - one).abs().max() <= 1e-4 * one.abs().max()  # differences of logits in fp32


def test_contributions_of_several_classes() -> None:
    model = create_model("resnet20_scs").eval()
    found = pixel_maps(model, GRIDS, TARGETS, method="wx")
    for k in range(4):
        one = decompose(model, GRIDS, TARGETS[:, k]).contributions.sum(1)
        assert (found[:, k] - one).abs().max() <= 1e-5 * one.abs().max()


@pytest.mark.parametrize(
    ("method", "passes"),
    [
        ("grad", [2]),
        ("ixg", [2]),
        ("wx", [2]),
        ("intgrad", [2] * 50),
        ("smoothgrad", [2] * 25),
        ("lime", [500, 500]),  # versions of the first image, then of the second, whatever the number of classes
        ("rise", [500] * 4),
        ("occlusion", [1, 196, 1, 196]),
    ],
)
def test_classes_share_a_forward_pass(method: str, passes: list[int]) -> None:
    model = convolutional()
    seen = count_passes(model)
    pixel_maps(model, GRIDS, TARGETS, method=method)
    assert seen == passes


def test_large_images_are_hidden_a_few_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(perturbation, "PIXELS_ON_CPU", 100 * 16 * 16)
    model = convolutional()
    seen = count_passes(model)
    found = pixel_maps(model, GRIDS[:1], TARGETS[:1], method="lime")
    assert seen == [100] * 5
    monkeypatch.undo()
    torch.testing.assert_close(found, pixel_maps(model, GRIDS[:1], TARGETS[:1], method="lime"), rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize("method", ["gradcam", "guided-backprop", "deeplift"])
def test_other_methods_get_all_classes_in_one_batch(method: str) -> None:
    model = convolutional()
    seen: list[int] = []
    model[0].forward = lambda x, own=model[0].forward: (seen.append(len(x)), own(x))[1]  # also in captum's copies
    pixel_maps(model, GRIDS, TARGETS, method=method)
    assert max(seen) == (16 if method == "deeplift" else 8)  # DeepLIFT's baselines are in the same batch
    assert sorted(seen)[-2] <= 8


@pytest.mark.parametrize("largest", [1, 3])
def test_classes_of_one_grid_are_halved_when_memory_runs_out(largest: int) -> None:
    model = convolutional()
    wanted = pixel_maps(model, GRIDS[:1], TARGETS[:1], method="gradcam")

    def full(_module: nn.Module, inputs: tuple[Tensor]) -> None:
        if len(inputs[0]) > largest:
            raise torch.OutOfMemoryError("no room")

    model.register_forward_pre_hook(full)
    torch.testing.assert_close(pixel_maps(model, GRIDS[:1], TARGETS[:1], method="gradcam"), wanted)
    with pytest.raises(torch.OutOfMemoryError):
        pixel_maps(model, GRIDS, TARGETS, method="gradcam")  # two grids: the caller takes fewer


@pytest.mark.parametrize("where", ["whole", "windows", "difull", "dipart"])
@pytest.mark.parametrize(
    "method", ["grad", "wx", "intgrad", "smoothgrad", "gradcam", "normgrad", "deeplift", "occlusion", "lime", "rise"]
)
def test_games_go_on_when_memory_holds_one_image(method: str, where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """For the sake of time with few versions of an image; with superpixels of one pixel LIME would find nothing."""
    for name, value in (("RISE_MASKS", 20), ("LIME_SAMPLES", 20), ("FEWEST", 65), ("SEGMENTS", 4)):
        monkeypatch.setattr(perturbation, name, value)
    given = {"look": where} if where in LOOKS else {"setting": where}
    images, labels = tiles(GRIDS, 2), torch.tensor([0, 1, 2, 3, 4, 0, 1, 2])
    grids = Grids(
        side=2, indices=np.array([[0, 1, 2, 3], [4, 5, 6, 7]]), targets=labels.view(2, 4).numpy(), asked=2, pool=8,
        usable=8,
    )  # fmt: skip

    def scores(model: nn.Module) -> np.ndarray:
        return localisation(model, images, labels, grids, classes="abcde", method=method, smooth=1, **given).scores

    model, wanted = convolutional(), scores(convolutional())
    least = 2 if method == "deeplift" else 1  # with the baseline

    def full(_module: nn.Module, inputs: tuple[Tensor]) -> None:
        if len(inputs[0]) > least:
            raise torch.OutOfMemoryError("no room")

    model[0].register_forward_pre_hook(full)
    np.testing.assert_allclose(scores(model), wanted, rtol=1e-3, atol=1e-3)  # fp32, other batches: RISE all but cancels


def test_rollout_is_one_pass_for_all_classes() -> None:
    model = create_model("vit_ti_conv", num_classes=5).eval()
    seen = count_passes(model)
    found = pixel_maps(model, torch.rand(1, 3, 224, 224), TARGETS[:1], method="rollout")
    assert found.shape == (1, 4, 224, 224)
    assert set(seen) == {1}
    assert torch.equal(found[:, 0], found[:, 3])


def twins() -> tuple[nn.Module, nn.Module]:
    """The published ResNet-20 with awake norms, and ours with its weights."""
    torch.manual_seed(3)
    conv = partial(PublishedConv, b=2, max_out=2)
    norm = norms.NoBias(norms.BatchNormUncentered2d)
    theirs = published.cifar10_resnet20(norm_layer=norm, conv_layer=conv, logit_bias=-2.1972245773362196)
    for module in theirs.modules():
        if hasattr(module, "momentum"):
            module.momentum = 1.0
    x = torch.rand(16, 3, 16, 16)
    theirs.train()(torch.cat([x, 1 - x], 1))
    ours = create_model("resnet20_bcos")
    ours.load_state_dict(theirs.state_dict(), strict=True)
    return theirs.eval(), ours.eval()


def published_map(model: nn.Module, grid: Tensor, target: int, method: str) -> Tensor:
    """The map (H, W) that captum gives for the published network, which is handed the six channels."""
    six = torch.cat([grid, 1 - grid], 1).requires_grad_()
    if method == "gradcam":
        with torch.no_grad():
            features = model.get_feature_extractor()(six)
        logits = model.get_classifier()(features.requires_grad_()).mean((2, 3))
        weights = torch.autograd.grad(logits[0, target], features)[0].sum((2, 3), keepdim=True)
        coarse = (weights * features).sum(1, keepdim=True).relu().detach()
        return attr.LayerGradCam.interpolate(coarse, grid.shape[2:], interpolate_mode="nearest")[0, 0]
    if method == "wx":
        with model.explanation_mode():
            return attr.InputXGradient(model).attribute(six, target=target)[0].sum(0).detach()
    if method == "grad":
        return attr.Saliency(model).attribute(six, target=target, abs=False)[0].sum(0)
    if method == "ixg":
        return attr.InputXGradient(model).attribute(six, target=target)[0].sum(0).detach()
    return attr.IntegratedGradients(model).attribute(six, target=target, n_steps=5)[0].sum(0).detach()


@pytest.mark.parametrize("method", ["wx", "grad", "ixg", "intgrad", "gradcam"])
def test_scores_of_the_published_network(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """`--protocol bcos-v2` on the published network's weights: its grids, its maps, the score by its definition."""
    monkeypatch.setattr(many_classes, "INTGRAD_STEPS", 5)  # captum's, too, for the sake of time
    theirs, ours = twins()
    images = torch.rand(30, 3, 8, 8, generator=torch.Generator().manual_seed(4))
    with torch.no_grad():
        logits = theirs(torch.cat([images, 1 - images], 1))
    labels = torch.arange(30) % 10
    sure = logits + 10 * nn.functional.one_hot(labels, 10)  # an untrained network is right of nothing
    grids = published_grids(sure, labels, torch.arange(30), side=2, count=1)
    found = localisation(
        ours, images, labels, grids, classes=list("abcdefghij"), method=method, protocol="bcos-v2", smooth=3
    )
    assert found.seen == "whole grid"
    grid = compose(images, torch.from_numpy(grids.indices), side=2)
    for cell, target in enumerate(grids.targets[0].tolist()):
        one = published_map(theirs, grid, target, method)
        positive = nn.functional.avg_pool2d(one[None, None], 3, 1, 1).clamp(min=0)[0, 0]
        row, column = divmod(cell, 2)
        own = positive[8 * row : 8 * row + 8, 8 * column : 8 * column + 8].sum()
        assert found.scores[0, cell] == pytest.approx((own / positive.sum()).item(), rel=1e-3)  # fp32 through 20 layers


def test_gradients_of_the_encoding_differ_from_those_of_the_image() -> None:
    model = twins()[1]
    image, target = torch.rand(1, 3, 16, 16), torch.tensor([[0, 1]])
    three, six = (pixel_maps(model, image, target, method="ixg", encoded=encoded) for encoded in (False, True))
    assert (three - six).abs().max() > 0.1 * six.abs().max()
    assert (
        three[:, 0] - attribute(model, image, target[:, 0], method="ixg").sum(1)
    ).abs().max() <= 1e-4 * three.abs().max()


def test_windows_are_one_network() -> None:
    """The sum of the windows' gradients is the gradient of the sum of the windows' logits."""
    model, windows = flat(), Windows(8, 4)
    found = windows.maps(lambda x, y: pixel_maps(model, x, y, method="grad"), GRIDS, TARGETS)
    for k in range(4):
        grids = GRIDS.clone().requires_grad_()
        total = sum(
            model(grids[:, :, top : top + 8, left : left + 8]).gather(1, TARGETS[:, k, None]).sum()
            for top in (0, 4, 8)
            for left in (0, 4, 8)
        )
        (wanted,) = torch.autograd.grad(total, grids)
        assert (found[:, k] - wanted.sum(1)).abs().max() <= 1e-6 * wanted.abs().max()


def test_windows_straddle_cells() -> None:
    assert Windows(8, 4).corners(16) == [(0, 0), (0, 4), (0, 8), (4, 0), (4, 4), (4, 8), (8, 0), (8, 4), (8, 8)]
    assert len(Windows(224, 112).corners(448)) == 9  # the paper's, for ViTs on 2×2 grids
    for stride in (3, 0, 16):
        with pytest.raises(InputError, match="stride that divides the window of 8"):
            Windows(8, stride)


def test_who_can_take_a_grid() -> None:
    assert takes(convolutional(), GRIDS[:1], classes=5)
    assert not takes(convolutional(), GRIDS[:1], classes=6)
    assert not takes(flat(), GRIDS[:1], classes=5)
    assert not takes(create_model("rohrer100k_scs"), torch.rand(1, 3, 64, 64), classes=10)
    assert takes(create_model("resnet20_scs"), torch.rand(1, 3, 64, 64), classes=10)

    class Full(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            raise torch.OutOfMemoryError("no room")

    with pytest.raises(torch.OutOfMemoryError):
        takes(Full(), GRIDS[:1], classes=5)


def test_attention_looks_through_windows() -> None:
    assert has_attention(nn.Sequential(nn.Identity(), nn.MultiheadAttention(4, 2)))
    assert has_attention(PublishedAttention(8, linear_layer=nn.Linear, norm_layer=nn.LayerNorm))
    assert not has_attention(convolutional())


def test_tiles_and_back() -> None:
    cells = tiles(GRIDS, 2)
    assert torch.equal(cells[1], GRIDS[0, :, :8, 8:])
    assert torch.equal(cells[6], GRIDS[1, :, 8:, :8])
    assert torch.equal(untiled(cells, 2), GRIDS)


def outside(maps: Tensor, cell: int, reach: int = 0) -> Tensor:
    """A map (H, W) without its cell of 2 × 2, grown by `reach` pixels."""
    row, column = divmod(cell, 2)
    rest = maps.clone()
    rest[max(0, 8 * row - reach) : 8 * row + 8 + reach, max(0, 8 * column - reach) : 8 * column + 8 + reach] = 0
    return rest


@pytest.mark.parametrize("method", ["grad", "ixg", "intgrad", "wx", "smoothgrad", "guided-backprop"])
def test_disconnected_cells_get_nothing(method: str) -> None:
    model = convolutional()
    heads = disconnect(model, GRIDS[:1], side=2, setting="difull")
    found = disconnected_maps(heads, GRIDS, TARGETS, method=method, seed=0)
    for cell in range(4):
        alone = attribute(model, tiles(GRIDS, 2).unflatten(0, (2, 4))[:, cell], TARGETS[:, cell], method=method).sum(1)
        for grid in range(2):
            assert not outside(found[grid, cell], cell).any()
            assert found[grid, cell].any()
            own = tiles(found[grid, cell][None, None], 2)[cell, 0]
            assert (own - alone[grid]).abs().max() <= 2e-6 * alone[grid].abs().max()


class Head(nn.Module):
    """The logits of one cell's head alone."""

    def __init__(self, heads: nn.Module, cell: int) -> None:
        super().__init__()
        self.heads, self.cell = heads, cell

    def forward(self, grids: Tensor) -> Tensor:
        return self.heads(grids).unflatten(1, (4, 5))[:, self.cell]


@pytest.mark.parametrize("setting", ["difull", "dipart"])
@pytest.mark.parametrize("method", ["lime", "rise", "occlusion", "deeplift"])
def test_all_heads_at_once_are_one_after_another(setting: str, method: str) -> None:
    heads = disconnect(convolutional(), GRIDS[:1], side=2, setting=setting)
    found = disconnected_maps(heads, GRIDS, TARGETS, method=method, seed=0)
    for cell in range(4):
        one = attribute(Head(heads, cell), GRIDS, TARGETS[:, cell], method=method).sum(1)
        assert (found[:, cell] - one).abs().max() <= 1e-3 * one.abs().max()  # small differences of probabilities, fp32


def test_rollout_has_no_heads() -> None:
    heads = disconnect(convolutional(), GRIDS[:1], side=2, setting="difull")
    with pytest.raises(UnsuitableError, match="same for every head"):
        disconnected_maps(heads, GRIDS, TARGETS, method="rollout", seed=0)


def test_disconnected_contributions_of_encoded_images() -> None:
    model = create_model("bcos_cnn9_w=0.125").eval()
    grids = torch.rand(1, 3, 64, 64, generator=torch.Generator().manual_seed(1))
    heads = disconnect(model, grids, side=2, setting="difull")
    found = disconnected_maps(heads, grids, torch.tensor([[3, 1, 4, 2]]), method="wx", seed=0)
    wanted = decompose(model, grids[:, :, :32, 32:], torch.tensor([1])).contributions.sum(1)
    assert (found[0, 1, :32, 32:] - wanted[0]).abs().max() <= 1e-5 * wanted.abs().max()
    assert not found[0, 1, 32:].any()
    assert not found[0, 1, :, :32].any()


def test_heads_of_disconnected_cells_answer_as_the_network_does() -> None:
    model = convolutional()
    heads = disconnect(model, GRIDS[:1], side=2, setting="difull")
    assert torch.equal(heads(GRIDS).view(8, 5), model(tiles(GRIDS, 2)))


def test_partly_disconnected_cells_leak_no_further_than_the_receptive_field() -> None:
    """Two 3×3 convolutions see two pixels beyond the cell; the last map ends with the second ReLU."""
    heads = disconnect(convolutional(), GRIDS[:1], side=2, setting="dipart")
    assert heads.layer == "3"
    found = disconnected_maps(heads, GRIDS, TARGETS, method="grad", seed=0)
    for grid, cell in [(g, c) for g in range(2) for c in range(4)]:
        assert outside(found[grid, cell], cell).any()
        assert not outside(found[grid, cell], cell, reach=2).any()


def test_partly_disconnected_logits_by_hand() -> None:
    model = convolutional()
    heads = disconnect(model, GRIDS[:1], side=2, setting="dipart")
    features = model[:4](GRIDS)[:, :, 8:, :8].mean((2, 3))  # the third cell
    torch.testing.assert_close(heads(GRIDS).view(2, 4, 5)[:, 2], model[6](features))
    assert heads.model[3]._forward_hooks == {}


def test_gradcam_of_disconnected_cells_by_hand() -> None:
    """Its weights come from the right cell and are laid on all of them: what Rao et al. found to be wrong with it."""
    model = convolutional()
    heads = disconnect(model, GRIDS[:1], side=2, setting="difull")
    found = disconnected_maps(heads, GRIDS, TARGETS, method="gradcam", seed=0)
    activation = model[:3](tiles(GRIDS[:1], 2))
    activation.retain_grad()
    model[4:](activation.relu())[2, TARGETS[0, 2]].backward()
    weights = activation.grad[2].mean((1, 2)) / 4  # the mean over the grid, of which one cell has a gradient
    wanted = (weights[:, None, None] * untiled(activation, 2)[0]).sum(0).clamp(min=0)
    torch.testing.assert_close(found[0, 2], wanted, rtol=1e-4, atol=1e-7)
    assert outside(found[0, 2], 2).any()


def test_layer_maps_of_partly_disconnected_cells() -> None:
    heads = disconnect(convolutional(), GRIDS[:1], side=2, setting="dipart")
    found = disconnected_maps(heads, GRIDS, TARGETS, method="normgrad", seed=0)
    assert not outside(found[0, 1], 1).any()  # the gradient of the last map is 0 outside the cell
    assert found[0, 1].any()


def test_flattened_heads_can_be_partly_disconnected() -> None:
    model = create_model("rohrer100k_scs").eval()
    heads = disconnect(model, torch.rand(1, 3, 96, 96), side=3, setting="dipart")
    assert heads.layer == "stages"
    assert heads(torch.rand(2, 3, 96, 96)).shape == (2, 90)
    with pytest.raises(UnsuitableError, match="dipart"):
        disconnect(create_model("rohrer25k_scs").eval(), torch.rand(1, 3, 96, 96), side=3, setting="dipart")
    with pytest.raises(UnsuitableError, match="feature maps"):
        disconnect(nn.Sequential(nn.Flatten(), nn.Linear(192, 5)), GRIDS[:1], side=2, setting="dipart")
