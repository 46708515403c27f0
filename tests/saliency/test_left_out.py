"""What additive methods leave out, against captum and by hand; empty and even maps say why they are."""

import numpy as np
import pytest
import torch
from captum.attr import LRP, DeepLift, IntegratedGradients
from captum.attr._utils.lrp_rules import EpsilonRule
from torch import Tensor, nn

from scs_eval.analyses.attribution.methods import METHODS
from scs_eval.analyses.saliency import SaliencyOptions, saliency
from scs_eval.analyses.saliency.result import SaliencyResult
from scs_eval.models.explain.decomposition import decompose

IMAGES = torch.rand(3, 3, 8, 8, generator=torch.Generator().manual_seed(0))
LABELS = torch.tensor([0, 1, 2])


def network(activation: nn.Module) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 6, 3), activation, nn.Flatten(), nn.Linear(216, 3)).eval()


def explained(model: nn.Module, method: str) -> SaliencyResult:
    options = SaliencyOptions(target="label", samples=0)
    return saliency(model, IMAGES, LABELS, classes=list("abc"), method=method, options=options, label="net")


def test_integrated_gradients_leave_out_what_captum_says() -> None:
    model = network(nn.Softplus(beta=20))
    result = explained(model, "intgrad")
    maps, delta = IntegratedGradients(model).attribute(
        IMAGES, target=LABELS, n_steps=50, return_convergence_delta=True
    )  # fmt: skip
    np.testing.assert_allclose(-result.left_out, delta.numpy(), atol=2e-6)  # fp32 sums; captum's has the other sign
    with torch.no_grad():
        change = (model(IMAGES) - model(torch.zeros_like(IMAGES)))[range(3), LABELS]
    np.testing.assert_allclose(result.totals, change.numpy(), rtol=1e-5)
    assert maps.shape == IMAGES.shape


@pytest.mark.parametrize("method", ["captum:LRP", "captum:DeepLift", "captum:IntegratedGradients", "deeplift"])
def test_what_captum_leaves_out_is_its_own_delta(method: str) -> None:
    """Relevance that LRP's ε-rule gives to biases reaches no pixel. Captum's delta is Σ − total, LRP's its negative."""
    model = network(nn.ReLU())
    kind, asks = {
        "captum:LRP": (LRP, {}), "captum:IntegratedGradients": (IntegratedGradients, {"baselines": 0}),
    }.get(method, (DeepLift, {"baselines": torch.zeros_like(IMAGES)}))  # fmt: skip
    result = explained(model, method)
    theirs = network(nn.ReLU())
    theirs[2].rule = EpsilonRule()  # captum's LRP has none for Flatten
    _, delta = kind(theirs).attribute(
        IMAGES.clone().requires_grad_(), target=LABELS, return_convergence_delta=True, **asks
    )
    sign = 1 if kind is LRP else -1
    np.testing.assert_allclose(sign * result.left_out, delta.detach().numpy(), atol=2e-6)  # fp32 sums
    if kind is LRP:
        assert np.abs(delta.detach().numpy()).min() > 1e-3, "there is something to leave out"
    (line,) = result.notes()
    assert line.startswith(f"maps of net by {method} leave out {result.summary()['left out'].item()} of the ")


@pytest.mark.parametrize("method", ["captum:DeepLiftShap", "captum:GradientShap", "expgrad"])
def test_methods_with_references_add_up_to_the_change_from_their_mean(method: str) -> None:
    """Of a linear network all three are exact but for which references were drawn; DeepLIFT SHAP draws all."""
    torch.manual_seed(0)
    result = explained(nn.Sequential(nn.Flatten(), nn.Linear(192, 3)).eval(), method)
    assert result.notes() == [
        f"maps of net by {method} leave out {result.summary()['left out'].item()} of the change from references"
    ]
    if method == "captum:GradientShap":
        assert result.left_out_share is not None
    else:
        np.testing.assert_allclose(result.left_out, 0, atol=1e-5)


def test_contributions_leave_out_the_biases() -> None:
    model = network(nn.ReLU())
    result, parts = explained(model, "wx"), decompose(model, IMAGES, LABELS)
    np.testing.assert_allclose(result.left_out, (parts.bias + parts.residual).numpy(), atol=1e-6)  # fp32
    wanted = parts.bias.abs().mean() / parts.logits.abs().mean()
    assert result.table()["left_out_share"].item() == pytest.approx(wanted.item(), rel=1e-4)
    (line,) = result.notes()
    assert line.startswith("maps of net by wx leave out")
    assert line.endswith("of the logit")
    assert result.summary()["left out"].item() in line


def test_other_methods_need_not_add_up() -> None:
    result = explained(network(nn.ReLU()), "grad")
    assert result.left_out_share is None
    assert result.notes() == []
    assert "left_out_share" not in result.table()
    assert all(METHODS[name].adds_up_to for name in ("intgrad", "deeplift", "wx"))


class Dead(nn.Module):
    """Logits that no image changes, though a graph leads to it."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.head = nn.Conv2d(3, 5, 1), nn.Linear(5, 3)

    def forward(self, images: Tensor) -> Tensor:
        return self.head((self.conv(images) - 1000).relu().mean((2, 3)))


@pytest.mark.parametrize("method", ["grad", "gradcam", "occlusion", "rise", "lime", "wx"])
def test_empty_maps_say_why(method: str) -> None:
    result = explained(Dead(), method)
    assert result.table()["blank_maps"].item() == 3
    assert result.notes()[0] == f"3 of 3 maps of net by {method} are 0 everywhere: {METHODS[method].empty}"


class Mean(nn.Module):
    """Every value counts the same."""

    def forward(self, images: Tensor) -> Tensor:
        return images.mean((1, 2, 3))[:, None] * torch.tensor([1.0, 2.0, 3.0])


def test_even_maps_say_that_they_prefer_nothing() -> None:
    (line,) = explained(Mean(), "grad").notes()
    assert line == "3 of 3 maps of net by grad are the same everywhere: they prefer no pixel"
