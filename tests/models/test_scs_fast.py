"""The fast path of the sharpened layers against float64 formulas where it is easiest to get wrong.

Ties in pooling, zeros, exponents below one, layouts in memory, explanation mode, and with or without a way back:
without one the layer pools by another route.
"""

import pytest
import reference
import torch
import torch.nn.functional as F
from closeness import close
from torch import nn

from scs_eval.models.explain.dynamic_linear import explanation_mode
from scs_eval.models.layers import MaxAbsPool2d, SCS2d, SharpenedSDP2d
from scs_eval.models.layers.kernels import fused_scs
from scs_eval.models.layers.kernels import scs as sharpening

pytestmark = pytest.mark.usefixtures("passes")

POOLS = [
    None,
    MaxAbsPool2d(2, ceil_mode=True),
    MaxAbsPool2d(2),
    MaxAbsPool2d((1, 2)),
    MaxAbsPool2d(4, ceil_mode=True),
    MaxAbsPool2d(3, 2, 1),
    MaxAbsPool2d(1),
    nn.MaxPool2d(2, ceil_mode=True),
    nn.MaxPool2d(3),
    nn.MaxPool2d(3, 2, 1),
]


def expected(layer, x, *, explain=False):
    """Output and, for explanation mode, the factor that is held constant, from patches in float64."""
    if isinstance(layer, SCS2d):
        unit = layer.weight / layer.weight.square().sum((1, 2, 3), keepdim=True).sqrt()
        dots, energy = reference.responses(x, unit, groups=layer.groups)
        norm = (energy + 1e-6).sqrt() + layer.log_q.exp()
        c = dots / (norm.detach() if explain else norm)
    else:
        c = reference.responses(x, layer.weight, groups=layer.groups)[0]
    if layer.pool is not None:  # torch's own pooling of the magnitudes says where the winners are
        pair = nn.modules.utils._pair
        window = [*map(pair, (layer.pool.kernel_size, layer.pool.stride, layer.pool.padding)), 1, layer.pool.ceil_mode]
        judged = c.abs() if isinstance(layer.pool, MaxAbsPool2d) else c
        indices = F.max_pool2d(judged.detach(), *window, return_indices=True)[1]
        c = c.flatten(2).gather(2, indices.flatten(2)).view_as(indices)
    c = F.relu(c) if layer.relu else c
    y = reference.sharpen(c, layer.p)
    return c * torch.where(c == 0, 0.0, y / c).detach() if explain else y


def images(kind):
    """With ties in most windows (whole numbers of either sign), with dark patches, or neither."""
    torch.manual_seed(0)
    if kind == "ties":
        return torch.randint(-2, 3, (3, 4, 9, 8)).double()
    x = torch.randn(3, 4, 9, 8, dtype=torch.double)
    if kind == "zeros":
        x[:, :, 2:7, 1:6] = 0
    return x


def gradients(run, x, parameters):
    inputs = x.clone(memory_format=torch.preserve_format).requires_grad_()
    y = run(inputs)
    weights = torch.arange(y.numel(), dtype=y.dtype).cos().view_as(y)
    return y.detach(), torch.autograd.grad((y * weights).sum(), [inputs, *parameters], allow_unused=True)


@pytest.mark.parametrize("pool", POOLS, ids=repr)
@pytest.mark.parametrize("kind", ["plain", "ties", "zeros"])
@pytest.mark.parametrize("explain", [False, True])
@pytest.mark.parametrize("layer", [SCS2d, SharpenedSDP2d])
@pytest.mark.parametrize("groups", [1, 2])
def test_value_gradient_and_explanation(pool, kind, explain, layer, groups):
    torch.manual_seed(1)
    layer = layer(4, 6, 1 if kind == "ties" else 3, groups=groups, pool=pool, relu=kind == "zeros").double()
    with torch.no_grad():
        layer.p.view(-1)[:3] = torch.tensor([0.3, 1.0, 0.7])  # below one the slope at zero is steep
        if kind == "ties":
            layer.weight.copy_(layer.weight.sign())
    x, parameters = images(kind), list(layer.parameters())
    wanted, slopes = gradients(lambda x: expected(layer, x, explain=explain), x, parameters)
    with explanation_mode(explain):
        value, found = gradients(layer, x, parameters)
        with torch.inference_mode():
            unkept = layer(x)
    # Rounding in float64; ties of cosines that differ in the last bit are why the values are compared a little wider.
    close(value, wanted, 1e-9)
    close(unkept, wanted, 1e-9)
    if kind == "ties" and isinstance(layer, SCS2d):
        return  # where the last bit decides which of two equal cosines wins, either gradient is right
    for actual, slope in zip(found, slopes, strict=True):
        assert (actual is None) == (slope is None) or not (slope if actual is None else actual).any()
        if actual is not None and slope is not None:
            close(actual, slope, 1e-9, floor=0.1)


@pytest.mark.parametrize("pool", [None, MaxAbsPool2d(2, ceil_mode=True), nn.MaxPool2d(2)], ids=repr)
@pytest.mark.parametrize("layout", ["contiguous", "channels_last", "transposed", "every second pixel", "expanded"])
def test_any_layout_in_memory(pool, layout):
    torch.manual_seed(2)
    layer = SCS2d(3, 5, 3, padding=1, pool=pool).double()
    x = {
        "contiguous": torch.randn(2, 3, 8, 7, dtype=torch.double),
        "channels_last": torch.randn(2, 3, 8, 7, dtype=torch.double).contiguous(memory_format=torch.channels_last),
        "transposed": torch.randn(2, 3, 7, 8, dtype=torch.double).transpose(2, 3),
        "every second pixel": torch.randn(2, 3, 16, 14, dtype=torch.double)[:, :, ::2, ::2],
        "expanded": torch.randn(1, 3, 8, 7, dtype=torch.double).expand(2, -1, -1, -1),
    }[layout]
    plain = x.detach().clone(memory_format=torch.contiguous_format)
    parameters = list(layer.parameters())
    for one, other in zip(*(gradients(layer, each, parameters) for each in (x, plain)), strict=True):
        for actual, wanted in (
            zip([one], [other], strict=True) if torch.is_tensor(one) else zip(one, other, strict=True)
        ):
            close(actual, wanted, 1e-12)  # the same sums in another order
    with torch.no_grad():
        close(layer(x), layer(plain), 1e-12)


@pytest.mark.parametrize("explain", [False, True])
@pytest.mark.parametrize("pool", [None, MaxAbsPool2d(2)], ids=repr)
def test_gradients_once_and_twice(explain, pool):
    torch.manual_seed(3)
    layer = SCS2d(2, 3, 2, pool=pool).double()
    x = torch.randn(2, 2, 5, 5, dtype=torch.double, requires_grad=True)

    def slope(x, weight):
        with explanation_mode(explain):
            y = torch.func.functional_call(layer, {"weight": weight}, (x,))
        return torch.autograd.grad(y.square().sum(), x, create_graph=True)[0]

    weight = layer.weight.detach().clone().requires_grad_()
    assert torch.isfinite(slope(x, weight)).all()
    if not explain:  # the gradient that explanation mode gives is by design not the derivative of anything
        assert torch.autograd.gradcheck(slope, (x, weight))


def test_float32_is_as_good_as_its_digits():
    torch.manual_seed(4)
    layer = SCS2d(16, 32, 3, pool=MaxAbsPool2d(2, ceil_mode=True))
    x = torch.randn(8, 16, 15, 15)
    exact = expected(layer.double(), x.double()).detach()
    layer.float()
    # 1e-5: the cosine's error of some 1e-7 counts p times relative to c, and small c lose digits in the sum.
    close(layer(x).double(), exact, 1e-5)
    with torch.no_grad():
        close(layer(x).double(), exact, 1e-5)


def test_gradients_in_float32_are_as_good_as_their_digits():
    """The way back has |c| + eps from its logarithm, whose rounding counts most where |c| is smallest."""
    torch.manual_seed(7)
    layer = SCS2d(16, 32, 3, pool=MaxAbsPool2d(2, ceil_mode=True))
    x, parameters = torch.randn(8, 16, 15, 15), list(layer.parameters())
    found = gradients(layer, x, parameters)[1]
    layer.double()
    exact = gradients(lambda x: expected(layer, x), x.double(), list(layer.parameters()))[1]
    for single, wanted in zip(found, exact, strict=True):
        close(single.double(), wanted, 2e-5)  # of the largest: sums over 8 images of terms that each lose a few digits


@pytest.mark.parametrize("pool", [None, MaxAbsPool2d(2), nn.MaxPool2d(2)], ids=repr)
@pytest.mark.parametrize("relu", [False, True])
def test_the_next_layer_may_overwrite_the_output(pool, relu):
    torch.manual_seed(6)
    layer = SCS2d(3, 4, 3, pool=pool, relu=relu).double()
    x, parameters = torch.randn(2, 3, 8, 8, dtype=torch.double), list(layer.parameters())
    wanted = gradients(lambda x: expected(layer, x) * -2, x, parameters)
    found = gradients(lambda x: layer(x).mul_(-2), x, parameters)
    for actual, slope in zip(found[1], wanted[1], strict=True):
        close(actual, slope, 1e-9, floor=0.1)


def test_gradients_wanted_in_inference_mode_are_no_error():
    layer, x = SCS2d(3, 4, 3), torch.randn(2, 3, 8, 8)
    with torch.inference_mode(), torch.enable_grad():
        close(layer(x), expected(layer, x), 1e-5)


@pytest.mark.parametrize("groups", [1, 2])
def test_no_images_at_all(groups):
    layer, x = SCS2d(4, 4, 3, groups=groups, pool=MaxAbsPool2d(2)), torch.randn(0, 4, 8, 8, requires_grad=True)
    layer(x).sum().backward()
    assert x.grad.shape == x.shape
    assert not layer.weight.grad.any()


def test_slices_make_no_difference(monkeypatch):
    torch.manual_seed(5)
    layer = SCS2d(3, 4, 3, pool=MaxAbsPool2d(2)).double()
    x, parameters = torch.randn(5, 3, 8, 8, dtype=torch.double), list(layer.parameters())
    whole = gradients(layer, x, parameters)
    for size in (1, 4_000):
        monkeypatch.setattr(sharpening, "SLICE_BYTES", size)
        value, found = gradients(layer, x, parameters)
        close(value, whole[0], 1e-12)
        for actual, wanted in zip(found, whole[1], strict=True):
            close(actual, wanted, 1e-12)


def test_an_attack_pays_for_no_weight_gradients(passes, monkeypatch):
    layer, asked, path = SCS2d(3, 4, 3), [], fused_scs if passes == "compiled" else sharpening
    backward = path.convolution_backward
    monkeypatch.setattr(path, "convolution_backward", lambda *a: asked.append(a[-1]) or backward(*a))
    x = torch.rand(1, 3, 6, 6, requires_grad=True)
    torch.autograd.grad(layer(x).sum(), x)
    assert asked == [False]
    layer(x).sum().backward()
    assert asked == [False, True]
