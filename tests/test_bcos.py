"""The B-cos layers against the published package and a patch-by-patch float64 formula."""

import itertools

import pytest
import reference
import torch
from bcos.modules import BcosConv2d as PublishedConv
from bcos.modules import BcosLinear as PublishedLinear
from compare import close, value_and_gradients
from torch import nn

from scs_eval.models.layers import BcosConv2d, BcosLinear

PLACES = [(1, 1, 0), (3, 1, 1), (3, 2, 1), (7, 2, 3), (4, 4, 0)]
GRID = list(itertools.product([1, 1.25, 1.5, 2, 2.5], [1, 2], [1, 4], PLACES))
# Rounding of two orders of summation, and of x/σ against x·(1/σ); gradients pass through it twice.
TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-12}


def both(layer, x, explain):
    return value_and_gradients(layer, x, parameters=list(layer.parameters()), explain=explain)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("explain", [False, True])
@pytest.mark.parametrize(("b", "max_out", "groups", "place"), GRID)
def test_convolution_matches_the_published_one(b, max_out, groups, place, explain, dtype):
    torch.manual_seed(0)
    kernel, stride, padding = place
    published = PublishedConv(8, 8, kernel, stride, padding, groups=groups, b=b, max_out=max_out).to(dtype)
    ours = BcosConv2d(8, 8, kernel, stride, padding, groups=groups, b=b, max_out=max_out).to(dtype)
    ours.load_state_dict(published.state_dict(), strict=True)  # linear.weight
    x = torch.randn(2, 8, 12, 12, dtype=dtype)
    results = (both(layer, x, explain) for layer in (ours, published))
    for actual, wanted in zip(*results, strict=True):
        close(actual, wanted, TOLERANCE[dtype])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("explain", [False, True])
@pytest.mark.parametrize("scale", [1.0, 1e-4])
@pytest.mark.parametrize("b", [1, 1.25, 2, 2.5])
@pytest.mark.parametrize("max_out", [1, 2])
def test_linear_matches_the_published_one(b, max_out, scale, explain, dtype):
    torch.manual_seed(1)
    published = PublishedLinear(16, 6, b=b, max_out=max_out).to(dtype)
    ours = BcosLinear(16, 6, b=b, max_out=max_out).to(dtype)
    ours.load_state_dict(published.state_dict(), strict=True)
    x = scale * torch.randn(3, 5, 16, dtype=dtype)
    results = (both(layer, x, explain) for layer in (ours, published))
    for actual, wanted in zip(*results, strict=True):
        close(actual, wanted, TOLERANCE[dtype])


@pytest.mark.parametrize("b", [1, 1.5, 2])
@pytest.mark.parametrize(
    "geometry",
    [
        {"dilation": 2, "padding": 2},
        {"stride": (2, 1), "padding": (0, 1), "groups": 2},
        {"padding": "same", "padding_mode": "circular"},
        {"padding": 1, "padding_mode": "reflect", "dilation": (1, 2)},
    ],
    ids=str,
)
def test_convolution_matches_reference_where_the_package_does_not_go(b, geometry):
    torch.manual_seed(2)
    layer = BcosConv2d(4, 3 * geometry.get("groups", 1), (3, 2), b=b, max_out=2, **geometry).double()
    x = torch.randn(2, 4, 8, 9, dtype=torch.double)
    close(layer(x), reference.bcos(x, layer.weight, b, 2, **geometry), 1e-10)


@pytest.mark.parametrize("b", [1, 1.5, 2, 2.5])
@pytest.mark.parametrize("make", [lambda b: BcosConv2d(2, 3, 2, b=b, max_out=2), lambda b: BcosLinear(4, 3, b=b)])
def test_gradcheck(make, b):
    torch.manual_seed(3)
    layer = make(b).double()
    shape = (2, 2, 4, 4) if isinstance(layer, nn.Conv2d) else (3, 4)
    x = torch.randn(shape, dtype=torch.double, requires_grad=True)
    weight = layer.weight.detach().clone().requires_grad_()
    run = lambda x, weight: torch.func.functional_call(layer, {"weight": weight}, (x,))  # noqa: E731
    assert torch.autograd.gradcheck(run, (x, weight))


@pytest.mark.parametrize("b", [1, 1.5, 2])
@pytest.mark.parametrize("make", [lambda b: BcosConv2d(2, 3, 1, b=b), lambda b: BcosLinear(2, 3, b=b)])
def test_zero_filter_and_zero_input_give_zero_and_finite_gradients(make, b):
    layer = make(b)
    with torch.no_grad():
        layer.weight[0] = 0
    for x in (torch.ones(1, 2, 1, 1), torch.zeros(1, 2, 1, 1)):
        x = x if isinstance(layer, nn.Conv2d) else x.flatten(1)
        x.requires_grad_()
        layer.zero_grad()
        y = layer(x)
        y.sum().backward()
        assert (y[:, 0] == 0).all()
        assert torch.isfinite(x.grad).all()
        assert torch.isfinite(layer.weight.grad).all()
        assert torch.isfinite(y).all()


def test_scale_multiplies_and_our_own_keys_load():
    torch.manual_seed(4)
    plain, scaled = BcosConv2d(3, 4, 3), BcosConv2d(3, 4, 3, scale=7.0)
    scaled.load_state_dict(plain.state_dict(), strict=True)
    x = torch.randn(1, 3, 5, 5)
    close(scaled(x), 7 * plain(x), 1e-6)
    linear, wide = BcosLinear(3, 4), BcosLinear(3, 4, scale=7.0)
    wide.load_state_dict(linear.state_dict())
    close(wide(x[:, :, 0, 0]), 7 * linear(x[:, :, 0, 0]), 1e-6)


@pytest.mark.parametrize("make", [lambda **o: BcosConv2d(3, 4, 3, **o), lambda **o: BcosLinear(3, 4, **o)])
def test_wrong_settings_raise(make):
    with pytest.raises(TypeError):
        make(bias=True)
    with pytest.raises(TypeError):
        make(maxout=2)
    with pytest.raises(ValueError, match="at least 1"):
        make(b=0.5)
    with pytest.raises(ValueError, match="max_out"):
        make(max_out=0)


def test_works_compiled_and_under_torch_func():
    torch.manual_seed(5)
    net = nn.Sequential(BcosConv2d(3, 4, 3, max_out=2), nn.Flatten(), BcosLinear(64, 2, b=1.5))
    x = torch.randn(2, 3, 6, 6)
    close(torch.compile(net, backend="aot_eager")(x), net(x), 1e-6)
    jacobian = torch.func.vmap(torch.func.jacrev(lambda image: net(image[None])[0]))(x)
    for k in range(2):
        inputs = x.clone().requires_grad_()
        net(inputs)[:, k].sum().backward()
        close(jacobian[:, k], inputs.grad, 1e-5)
