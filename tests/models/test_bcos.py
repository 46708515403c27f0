"""The B-cos layers against the published package and a patch-by-patch float64 formula."""

import itertools

import pytest
import reference
import torch
from bcos.modules import BcosConv2d as PublishedConv
from bcos.modules import BcosLinear as PublishedLinear
from closeness import close, value_and_gradients
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from scs_eval.models.layers import BcosConv2d, BcosLinear
from scs_eval.models.layers.convolution import prepare, unit_kernels
from scs_eval.models.layers.kernels import bcos as alignment

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


@pytest.mark.parametrize("b", [1, 1.5, 1.75, 2, 2.25, 3])
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
    with pytest.raises(ValueError, match="has no bias"):
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


def layouts():
    torch.manual_seed(6)
    x = torch.randn(3, 4, 6, 5, dtype=torch.double)
    return {
        "contiguous": x,
        "channels last": x.contiguous(memory_format=torch.channels_last),
        "transposed": torch.randn(3, 4, 5, 6, dtype=torch.double).transpose(2, 3),
        "sliced": torch.randn(3, 8, 12, 5, dtype=torch.double)[:, ::2, ::2],
        "expanded": x[:1].expand(3, -1, -1, -1),
    }


@pytest.mark.parametrize("layout", layouts())
@pytest.mark.parametrize("b", [1, 1.25, 2])
@pytest.mark.parametrize("max_out", [1, 2, 3])
@pytest.mark.parametrize("explain", [False, True])
def test_fast_pass_is_the_formula_in_every_layout(layout, b, max_out, explain):
    layer = BcosConv2d(4, 6, 3, stride=(1, 2), padding=1, groups=2, b=b, max_out=max_out, scale=3.0).double()
    x, weight = layouts()[layout], layer.weight
    plan = alignment.BcosSettings(prepare(x, layer)[1], b, max_out, 3.0)
    formula = lambda x: alignment.aligned_responses(x, unit_kernels(weight), plan)  # noqa: E731
    fast, plain = (value_and_gradients(f, x, parameters=[weight], explain=explain) for f in (layer, formula))
    for actual, wanted in zip(fast, plain, strict=True):
        close(actual, wanted, 1e-12)


GEOMETRIES = [
    {"kernel_size": 3, "padding": 1},
    {"kernel_size": 3, "padding": 3, "stride": 1},  # more padding than the kernel reaches back
    {"kernel_size": (1, 2), "stride": 2, "groups": 2},
    {"kernel_size": 2, "dilation": 2, "padding": (2, 1), "padding_mode": "reflect"},
]


@pytest.mark.parametrize("b", [1, 1.25, 1.75, 2, 2.5])
@pytest.mark.parametrize("max_out", [1, 2])
@pytest.mark.parametrize("geometry", GEOMETRIES, ids=str)
def test_gradients_once_and_twice(b, max_out, geometry):
    torch.manual_seed(7)
    layer = BcosConv2d(2, 2, b=b, max_out=max_out, scale=1.5, **geometry).double()
    x = torch.randn(1, 2, 4, 3, dtype=torch.double, requires_grad=True)
    weight = layer.weight.detach().clone().requires_grad_()
    run = lambda x, weight: torch.func.functional_call(layer, {"weight": weight}, (x,))  # noqa: E731
    assert torch.autograd.gradcheck(run, (x, weight))
    assert torch.autograd.gradgradcheck(run, (x, weight))


@pytest.mark.parametrize("b", [1, 1.5, 2])
def test_of_equal_kernels_the_first_gets_the_gradient(b):
    """As in the package; that is what makes a tie a choice and not an average."""
    torch.manual_seed(8)
    published, ours = PublishedConv(2, 3, 3, 1, 1, b=b, max_out=2), BcosConv2d(2, 3, 3, 1, 1, b=b, max_out=2)
    with torch.no_grad():
        published.linear.weight[1::2] = published.linear.weight[::2]
    ours.load_state_dict(published.state_dict())
    x = torch.randn(2, 2, 5, 5)
    x[0] = 0
    *_, wanted = both(published, x, False)
    *_, actual = both(ours, x, False)
    close(actual, wanted, 1e-5)
    assert (actual[1::2] == 0).all()
    assert (actual[::2] != 0).any()


def test_many_slices_are_one(monkeypatch):
    torch.manual_seed(9)
    layer = BcosConv2d(2, 3, 3, b=1.5, max_out=2).double()
    x = torch.randn(7, 2, 6, 6, dtype=torch.double)
    whole = both(layer, x, False)
    monkeypatch.setattr(alignment, "SLICE_BYTES", 2 * 6 * 16 * 8)  # two images and a rest of one
    for actual, wanted in zip(both(layer, x, False), whole, strict=True):
        close(actual, wanted, 1e-13)
    assert layer(x[:0]).shape == (0, 3, 4, 4)


@pytest.mark.parametrize("kernel", [1, 3])
def test_one_image_keeps_its_layout(kernel):
    """Of one image torch cannot tell the layout where the stride of the batch is arbitrary, and takes its default.

    Nothing is wrong then but the time: hence the strides.
    """
    layer = BcosConv2d(4, 6, kernel, max_out=2)
    x = torch.randn(1, 4, 8, 8).contiguous(memory_format=torch.channels_last)
    ambiguous = x.as_strided(x.shape, (4, *x.stride()[1:])).requires_grad_()
    assert not nn.functional.conv2d(ambiguous, layer.weight).is_contiguous(
        memory_format=torch.channels_last
    )  # torch alone
    y = layer(ambiguous)
    assert y.is_contiguous(memory_format=torch.channels_last)
    assert torch.autograd.grad(y.sum(), ambiguous)[0].is_contiguous(memory_format=torch.channels_last)


def test_saved_tensors_survive():
    """A second backward pass finds what the first found, and the output may be overwritten as a convolution's may."""
    torch.manual_seed(10)
    for max_out in (1, 2):
        layer = BcosConv2d(2, 3, 3, max_out=max_out)
        x = torch.randn(2, 2, 6, 6, requires_grad=True)
        y = layer(x)
        (y.clone() * 2).sum().backward(retain_graph=True)
        first = x.grad.clone()
        x.grad = None
        y.mul_(2).sum().backward()
        assert torch.equal(x.grad, first)


class AskedFor(TorchDispatchMode):
    """Which gradients of a convolution are computed: (input, weight) of each backward call."""

    def __init__(self):
        super().__init__()
        self.masks = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func is torch.ops.aten.convolution_backward.default:
            self.masks.append(tuple(args[-1][:2]))
        return func(*args, **(kwargs or {}))


def test_only_gradients_that_are_asked_for_are_computed():
    torch.manual_seed(11)
    net = nn.Sequential(BcosConv2d(2, 3, 3, max_out=2), BcosConv2d(3, 3, 3))
    x = torch.randn(1, 2, 6, 6, requires_grad=True)
    hidden = net[0](x)
    for wanted, masks in (
        ((x,), [(True, False)] * 2),
        ((hidden,), [(True, False)]),
        ((net[1].weight,), [(False, True)]),
        ((x, *net.parameters()), [(True, True)] * 2),
    ):
        with AskedFor() as asked:
            found = torch.autograd.grad(net[1](hidden).sum(), wanted, retain_graph=True)
        assert asked.masks == masks
        assert all(gradient.abs().max() > 0 for gradient in found)


def test_forward_mode_and_autocast_get_the_formula():
    torch.manual_seed(12)
    layer = BcosConv2d(2, 3, 3, b=1.5, max_out=2).double()
    x, direction = torch.randn(2, 1, 2, 5, 5, dtype=torch.double)
    value, slope = torch.func.jvp(layer, (x,), (direction,))
    step = 1e-6
    close(value, layer(x), 1e-12)
    close(slope, (layer(x + step * direction) - layer(x - step * direction)) / (2 * step), 1e-7)
    layer.float()
    with torch.autocast("cpu", torch.float16):
        half = layer(x.float())
    with torch.no_grad():
        close(half.float(), layer(x.float()), 5e-3)  # half precision in the convolution
