"""Mosaics seen whole, through windows and as disconnected cells: against captum, autograd and the package `bcos`."""

from functools import partial

import numpy as np
import pytest
import torch
from bcos.models import resnet as published
from bcos.models.vit import Attention as PublishedAttention
from bcos.modules import BcosConv2d as PublishedConv
from bcos.modules import norms
from captum import attr
from small_networks import GRIDS, TARGETS, convolutional
from torch import Tensor, nn

from scs_eval.analyses.attribution import gradient, perturbation
from scs_eval.analyses.attribution.attribute import attribute, pixel_maps
from scs_eval.analyses.attribution.methods import MapOptions, find_method
from scs_eval.analyses.core.labelled_images import ImageSet
from scs_eval.analyses.localisation import LocalisationOptions, localisation
from scs_eval.analyses.localisation.choice import published_mosaics
from scs_eval.analyses.localisation.disconnected import disconnect, disconnected_maps, tiles, untiled
from scs_eval.analyses.localisation.mosaics import Mosaics, compose
from scs_eval.analyses.localisation.windows import Windows, has_attention, takes
from scs_eval.errors import InputError, NotApplicableError
from scs_eval.models.explain.decomposition import decompose
from scs_eval.models.zoo.registry import create_model


def flat() -> nn.Sequential:
    """Takes 8×8 only."""
    torch.manual_seed(2)
    return nn.Sequential(
        nn.Conv2d(3, 4, 3, padding=1), nn.Tanh(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(64, 5)
    ).eval()


@pytest.mark.parametrize("where", ["whole", "windows", "difull", "dipart"])
@pytest.mark.parametrize(
    "method", ["grad", "wx", "intgrad", "smoothgrad", "gradcam", "normgrad", "deeplift", "occlusion", "lime", "rise"]
)
def test_games_go_on_when_memory_holds_one_image(method: str, where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """For the sake of time with few versions of an image; with superpixels of one pixel LIME would find nothing."""
    for name, value in (("RISE_MASKS", 20), ("LIME_SAMPLES", 20), ("FEWEST", 65), ("SEGMENTS", 4)):
        monkeypatch.setattr(perturbation, name, value)
    given = {"look": where} if where in ("whole", "windows") else {"setting": where}
    images, labels = tiles(GRIDS, 2), torch.tensor([0, 1, 2, 3, 4, 0, 1, 2])
    mosaics = Mosaics(
        side=2, indices=np.array([[0, 1, 2, 3], [4, 5, 6, 7]]), targets=labels.view(2, 4).numpy(), requested=2, pool=8,
        usable=8,
    )  # fmt: skip

    def scores(model: nn.Module) -> np.ndarray:
        options = LocalisationOptions(smooth=1, **given)  # type: ignore[arg-type]
        return localisation(model, ImageSet(images, labels, tuple("abcde")), mosaics, options, method=method).scores

    model, wanted = convolutional(), scores(convolutional())
    least = 2 if method == "deeplift" else 1  # with the baseline

    def full(_module: nn.Module, inputs: tuple[Tensor]) -> None:
        if len(inputs[0]) > least:
            raise torch.OutOfMemoryError("no room")

    model[0].register_forward_pre_hook(full)
    np.testing.assert_allclose(scores(model), wanted, rtol=1e-3, atol=1e-3)  # fp32, other batches: RISE all but cancels


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
    monkeypatch.setattr(gradient, "INTGRAD_STEPS", 5)  # captum's, too, for the sake of time
    theirs, ours = twins()
    images = torch.rand(30, 3, 8, 8, generator=torch.Generator().manual_seed(4))
    with torch.no_grad():
        logits = theirs(torch.cat([images, 1 - images], 1))
    labels = torch.arange(30) % 10
    sure = logits + 10 * nn.functional.one_hot(labels, 10)  # an untrained network is right of nothing
    mosaics = published_mosaics(sure, labels, torch.arange(30), side=2, count=1)
    options = LocalisationOptions(protocol="bcos-v2", smooth=3)
    found = localisation(ours, ImageSet(images, labels, tuple("abcdefghij")), mosaics, options, method=method)
    assert found.seen == "whole grid"
    grid = compose(images, torch.from_numpy(mosaics.indices), side=2)
    for cell, target in enumerate(mosaics.targets[0].tolist()):
        one = published_map(theirs, grid, target, method)
        positive = nn.functional.avg_pool2d(one[None, None], 3, 1, 1).clamp(min=0)[0, 0]
        row, column = divmod(cell, 2)
        own = positive[8 * row : 8 * row + 8, 8 * column : 8 * column + 8].sum()
        assert found.scores[0, cell] == pytest.approx((own / positive.sum()).item(), rel=1e-3)  # fp32 through 20 layers


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
    found = disconnected_maps(heads, GRIDS, TARGETS, method=find_method(method), options=MapOptions())
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
    found = disconnected_maps(heads, GRIDS, TARGETS, method=find_method(method), options=MapOptions())
    for cell in range(4):
        one = attribute(Head(heads, cell), GRIDS, TARGETS[:, cell], method=method).sum(1)
        assert (found[:, cell] - one).abs().max() <= 1e-3 * one.abs().max()  # small differences of probabilities, fp32


def test_rollout_has_no_heads() -> None:
    heads = disconnect(convolutional(), GRIDS[:1], side=2, setting="difull")
    with pytest.raises(NotApplicableError, match="same for every head"):
        disconnected_maps(heads, GRIDS, TARGETS, method=find_method("rollout"), options=MapOptions())


def test_disconnected_contributions_of_encoded_images() -> None:
    model = create_model("bcos_cnn9_w=0.125").eval()
    grids = torch.rand(1, 3, 64, 64, generator=torch.Generator().manual_seed(1))
    heads = disconnect(model, grids, side=2, setting="difull")
    found = disconnected_maps(
        heads, grids, torch.tensor([[3, 1, 4, 2]]), method=find_method("wx"), options=MapOptions()
    )
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
    found = disconnected_maps(heads, GRIDS, TARGETS, method=find_method("grad"), options=MapOptions())
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
    found = disconnected_maps(heads, GRIDS, TARGETS, method=find_method("gradcam"), options=MapOptions())
    activation = model[:3](tiles(GRIDS[:1], 2))
    activation.retain_grad()
    model[4:](activation.relu())[2, TARGETS[0, 2]].backward()
    weights = activation.grad[2].mean((1, 2)) / 4  # the mean over the grid, of which one cell has a gradient
    wanted = (weights[:, None, None] * untiled(activation, 2)[0]).sum(0).clamp(min=0)
    torch.testing.assert_close(found[0, 2], wanted, rtol=1e-4, atol=1e-7)
    assert outside(found[0, 2], 2).any()


def test_layer_maps_of_partly_disconnected_cells() -> None:
    heads = disconnect(convolutional(), GRIDS[:1], side=2, setting="dipart")
    found = disconnected_maps(heads, GRIDS, TARGETS, method=find_method("normgrad"), options=MapOptions())
    assert not outside(found[0, 1], 1).any()  # the gradient of the last map is 0 outside the cell
    assert found[0, 1].any()


def test_flattened_heads_can_be_partly_disconnected() -> None:
    model = create_model("rohrer100k_scs").eval()
    heads = disconnect(model, torch.rand(1, 3, 96, 96), side=3, setting="dipart")
    assert heads.layer == "stages"
    assert heads(torch.rand(2, 3, 96, 96)).shape == (2, 90)
    with pytest.raises(NotApplicableError, match="dipart"):
        disconnect(create_model("rohrer25k_scs").eval(), torch.rand(1, 3, 96, 96), side=3, setting="dipart")
    with pytest.raises(NotApplicableError, match="feature maps"):
        disconnect(nn.Sequential(nn.Flatten(), nn.Linear(192, 5)), GRIDS[:1], side=2, setting="dipart")


def test_gradients_of_the_encoding_differ_from_those_of_the_image() -> None:
    model = twins()[1]
    image, target = torch.rand(1, 3, 16, 16), torch.tensor([[0, 1]])
    three, six = (pixel_maps(model, image, target, method="ixg", channels=channels) for channels in (3, 6))
    assert (three - six).abs().max() > 0.1 * six.abs().max()
    assert (
        three[:, 0] - attribute(model, image, target[:, 0], method="ixg").sum(1)
    ).abs().max() <= 1e-4 * three.abs().max()


@pytest.mark.parametrize("method", ["ixg", "gradcam", "occlusion"])
def test_six_channels_of_disconnected_cells(method: str) -> None:
    """DiFull: a cell alone, asked about its class, where the map of the method is 0 elsewhere; all run in DiPart."""
    model = create_model("bcos_cnn9_w=0.125").eval()
    mosaics = torch.rand(1, 3, 64, 64, generator=torch.Generator().manual_seed(1))
    targets, options = torch.tensor([[3, 1, 4, 2]]), {"method": find_method(method), "options": MapOptions()}
    for setting in ("difull", "dipart"):
        heads = disconnect(model, mosaics, side=2, setting=setting)
        three, six = (disconnected_maps(heads, mosaics, targets, channels=c, **options) for c in (3, 6))
        assert six.shape == (1, 4, 64, 64)
        assert torch.allclose(three, six) == (method == "gradcam")  # which is about a layer further on
        if (setting, method) == ("difull", "ixg"):
            alone = attribute(model, mosaics[:, :, :32, 32:], torch.tensor([1]), method=method, channels=6).sum(1)[0]
            assert (six[0, 1, :32, 32:] - alone).abs().max() <= 1e-5 * alone.abs().max()  # fp32, other batches


@pytest.mark.parametrize(("options", "channels"), [({}, 3), ({"protocol": "bcos-v2"}, 6), ({"channels": 6}, 6)])
def test_the_published_protocol_sees_six_channels(options: dict[str, object], channels: int) -> None:
    model, images = create_model("bcos_cnn9_w=0.125").eval(), torch.rand(4, 3, 32, 32)
    mosaics = Mosaics(
        side=2, indices=np.arange(4)[None], targets=np.arange(4)[None], requested=1, pool=4, usable=None
    )  # fmt: skip
    data = ImageSet(images, torch.arange(4), tuple("abcdefghij"))
    found = localisation(model, data, mosaics, LocalisationOptions(smooth=1, **options), method="ixg")  # type: ignore[arg-type]
    assert found.settings["channels"] == channels
    mosaic = compose(images, torch.arange(4)[None], side=2)
    maps = pixel_maps(model, mosaic, torch.arange(4)[None], method="ixg", channels=channels)
    positive = maps[0, 0].clamp(min=0)
    assert found.scores[0, 0] == pytest.approx((positive[:32, :32].sum() / positive.sum()).item(), rel=1e-5)  # fp32
