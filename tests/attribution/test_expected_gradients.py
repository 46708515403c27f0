"""Expected gradients: exact where the network is linear, captum's where it can be compared, and what they add up to."""

import pytest
import torch
from captum.attr import GradientShap, IntegratedGradients
from torch import nn

from scs_eval.analyses.attribution import gradient
from scs_eval.analyses.attribution.attribute import attribute
from scs_eval.analyses.attribution.gradient import references_for
from scs_eval.analyses.attribution.methods import MapOptions
from scs_eval.analyses.saliency import SaliencyOptions, saliency
from scs_eval.errors import InputError

IMAGES = torch.rand(3, 3, 8, 8, generator=torch.Generator().manual_seed(0))
TARGETS = torch.tensor([0, 1, 2])


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 6, 3), nn.Softplus(beta=3), nn.Flatten(), nn.Linear(216, 3)).eval()


def test_of_a_linear_network() -> None:
    """(x − the mean reference) ⊙ w, whatever is drawn."""
    torch.manual_seed(1)
    linear = nn.Sequential(nn.Flatten(), nn.Linear(192, 3)).eval()
    mean = references_for(IMAGES, MapOptions(seed=5)).mean(0)
    wanted = (IMAGES - mean) * linear[1].weight.detach()[TARGETS].view(3, 3, 8, 8)
    found = attribute(linear, IMAGES, TARGETS, method="expgrad", seed=5)
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-6)  # fp32 means of 50


def test_from_one_reference_they_are_integrated_gradients(monkeypatch: pytest.MonkeyPatch) -> None:
    """By captum, whose path starts from the same image; one α in each of 400 parts leaves little chance."""
    monkeypatch.setattr(gradient, "INTGRAD_STEPS", 400)
    reference = torch.rand(1, 3, 8, 8, generator=torch.Generator().manual_seed(3))
    wanted = IntegratedGradients(network()).attribute(IMAGES, reference, target=TARGETS, n_steps=100)
    found = attribute(network(), IMAGES, TARGETS, method="expgrad", references=reference)
    assert (found - wanted).abs().max() <= 1e-3 * wanted.abs().max()


def test_of_several_references_they_are_captums(monkeypatch: pytest.MonkeyPatch) -> None:
    """GradientSHAP without noise draws the same expectation with other random numbers."""
    monkeypatch.setattr(gradient, "INTGRAD_STEPS", 2000)
    references = torch.rand(4, 3, 8, 8, generator=torch.Generator().manual_seed(3))
    torch.manual_seed(0)
    wanted = GradientShap(network()).attribute(IMAGES, references, target=TARGETS, n_samples=2000, stdevs=0.0)
    found = attribute(network(), IMAGES, TARGETS, method="expgrad", references=references)
    assert (found - wanted).abs().max() <= 0.06 * wanted.abs().max()  # two means of 2,000 draws: about 2 % each


def test_what_they_leave_out_is_little() -> None:
    options = SaliencyOptions(samples=0, target="label")
    result = saliency(network(), IMAGES, TARGETS, classes=list("abc"), method="expgrad", options=options)
    references = references_for(IMAGES, MapOptions())
    with torch.no_grad():
        change = network()(IMAGES)[range(3), TARGETS] - network()(references).mean(0)[TARGETS]
    torch.testing.assert_close(torch.from_numpy(result.totals), change.double(), rtol=1e-4, atol=1e-5)
    assert result.left_out_share < 0.1
    assert "of the change from references" in result.notes()[0]


@pytest.mark.parametrize(
    ("references", "method", "message"),
    [
        (torch.rand(2, 3, 9, 9), "expgrad", r"references of \(8, 8\) pixels"),
        (torch.rand(2, 3, 8, 8) + 1, "expgrad", r"images in \[0, 1\]"),
        (torch.rand(2, 3, 8, 8), "intgrad", "for expected gradients"),
    ],
)
def test_bad_references(references: torch.Tensor, method: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        attribute(network(), IMAGES, TARGETS, method=method, references=references)
