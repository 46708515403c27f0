"""B-cos layers that learn B: its gradient against differences of the plain layer, and where the value comes from."""

import copy
from typing import Any

import pytest
import torch
from torch import nn

from scs_eval import InputError, load_data, load_model
from scs_eval.models.conversion.bcosify import set_b
from scs_eval.models.conversion.convert import conversion
from scs_eval.models.conversion.target import ConversionSpec
from scs_eval.models.layers import BcosConv2d, BcosLinear, constrain_

LEARNING = ConversionSpec(layer="bcos", b=1.0, same_function=True, learn_b=True)
DRAW = torch.Generator().manual_seed(0)
IMAGES, ROWS = (torch.randn(*shape, generator=DRAW, dtype=torch.float64) for shape in ((3, 4, 6, 5), (3, 7, 4)))


def convolution(b: float, **options: Any) -> nn.Module:
    torch.manual_seed(1)
    return BcosConv2d(4, 6, 3, padding=1, b=b, **options).double()


def linear(b: float, **options: Any) -> nn.Module:
    torch.manual_seed(1)
    return BcosLinear(4, 6, b=b, **options).double()


CASES = {
    "convolution": (convolution, IMAGES, {}),
    "in groups, scaled": (convolution, IMAGES, {"groups": 2, "scale": 3.0}),
    "MaxOut": (convolution, IMAGES, {"max_out": 2}),
    "channels last": (convolution, IMAGES.to(memory_format=torch.channels_last), {}),
    "with length and bias": (convolution, IMAGES, {"unit_norm": False, "bias": True}),
    "linear": (linear, ROWS, {}),
    "linear, with length": (linear, ROWS, {"unit_norm": False, "bias": True, "scale": 0.5}),
}


@pytest.mark.parametrize("b", [1.0, 1.4, 2.0, 2.5])
@pytest.mark.parametrize("name", CASES)
def test_the_gradient_of_b(name: str, b: float) -> None:
    make, x, options = CASES[name]
    layer, plain = make(b, learn_b=True, **options), make(b, **options)
    y = layer(x)
    assert torch.equal(y, plain(x)), "the values are those of the plain layer"
    weights = torch.randn(y.shape, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    (y * weights).sum().backward()
    step = 1e-4
    with torch.no_grad():
        low, high = (make(max(1.0, b + change), **options)(x) for change in (-step, step))
        wanted = ((high - low) * weights).sum() / (2 * step if b > 1 else step)
    # |cos| has 1e-6 added to it unless B = 2, which a difference across 2 sees; at B = 1 the difference is one-sided.
    assert layer.learned_b.grad.item() == pytest.approx(wanted.item(), rel=2e-3, abs=2e-3)
    (plain(x) * weights).sum().backward()
    torch.testing.assert_close(layer.weight.grad, plain.weight.grad)


def test_what_was_learned_is_computed_with() -> None:
    layer = convolution(1.5, learn_b=True).train()
    with torch.no_grad():
        layer.learned_b.add_(0.25)
    constrain_(nn.Sequential(layer))
    assert layer.b == 1.75
    with torch.no_grad():
        assert torch.equal(layer(IMAGES), convolution(1.75)(IMAGES))
        layer.learned_b.fill_(0.3)
    constrain_(layer)
    assert (layer.b, layer.learned_b.item()) == (1, 1)


def test_weights_bring_their_b() -> None:
    taught = convolution(1.5, learn_b=True)
    set_b(taught, 2.25)
    other = convolution(1.0, learn_b=True)
    other.load_state_dict(taught.state_dict())
    assert other.b == 2.25
    assert copy.deepcopy(other).b == 2.25
    assert "learned_b" not in convolution(1.5).state_dict()


def test_a_network_that_learns_its_b_starts_from_the_same_function() -> None:
    images, model = load_data("sample", n=8).images, load_model("resnet20_conv")
    learning = conversion(model, LEARNING, keep_weights=True).model
    layers = [module for module in learning.modules() if isinstance(module, BcosConv2d | BcosLinear)]
    assert len(layers) == sum(isinstance(module, nn.Conv2d | nn.Linear) for module in model.modules())
    assert all(layer.learned_b.item() == layer.b == 1 for layer in layers)
    with torch.no_grad():
        torch.testing.assert_close(learning(images), model(images), atol=1e-4, rtol=1e-4)  # fp32, twenty layers
    learning.train()(images).square().mean().backward()
    assert all(layer.learned_b.grad.isfinite() and layer.learned_b.grad != 0 for layer in layers)


@pytest.mark.parametrize("options", [{"layer": "scs", "same_function": True}, {"layer": "bcos"}])
def test_who_cannot_learn_it(options: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="B is learned by B-cos layers"):
        ConversionSpec(learn_b=True, **options)
