"""NormGrad at every layer, combined and after a step of training, HiResCAM: against captum and float64 by hand."""

import copy

import pytest
import torch
import torch.nn.functional as F
from captum import attr
from torch import Tensor, nn

from scs_eval.analyses.attribution import normgrad
from scs_eval.analyses.attribution.attribute import attribute, pixel_maps
from scs_eval.analyses.attribution.methods import find_method
from scs_eval.errors import InputError, NotApplicableError
from scs_eval.models.zoo.registry import create_model

IMAGES = torch.rand(3, 3, 12, 12, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
TARGETS = torch.tensor([0, 3, 2])


class Small(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.early = nn.Conv2d(3, 4, 3, padding=1)
        self.late = nn.Conv2d(4, 6, 3, stride=2, padding=1)
        self.head = nn.Linear(6 * 36, 5)
        self.double()

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.tanh(self.late(torch.tanh(self.early(x)))).flatten(1))

    def parts(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        early = self.early(x)
        late = self.late(torch.tanh(early))
        return early, late, self.head(torch.tanh(late).flatten(1))


def by_hand(model: Small, place: int, images: Tensor = IMAGES, targets: Tensor = TARGETS) -> Tensor:
    """(N, 1, h, w): the gradient of a 1×1 convolution that is the identity, place by place, and its norm."""
    parts = model.parts(images)
    (slope,) = torch.autograd.grad(parts[-1][range(len(images)), targets].sum(), parts[place])
    outer = torch.einsum("nchw,ndhw->nhwcd", slope, parts[place].detach())
    return outer.flatten(3).norm(dim=3)[:, None]


def enlarged(maps: Tensor) -> Tensor:
    return F.interpolate(maps, (12, 12), mode="bilinear", align_corners=False)


@pytest.mark.parametrize(("layer", "place"), [("early", 0), ("late", 1)])
def test_every_layer(layer: str, place: int) -> None:
    model = Small()
    found = attribute(model, IMAGES, TARGETS, method=f"normgrad:{layer}")
    torch.testing.assert_close(found, enlarged(by_hand(model, place)).expand(-1, 3, -1, -1))
    if layer == "late":
        assert torch.equal(found, attribute(model, IMAGES, TARGETS, method="normgrad"))


def test_layers_that_are_none() -> None:
    with pytest.raises(InputError, match="did you mean late"):
        attribute(Small(), IMAGES, TARGETS, method="normgrad:lat")
    with pytest.raises(NotApplicableError, match=r"this one gives \(3, 5\)"):
        attribute(Small(), IMAGES, TARGETS, method="normgrad:head")


def test_combined_is_the_geometric_mean() -> None:
    model = Small()
    first, second = (enlarged(by_hand(model, place)) for place in (0, 1))
    found = attribute(model, IMAGES, TARGETS, method="normgrad-combined")
    torch.testing.assert_close(found, (first * second).sqrt().expand(-1, 3, -1, -1))


def test_meta_is_normgrad_after_torchs_sgd(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(normgrad, "META_STEP", 0.1)  # so that the step shows
    model, wanted = Small(), []
    before = {name: value.clone() for name, value in model.state_dict().items()}
    for image, target in zip(IMAGES, TARGETS, strict=True):
        trained = copy.deepcopy(model)
        optimiser = torch.optim.SGD(trained.parameters(), lr=0.1)
        F.cross_entropy(trained(image[None]), target[None]).backward()
        optimiser.step()
        wanted.append(by_hand(trained, 1, image[None], target[None]))
    found = attribute(model, IMAGES, TARGETS, method="normgrad-meta")
    torch.testing.assert_close(found, enlarged(torch.cat(wanted)).expand(-1, 3, -1, -1))
    assert (found - attribute(model, IMAGES, TARGETS, method="normgrad")).abs().max() > 0.01 * found.abs().max()
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(parameter.grad is None for parameter in model.parameters())


def test_meta_of_a_frozen_network_is_the_same() -> None:
    model, frozen = Small(), Small().requires_grad_(False)
    torch.testing.assert_close(*(attribute(item, IMAGES, TARGETS, method="normgrad-meta") for item in (model, frozen)))


@pytest.mark.parametrize("method", ["normgrad-combined", "normgrad-meta", "hirescam", "normgrad:late"])
def test_several_classes(method: str) -> None:
    model, classes = Small(), torch.tensor([[0, 4], [3, 1], [2, 2]])
    found = pixel_maps(model, IMAGES, classes, method=method)
    for k in range(2):
        one = attribute(model, IMAGES, classes[:, k], method=method).sum(1)
        torch.testing.assert_close(found[:, k], one)


@pytest.mark.parametrize("method", ["normgrad-combined", "normgrad-meta", "hirescam"])
def test_maps_do_not_depend_on_the_images_beside(method: str) -> None:
    whole = attribute(Small(), IMAGES, TARGETS, method=method)
    torch.testing.assert_close(whole[1:2], attribute(Small(), IMAGES[1:2], TARGETS[1:2], method=method))


def test_hirescam_is_captums() -> None:
    model = Small()
    wanted = attr.LayerGradientXActivation(model, model.late).attribute(IMAGES, target=TARGETS).sum(1, keepdim=True)
    found = attribute(model, IMAGES, TARGETS, method="hirescam")
    torch.testing.assert_close(found, enlarged(wanted).expand(-1, 3, -1, -1))
    assert (found < 0).any()
    torch.testing.assert_close(found, attribute(model, IMAGES, TARGETS, method="captum:LayerGradientXActivation"))


def test_grad_cam_variants_of_captum() -> None:
    """By name, with the last convolution as the layer: the class itself called by hand."""
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Conv2d(4, 6, 3), nn.ReLU(), nn.Flatten(), nn.Linear(384, 5))
    model.double().eval()
    guided = attr.GuidedGradCam(other := copy.deepcopy(model), other[2])
    wanted = guided.attribute(IMAGES, target=TARGETS, interpolate_mode="nearest")
    torch.testing.assert_close(attribute(model, IMAGES, TARGETS, method="captum:GuidedGradCam"), wanted)
    cam = attr.LayerGradCam(other, other[2]).attribute(IMAGES, target=TARGETS)
    found = attribute(model, IMAGES, TARGETS, method="captum:LayerGradCam")
    torch.testing.assert_close(found, enlarged(cam).expand(-1, 3, -1, -1))


def test_networks_of_the_zoo_have_them_all() -> None:
    model, images = create_model("rohrer25k_scs").eval(), torch.rand(2, 3, 32, 32)
    for method in ("normgrad-combined", "normgrad-meta", "normgrad:stages.1", "hirescam"):
        maps = attribute(model, images, torch.tensor([0, 1]), method=method)
        assert maps.std() > 0
        assert maps.isfinite().all()


def test_the_name_says_the_layer() -> None:
    method = find_method("normgrad:stages.0")
    assert (method.name, method.source) == ("normgrad:stages.0", "Rebuffi et al. 2020")
    assert "stages.0" in method.measures
    assert find_method("normgrad:stages.0") is method
