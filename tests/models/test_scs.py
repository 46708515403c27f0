"""The sharpened layers against patch-by-patch float64 formulas, Rohrer's layer and numerical derivatives."""

import copy
import io
import pickle

import pytest
import reference
import torch
import torch.nn.functional as F
from closeness import close, value_and_gradients
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from scs_eval.models.layers import CosineSim2d, MaxAbsPool2d, SCS2d, SharpenedSDP2d, constrain_
from scs_eval.models.layers.kernels import scs as sharpening

GEOMETRIES = [
    {},
    {"stride": 2, "padding": 1},
    {"stride": (2, 1), "padding": (0, 2)},
    {"dilation": 2, "padding": 2},
    {"groups": 2, "padding": 1},
    {"groups": 4, "dilation": (1, 2), "stride": 2},
    {"padding": "same"},
    {"padding": "same", "padding_mode": "circular", "groups": 2},
    {"padding": 1, "padding_mode": "reflect"},
    {"padding": (1, 2), "padding_mode": "replicate", "stride": 2, "dilation": 2},
    {"padding": "valid"},
]


def expected(layer, x, **geometry):
    if isinstance(layer, SCS2d):
        return reference.scs(x, layer.weight, layer.p, layer.log_q.exp(), **geometry)
    return reference.sharpened_sdp(x, layer.weight, layer.p, **geometry)


@pytest.mark.parametrize("kind", [SCS2d, SharpenedSDP2d, CosineSim2d])
@pytest.mark.parametrize("kernel", [1, 3, (3, 2)])
@pytest.mark.parametrize("geometry", GEOMETRIES, ids=str)
def test_matches_reference_in_value_and_gradient(kind, kernel, geometry):
    torch.manual_seed(0)
    layer = kind(4, 8, kernel, **geometry).double()
    x = torch.randn(2, 4, 9, 8, dtype=torch.double)
    formulas = (layer, lambda x: expected(layer, x, **geometry))
    results = (value_and_gradients(formula, x, parameters=list(layer.parameters())) for formula in formulas)
    for actual, wanted in zip(*results, strict=True):
        close(actual, wanted, 1e-10, floor=0.1)


@settings(max_examples=60, deadline=None)
@given(
    kernel=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    stride=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    padding=st.tuples(st.integers(0, 2), st.integers(0, 2)),
    dilation=st.tuples(st.integers(1, 2), st.integers(1, 2)),
    groups=st.sampled_from([1, 2, 4]),
    mode=st.sampled_from(["zeros", "reflect", "replicate", "circular"]),
    seed=st.integers(0, 99),
)
def test_any_geometry(kernel, stride, padding, dilation, groups, mode, seed):
    torch.manual_seed(seed)
    geometry = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups, "padding_mode": mode}
    layer = SCS2d(4, 4, kernel, **geometry).double()
    x = torch.randn(1, 4, 7, 6, dtype=torch.double)
    close(layer(x), expected(layer, x, **geometry), 1e-10)


@pytest.mark.parametrize("kind", [SCS2d, SharpenedSDP2d])
@pytest.mark.parametrize("relu", [False, True])
@pytest.mark.parametrize(
    "pool",
    [nn.MaxPool2d(2, ceil_mode=True), MaxAbsPool2d(2, ceil_mode=True), MaxAbsPool2d(3, 2), nn.MaxPool2d(3, 2, 1)],
)
@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("slice_bytes", [1, 10_000, 4 << 20])  # one image at a time, two and one, all at once
def test_pooling_first_equals_pooling_last(kind, relu, pool, groups, slice_bytes, monkeypatch):
    monkeypatch.setattr(sharpening, "SLICE_BYTES", slice_bytes)
    torch.manual_seed(1)
    layer = kind(4, 6, 3, groups=groups, relu=relu, pool=pool).double()
    x = torch.randn(3, 4, 9, 9, dtype=torch.double)

    def pooled_last(x):
        y = pool(expected(layer, x, groups=groups))
        return F.relu(y) if relu else y

    results = (value_and_gradients(f, x, parameters=list(layer.parameters())) for f in (layer, pooled_last))
    for actual, wanted in zip(*results, strict=True):
        close(actual, wanted, 1e-10)


class RohrerLayer(nn.Module):
    """The published layer from its formula: ones-convolution norm, one norm per output channel, two max-pools."""

    def __init__(self, inputs, outputs, kernel, padding):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(outputs, inputs, kernel, kernel) * 2 - 1)
        self.p = nn.Parameter(torch.rand(1, outputs, 1, 1) * 2 + 1)
        self.log_q = nn.Parameter(torch.full((1, 1, 1, 1), 1e-3).log())
        self.padding = padding

    def forward(self, x):
        weight = self.weight.clamp(-1, 1)
        weight = weight / weight.square().sum((1, 2, 3), keepdim=True).sqrt()
        energy = F.conv2d(x.square(), torch.ones_like(weight[:1]), padding=self.padding)
        norm = ((energy + 1e-6).sqrt() + self.log_q.exp()).repeat(1, len(weight), 1, 1)
        c = F.conv2d(x, weight, padding=self.padding) / norm
        return c.sign() * (c.abs() + 1e-6) ** self.p.clamp(min=0.1)


def test_state_dict_of_rohrers_layer_loads_and_answers_alike():
    torch.manual_seed(2)
    published = RohrerLayer(3, 32, 3, 1)
    with torch.no_grad():  # as an optimiser leaves them, a little beyond the limits
        published.weight[0, 0, 0, 0] = 1.5
        published.p[0, 0] = -1.0
    layer = SCS2d(3, 32, 3, padding=1)
    layer.load_state_dict(published.state_dict(), strict=True)
    x = torch.rand(4, 3, 16, 16)
    close(layer(x), published(x), 1e-6)
    assert layer.p.shape == (1, 32, 1, 1)
    assert layer.log_q.shape == (1, 1, 1, 1)


@pytest.mark.parametrize("pool", [None, MaxAbsPool2d(2), nn.MaxPool2d(2)])
@pytest.mark.parametrize("kind", [SCS2d, SharpenedSDP2d])
def test_gradcheck_first_and_second_order(kind, pool):
    torch.manual_seed(3)
    layer = kind(2, 3, 2, pool=pool).double()
    names = [name for name, _ in layer.named_parameters()]
    values = [p.detach().clone().requires_grad_() for p in layer.parameters()]
    x = torch.randn(2, 2, 5, 5, dtype=torch.double, requires_grad=True)

    def run(x, *parameters):
        return torch.func.functional_call(layer, dict(zip(names, parameters, strict=True)), (x,))

    assert torch.autograd.gradcheck(run, (x, *values))
    assert torch.autograd.gradgradcheck(run, (x, *values))


@pytest.mark.parametrize("p", [0.1, 0.5, 1.0, 3.0])
@pytest.mark.parametrize("where", ["input", "kernel", "p"])
def test_finite_at_zero_and_below_one(p, where):
    layer = SCS2d(2, 3, 3, p=None if where == "p" else p)
    x = torch.zeros(1, 2, 5, 5) if where == "input" else torch.randn(1, 2, 5, 5)
    with torch.no_grad():
        if where == "kernel":
            layer.weight[0] = 0
        if where == "p":
            layer.p.fill_(p)
    x.requires_grad_()
    y = layer(x)
    y.sum().backward()
    assert all(torch.isfinite(t).all() for t in (y, x.grad, *(q.grad for q in layer.parameters())))
    if where == "kernel":
        assert (y[:, 0] == 0).all()


@pytest.mark.parametrize("kind", [SCS2d, SharpenedSDP2d])
def test_finite_after_a_hundred_steps(kind):
    torch.manual_seed(4)
    net = nn.Sequential(kind(3, 8, 3, pool=MaxAbsPool2d(2)), kind(8, 8, 3, relu=True), nn.Flatten(), nn.Linear(72, 4))
    optimiser = torch.optim.Adam(net.parameters(), 0.01)
    x, y = torch.rand(16, 3, 12, 12), torch.arange(16) % 4
    first = None
    for _ in range(100):
        loss = F.cross_entropy(net(x), y)
        first = loss.item() if first is None else first
        optimiser.zero_grad()
        loss.backward()
        assert all(torch.isfinite(p.grad).all() for p in net.parameters())
        optimiser.step()
        constrain_(net)
    assert all(torch.isfinite(p).all() for p in net.parameters())
    assert loss.item() < 0.5 * first
    assert all(m.p.min() >= 0.1 for m in net.modules() if isinstance(m, kind))


def test_limits_hold_the_value_and_let_the_gradient_through():
    layer = SCS2d(1, 2, 1)
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([2.0, 0.5]).view(2, 1, 1, 1))
        layer.p.copy_(torch.tensor([-5.0, 2.0]).view(1, 2, 1, 1))
    layer(torch.full((1, 1, 1, 1), 0.01)).sum().backward()
    assert layer.p.grad[0, 0].item() != 0
    layer.constrain_()
    assert layer.weight.flatten().tolist() == [1.0, 0.5]
    assert layer.p.flatten().tolist() == pytest.approx([0.1, 2.0])


def test_fixed_exponent_is_no_parameter():
    layer = SCS2d(3, 4, 3, p=2.5)
    assert {name for name, _ in layer.named_parameters()} == {"weight", "log_q"}
    assert set(layer.state_dict()) == {"weight", "log_q"}
    assert (layer.p == 2.5).all()
    cosine = CosineSim2d(3, 4, 3)
    assert {name for name, _ in cosine.named_parameters()} == {"weight", "log_q"}
    assert (cosine.p == 1).all()


@pytest.mark.parametrize("wrong", [{"bias": True}, {"pol": None}, {"P": 2}])
@pytest.mark.parametrize("kind", [SCS2d, SharpenedSDP2d, CosineSim2d])
def test_unknown_keyword_raises(kind, wrong):
    with pytest.raises(TypeError):
        kind(3, 4, 3, **wrong)


def test_impossible_settings_raise():
    with pytest.raises(TypeError, match="commute"):
        SCS2d(3, 4, 3, pool=nn.AvgPool2d(2))
    with pytest.raises(ValueError, match="positive exponent"):
        SCS2d(3, 4, 3, p=-1)


def network():
    torch.manual_seed(5)
    return nn.Sequential(SCS2d(3, 6, 3, pool=MaxAbsPool2d(2)), SharpenedSDP2d(6, 4, 3, relu=True))


@pytest.mark.parametrize("way", ["deepcopy", "pickle", "save"])
def test_copies_answer_alike(way):
    net, x = network(), torch.rand(2, 3, 10, 10)
    buffer = io.BytesIO()
    if way == "save":
        torch.save(net.state_dict(), buffer)
        buffer.seek(0)
        twin = network()
        for p in twin.parameters():
            p.data.zero_()
        twin.load_state_dict(torch.load(buffer, weights_only=True))
    else:
        twin = copy.deepcopy(net) if way == "deepcopy" else pickle.loads(pickle.dumps(net))
    assert torch.equal(net(x), twin(x))


def test_compiled_answers_alike_in_value_and_gradient():
    net, x = network(), torch.rand(2, 3, 10, 10)
    net(x).sum().backward()
    plain = [p.grad.clone() for p in net.parameters()]
    net.zero_grad()
    y = torch.compile(net, backend="aot_eager")(x)
    y.sum().backward()
    close(y, net(x), 1e-6)
    for p, wanted in zip(net.parameters(), plain, strict=True):
        close(p.grad, wanted, 1e-5)


def test_under_torch_func():
    net, x = network(), torch.rand(4, 3, 10, 10)
    parameters = {name: p.detach() for name, p in net.named_parameters()}

    def loss(parameters, image):
        return torch.func.functional_call(net, parameters, (image[None],)).square().sum()

    per_sample = torch.func.vmap(torch.func.grad(loss), (None, 0))(parameters, x)
    for i in range(4):
        net.zero_grad()
        net(x[i : i + 1]).square().sum().backward()
        for name, p in net.named_parameters():
            close(per_sample[name][i], p.grad, 1e-5)
    tangent = torch.func.jvp(lambda x: net(x), (x,), (torch.ones_like(x),))[1]
    step = (net.double()(x.double() + 1e-6) - net(x.double() - 1e-6)) / 2e-6
    close(tangent.double(), step, 1e-4)


def test_layer_after_may_work_in_place():
    torch.manual_seed(6)
    layer, x = SCS2d(3, 4, 3), torch.rand(1, 3, 6, 6)
    layer(x).relu_().sum().backward()
    in_place = layer.weight.grad.clone()
    layer.zero_grad()
    layer(x).relu().sum().backward()
    assert torch.equal(in_place, layer.weight.grad)


@pytest.mark.parametrize("ceil_mode", [False, True])
def test_max_abs_pool_against_windows(ceil_mode):
    torch.manual_seed(7)
    # few distinct values, so that ties of magnitude with either sign occur in most windows
    x = torch.randint(-2, 3, (3, 4, 7, 7)).float()
    pool = MaxAbsPool2d(2, 2, ceil_mode=ceil_mode)
    for layout in (torch.contiguous_format, torch.channels_last):
        assert torch.equal(pool(x.contiguous(memory_format=layout)), reference.max_abs_pool(x, 2, 2, ceil_mode))
    assert torch.equal(
        pool(x[:, :, 1:, :-1].transpose(2, 3)), reference.max_abs_pool(x[:, :, 1:, :-1].mT, 2, 2, ceil_mode)
    )


@pytest.mark.parametrize(("kernel", "stride", "padding", "dilation"), [(3, 2, 1, 1), (2, 1, 1, 2), (3, 1, 0, 2)])
def test_max_abs_pool_padding_never_wins(kernel, stride, padding, dilation):
    x = torch.randn(2, 3, 9, 8)
    top, bottom = (F.max_pool2d(part, kernel, stride, padding, dilation) for part in (x, -x))
    wanted = torch.where(top >= bottom, top, -bottom)  # two poolings, as published; ties have measure zero here
    assert torch.equal(MaxAbsPool2d(kernel, stride, padding, dilation)(x), wanted)


@pytest.mark.slow
def test_compiled_by_inductor():
    net, x = network(), torch.rand(2, 3, 10, 10)
    close(torch.compile(net)(x), net(x), 1e-6)


def test_max_abs_pool_sends_the_gradient_to_the_winner():
    x = torch.tensor([[1.0, -3.0], [2.0, 0.5]]).view(1, 1, 2, 2).requires_grad_()
    y = MaxAbsPool2d(2)(x)
    y.backward(torch.tensor(5.0).view(1, 1, 1, 1))
    assert y.item() == -3
    assert x.grad.flatten().tolist() == [0, 5, 0, 0]
