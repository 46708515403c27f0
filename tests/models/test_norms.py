"""The norms against the published package (bias-free through its own wrapper) and torch."""

import pytest
import torch
from bcos.modules import norms as published
from closeness import close, value_and_gradients
from torch import nn

from scs_eval.models.layers import AllNorm, BatchNorm, GroupNorm, InstanceNorm, LayerNorm, PositionNorm

TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-12}  # rounding of x/σ against x·(1/σ)
CHANNELS = 8

PAIRS = {
    "batch": (BatchNorm, published.BatchNorm2d, published.BatchNormUncentered2d),
    "layer": (LayerNorm, published.DetachableGNLayerNorm2d, published.GNLayerNormUncentered2d),
    "instance": (InstanceNorm, published.DetachableGNInstanceNorm2d, published.GNInstanceNormUncentered2d),
    "position": (PositionNorm, published.DetachablePositionNorm2d, published.PositionNormUncentered2d),
    "all": (AllNorm, published.AllNorm2d, published.AllNormUncentered2d),
    "group": (
        lambda channels, **options: GroupNorm(4, channels, **options),
        lambda channels: published.DetachableGroupNorm2d(4, channels),
        lambda channels: published.GroupNormUncentered2d(4, channels),
    ),
}


def pair(kind, centred, bias, dtype):
    ours_class, centred_class, uncentred_class = PAIRS[kind]
    torch.manual_seed(0)
    theirs_class = centred_class if centred else uncentred_class
    theirs = (theirs_class if bias else published.NoBias(theirs_class))(CHANNELS).to(dtype)
    with torch.no_grad():
        theirs.weight.uniform_(0.5, 2)
        if bias:
            theirs.bias.uniform_(-1, 1)
    ours = ours_class(CHANNELS, centred=centred, bias=bias).to(dtype)
    ours.load_state_dict(theirs.state_dict(), strict=True)
    return ours, theirs


def both(layer, x, explain):
    return value_and_gradients(layer, x, parameters=list(layer.parameters()), explain=explain)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("explain", [False, True])
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("centred", [False, True])
@pytest.mark.parametrize("kind", PAIRS)
def test_matches_the_published_norm(kind, centred, bias, training, explain, dtype):
    if training and explain and centred and kind in ("batch", "all"):
        pytest.skip("the package refuses to explain these in training mode")
    ours, theirs = pair(kind, centred, bias, dtype)
    batches = [3 * torch.randn(4, CHANNELS, 5, 6, dtype=dtype) + 1 for _ in range(3)]
    for x in batches[:2]:  # fill the running estimates, twice so that momentum counts
        close(ours(x), theirs(x), TOLERANCE[dtype])
    ours.train(training), theirs.train(training)
    results = (both(layer, batches[2], explain) for layer in (ours, theirs))
    for actual, wanted in zip(*results, strict=True):
        close(actual, wanted, 10 * TOLERANCE[dtype])  # the variance's gradient cancels large terms
    for (name, actual), wanted in zip(ours.named_buffers(), theirs.buffers(), strict=True):
        if centred or name != "running_mean":  # which the uncentred form never reads
            close(actual.double(), wanted.double(), TOLERANCE[dtype])


def test_explanation_mode_matters():
    """Detached and full gradients differ, so the agreement above in both modes is not by accident."""
    for kind in ("layer", "instance", "position", "group"):
        ours, _ = pair(kind, False, False, torch.float64)
        x = torch.randn(2, CHANNELS, 4, 4, dtype=torch.float64)
        full, detached = (both(ours, x, explain)[1] for explain in (False, True))
        assert (full - detached).abs().max() > 0.01 * full.abs().max()


def test_uncentred_means_the_mean_stays():
    x = torch.randn(4, CHANNELS, 6, 6) + 5
    for norm in (BatchNorm(CHANNELS), LayerNorm(CHANNELS), InstanceNorm(CHANNELS), AllNorm(CHANNELS)):
        assert norm(x).mean() > 3
    assert BatchNorm(CHANNELS, centred=True)(x).mean().abs() < 1e-5


def test_centred_batch_norm_is_torchs():
    ours, torchs = BatchNorm(CHANNELS, centred=True, bias=True), nn.BatchNorm2d(CHANNELS)
    for _ in range(3):
        x = torch.randn(4, CHANNELS, 5, 5)
        assert torch.equal(ours(x), torchs(x))
    assert torch.equal(ours.running_var, torchs.running_var)
    assert ours.num_batches_tracked == torchs.num_batches_tracked


def test_groups_must_divide_the_channels():
    with pytest.raises(ValueError, match="divisible"):
        GroupNorm(3, 8)
    with pytest.raises(TypeError):
        BatchNorm(8, centered=True)


@pytest.mark.parametrize("kind", [BatchNorm, AllNorm])
def test_half_precision_input_keeps_statistics_in_full_precision(kind):
    norm = kind(CHANNELS)
    norm(torch.randn(4, CHANNELS, 3, 3).half())
    assert norm.running_var.dtype == torch.float32
    assert (norm.running_var != 1).all()


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last], ids=str)
@pytest.mark.parametrize("kind", PAIRS)
def test_gradients_once_and_twice(kind, layout):
    ours, _ = pair(kind, False, False, torch.float64)
    x = (torch.randn(2, CHANNELS, 3, 2, dtype=torch.double) + 1).contiguous(memory_format=layout).requires_grad_()
    weight = ours.weight.detach().clone().requires_grad_()
    run = lambda x, weight: torch.func.functional_call(ours, {"weight": weight}, (x,))  # noqa: E731
    assert torch.autograd.gradcheck(run, (x, weight))
    assert torch.autograd.gradgradcheck(run, (x, weight))


@pytest.mark.parametrize("kind", PAIRS)
def test_torch_func_sees_through(kind):
    ours, _ = pair(kind, False, False, torch.float64)
    ours.eval()
    x = torch.randn(3, CHANNELS, 3, 3, dtype=torch.double, requires_grad=True)
    wanted = torch.autograd.grad(ours(x).sin().sum(), x)[0]
    close(torch.func.vmap(torch.func.grad(lambda image: ours(image[None]).sin().sum()))(x), wanted, 1e-12)


@pytest.mark.parametrize("kind", PAIRS)
def test_a_large_mean_does_not_spoil_the_variance(kind):
    """A variance from the mean of squares would have no digit left: (1000² + 1) - 1000² in float32."""
    ours, _ = pair(kind, False, False, torch.float32)
    x = torch.randn(4, CHANNELS, 16, 16) + 1000
    close(ours(x).double(), ours.double()(x.double()), 1e-4)  # x itself is rounded to 6e-5 of its deviation
