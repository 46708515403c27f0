"""Explanation mode: W(x) and the biases, taken apart separately, add up to the logit; and W is the right matrix."""

import pytest
import reference
import torch
from torch import nn

from scs_eval.errors import InputError
from scs_eval.models.explain.decomposition import decompose
from scs_eval.models.explain.dynamic_linear import explaining, explanation_mode
from scs_eval.models.layers import (
    AddInverse,
    BatchNorm,
    BcosConv2d,
    BcosLinear,
    CosineSim2d,
    LayerNorm,
    LogitLayer,
    MaxAbsPool2d,
    Normalize,
    PositionNorm,
    SCS2d,
    SelfAttention,
    SharpenedSDP2d,
)
from scs_eval.models.zoo.registry import create_model, input_size, list_models


def awaken(model: nn.Module, images: torch.Tensor) -> nn.Module:
    """Make every constant matter: BatchNorm off its start, with the running statistics of these images."""
    for module in model.modules():
        if getattr(module, "running_var", None) is not None:
            module.momentum = 1.0
        if isinstance(module, SharpenedSDP2d) and not isinstance(module, SCS2d):
            # Twenty unnormalised layers with exponents up to 3 overflow, as the SCS paper found for ResNet-18.
            module.p.data.clamp_(max=1.2)
        if isinstance(module, nn.BatchNorm2d):
            nn.init.uniform_(module.bias, -0.5, 0.5)
            nn.init.uniform_(module.weight, 0.5, 1.5)
    model.train()
    with torch.no_grad():
        model(images)
    return model.eval()


# ResNet-18 for 224 pixels is the same network (test_zoo.py); test_imagenet_families.py has the others of that size.
@pytest.mark.parametrize("name", [name for name in list_models() if input_size(name) == 32])
def test_contributions_and_biases_add_up_to_the_logit(name):
    torch.manual_seed(7)
    batch = torch.rand(4, 3, 32, 32)
    model = awaken(create_model(name), batch)
    for dtype, tolerance in ((torch.float32, 1e-4), (torch.float64, 1e-9)):
        model.to(dtype)
        images = batch[:2].to(dtype)
        with torch.no_grad():
            plain = model(images)
        targets = plain.argmax(1)
        found = decompose(model, images, targets)
        logits = plain.gather(1, targets[:, None])[:, 0]
        assert torch.allclose(found.logits, logits, rtol=tolerance, atol=0)  # explaining changes no answer
        # A sum of terms of both signs that nearly cancels keeps the rounding of its terms.
        terms = found.contributions.abs().sum((1, 2, 3)) + sum(b.abs() for b in found.biases.values())
        assert (found.residual.abs() <= tolerance * torch.maximum(logits.abs(), 1e-3 * terms)).all()


@pytest.mark.parametrize("name", ["rohrer100k_conv", "rohrer100k_bcos", "resnet20_conv", "resnet20_bcos_bn"])
def test_the_bias_is_not_nothing(name):
    """What the previous test adds up has two halves."""
    images = torch.rand(4, 3, 32, 32).double()
    found = decompose(awaken(create_model(name).double(), images), images, torch.tensor([1, 2, 3, 4]))
    assert (found.bias.abs() > 1e-3 * found.logits.abs()).all()


def test_w_is_the_product_of_the_layers():
    """Each layer of a small net as an explicit matrix, from the patch formulas; their product is W(x)."""
    torch.manual_seed(0)
    net = nn.Sequential(SCS2d(2, 3, 2), MaxAbsPool2d(2), SharpenedSDP2d(3, 2, 2), BcosConv2d(2, 3, 1, b=1.5)).double()
    x = torch.rand(1, 2, 7, 7, dtype=torch.double) - 0.3
    product = torch.eye(x.numel(), dtype=torch.double)
    activation = x
    for layer in net:
        with torch.no_grad():
            output = layer(activation)
        product = matrix(layer, activation, output) @ product
        activation = output
    for k in (0, 4, 11):
        inputs = x.clone().requires_grad_()
        with explanation_mode():
            net(inputs).flatten()[k].backward()
        assert torch.allclose(inputs.grad.flatten(), product[k], rtol=1e-9, atol=1e-12)
    assert torch.allclose(product @ x.flatten(), activation.flatten(), rtol=1e-9)


def matrix(layer, x, y):
    """The linear map with which a layer takes x to y: rows of scaled kernels, or a selection."""
    rows = torch.zeros(y.numel(), x.numel(), dtype=x.dtype)
    if isinstance(layer, MaxAbsPool2d):
        winners = layer.indices(x).flatten(2) + x[0, 0].numel() * torch.arange(x.shape[1]).view(1, -1, 1)
        rows[torch.arange(len(rows)), winners.flatten()] = 1
        return rows
    weight = layer.weight
    if not isinstance(layer, SharpenedSDP2d) or isinstance(layer, SCS2d):
        weight = weight / weight.square().sum((1, 2, 3), keepdim=True).sqrt()
    for column in range(x.numel()):
        unit = torch.zeros_like(x).flatten()
        unit[column] = 1
        rows[:, column] = reference.responses(unit.view_as(x), weight)[0].flatten()
    scale = y.flatten() / (rows @ x.flatten())
    return (scale[:, None] * rows).detach()


LAYERS = {
    "scs": lambda: SCS2d(3, 4, 3, padding=1),
    "scs pooled": lambda: SCS2d(3, 4, 3, padding=1, relu=True, pool=nn.MaxPool2d(2)),
    "ssdp": lambda: SharpenedSDP2d(3, 4, 3, pool=MaxAbsPool2d(2)),
    "cosine": lambda: CosineSim2d(3, 4, 3),
    "bcos maxout": lambda: BcosConv2d(3, 4, 3, max_out=3),
    "average pooling": lambda: nn.AvgPool2d(2),
    "layer norm": lambda: LayerNorm(3),
    "centred layer norm": lambda: LayerNorm(3, centred=True),
    "position norm": lambda: PositionNorm(3),
    "attention": lambda: nn.Sequential(nn.Flatten(2), SelfAttention(64, 2, head_width=8)),
    "normalize": lambda: Normalize((0.4, 0.5, 0.6), (0.2, 0.3, 0.1)),
}


@pytest.mark.parametrize("name", LAYERS)
def test_every_layer_is_complete(name):
    torch.manual_seed(1)
    layer = LAYERS[name]().double().eval()
    model = nn.Sequential(layer, nn.Flatten(), nn.LazyLinear(3), LogitLayer(3, temperature=2.0))
    x = torch.rand(4, 3, 8, 8, dtype=torch.double)
    model.double()(x)
    found = decompose(model.double().eval(), x, torch.tensor([0, 1, 2, 0]))
    assert (found.residual.abs() <= 1e-9 * found.logits.abs()).all()


def test_plain_gradient_is_not_w():
    """SCS is scale-invariant, so input × gradient sums to nearly nothing there while W(x)x sums to the output."""
    torch.manual_seed(2)
    net = nn.Sequential(SCS2d(3, 4, 3), nn.Flatten(), nn.Linear(144, 2, bias=False)).double().eval()
    x = torch.rand(1, 3, 8, 8, dtype=torch.double, requires_grad=True)
    logit = net(x)[0, 0]
    (gradient,) = torch.autograd.grad(logit, x)
    assert abs((gradient * x).sum()) < 0.1 * abs(logit)
    assert decompose(net, x, torch.tensor([0])).residual.abs() < 1e-9 * abs(logit)


def test_nesting_exceptions_and_replaced_heads():
    assert not explaining()
    with explanation_mode():
        with explanation_mode():
            assert explaining()
        assert explaining()
        with explanation_mode(False):
            assert not explaining()
        assert explaining()
    assert not explaining()
    with pytest.raises(RuntimeError, match="inside"), explanation_mode():
        raise RuntimeError("inside")
    assert not explaining()
    model = nn.Sequential(nn.Flatten(), BcosLinear(4, 2)).double()
    x = torch.rand(1, 4, dtype=torch.double, requires_grad=True)
    with explanation_mode():
        model[1] = BcosLinear(4, 2).double()  # made and used inside
        y = model(x)[0, 0]
        (w,) = torch.autograd.grad(y, x)
    assert torch.allclose((w * x).sum(), y)
    (plain,) = torch.autograd.grad(model(x)[0, 0], x)
    assert not torch.allclose(plain, w)


def test_decompose_leaves_the_model_as_it_was():
    x = torch.rand(2, 3, 32, 32)
    model = awaken(create_model("resnet20_bcos"), x)
    before = {name: t.clone() for name, t in model.state_dict().items()}
    decompose(model, x, torch.tensor([0, 1]))
    with pytest.raises(RuntimeError):
        decompose(model, x, torch.tensor([0, 99]))
    assert not explaining()
    assert all(torch.equal(t, before[name]) for name, t in model.state_dict().items())
    assert all(p.grad is None for p in model.parameters())
    assert all(not m._forward_hooks for m in model.modules())
    with pytest.raises(InputError, match="evaluation mode"):
        decompose(model.train(), x, torch.tensor([0, 1]))
    twice = nn.Sequential(AddInverse(), AddInverse(), nn.Flatten(), nn.Linear(12 * 32 * 32, 2)).eval()
    with pytest.raises(InputError, match="twice"):
        decompose(twice, x, torch.tensor([0, 1]))
    assert all(not m._forward_hooks for m in twice.modules())


def test_explaining_obeyed_by_compiled_models():
    net = nn.Sequential(SCS2d(3, 4, 3), BatchNorm(4), nn.Flatten(), BcosLinear(144, 2)).eval()
    compiled = torch.compile(net, backend="aot_eager")
    rows = []
    for run in (net, compiled, compiled):
        x = torch.linspace(0, 1, 192).view(1, 3, 8, 8).requires_grad_()
        with explanation_mode(len(rows) != 2):
            run(x)[0, 0].backward()
        rows.append(x.grad)
    assert torch.allclose(rows[0], rows[1], atol=1e-6)
    assert not torch.allclose(rows[0], rows[2], atol=1e-6)
