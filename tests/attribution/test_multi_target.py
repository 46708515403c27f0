"""Maps of several classes at once: against captum and one class after another, and what they cost."""

import pytest
import torch
from captum import attr
from small_networks import GRIDS, TARGETS, convolutional
from torch import Tensor, nn

from scs_eval.analyses.attribution import perturbation
from scs_eval.analyses.attribution.attribute import attribute, pixel_maps
from scs_eval.analyses.attribution.perturbation import window
from scs_eval.models.explain.decomposition import decompose
from scs_eval.models.zoo.registry import create_model


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
        side = window(extent)
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
        ("gradcam", [1, 2]),  # the first finds the layer
        ("normgrad", [1, 2]),
        ("intgrad", [100]),
        ("smoothgrad", [50]),
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


@pytest.mark.parametrize("method", ["guided-backprop", "deeplift"])
def test_other_methods_get_all_classes_in_one_batch(method: str) -> None:
    model = convolutional()
    seen: list[int] = []
    model[0].forward = lambda x, own=model[0].forward: (seen.append(len(x)), own(x))[1]  # also in captum's copies
    pixel_maps(model, GRIDS, TARGETS, method=method)
    assert max(seen) == (16 if method == "deeplift" else 8)  # DeepLIFT's baselines are in the same batch
    assert all(size <= 8 for size in sorted(seen)[:-1])


@pytest.mark.parametrize("largest", [1, 3])
def test_classes_of_one_grid_are_halved_when_memory_runs_out(largest: int) -> None:
    model = convolutional()
    wanted = pixel_maps(model, GRIDS[:1], TARGETS[:1], method="guided-backprop")

    def full(_module: nn.Module, inputs: tuple[Tensor]) -> None:
        if len(inputs[0]) > largest:
            raise torch.OutOfMemoryError("no room")

    model[0].register_forward_pre_hook(full)
    torch.testing.assert_close(pixel_maps(model, GRIDS[:1], TARGETS[:1], method="guided-backprop"), wanted)
    with pytest.raises(torch.OutOfMemoryError):
        pixel_maps(model, GRIDS, TARGETS, method="guided-backprop")  # two grids: the caller takes fewer


def test_rollout_is_one_pass_for_all_classes() -> None:
    model = create_model("vit_ti_conv", num_classes=5).eval()
    seen = count_passes(model)
    found = pixel_maps(model, torch.rand(1, 3, 224, 224), TARGETS[:1], method="rollout")
    assert found.shape == (1, 4, 224, 224)
    assert set(seen) == {1}
    assert torch.equal(found[:, 0], found[:, 3])
