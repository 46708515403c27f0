"""The compiled passes: against the published B-cos layer, where a map is no number, and where they must stand back.

Their sharpened layers are tested by test_scs_fast.py, which runs both paths.
"""

import itertools

import pytest
import torch
from bcos.modules import BcosConv2d as PublishedConv
from click.testing import CliRunner
from closeness import close, value_and_gradients
from torch import nn
from torch._subclasses import FakeTensorMode
from torch.utils.flop_counter import FlopCounterMode

from scs_eval import create_model
from scs_eval.cli.main import cli
from scs_eval.models.explain.dynamic_linear import explanation_mode
from scs_eval.models.layers import BcosConv2d, MaxAbsPool2d, SCS2d
from scs_eval.models.layers.kernels import fused

needs_library = pytest.mark.skipif(fused.LIBRARY is None, reason="installed without a compiler")
PLACES = [(1, 1, 0, 1), (3, 1, 1, 1), (3, 2, 1, 1), (7, 2, 3, 1), (3, 1, 2, 2)]
# The published layer cannot dilate with MaxOut.
GRID = [row for row in itertools.product([1.25, 1.6, 2, 2.5], [1, 2], PLACES) if row[1] == 1 or row[2][3] == 1]


def channels_last(x):
    return x.contiguous(memory_format=torch.channels_last)


@needs_library
def test_the_wheel_of_this_machine_has_them():
    """A machine with a compiler that ends up without the library would run the slower path, and nobody would know."""
    assert fused.serves(torch.rand(1, 3, 4, 4), groups=1)


@needs_library
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize(("b", "max_out", "place"), GRID)
def test_bcos_channels_last_matches_the_published_layer(b, max_out, place, dtype, monkeypatch):
    torch.manual_seed(0)
    kernel, stride, padding, dilation = place
    published = PublishedConv(5, 7, kernel, stride, padding, dilation, b=b, max_out=max_out).to(dtype)
    ours = BcosConv2d(5, 7, kernel, stride, padding, dilation, b=b, max_out=max_out).to(dtype)
    ours.load_state_dict(published.state_dict())
    x, calls, call = channels_last(torch.randn(2, 5, 12, 11, dtype=dtype)), [], fused._call
    monkeypatch.setattr(fused, "_call", lambda name, *rest: calls.append(name) or call(name, *rest))
    results = (value_and_gradients(m, x, parameters=list(m.parameters()), explain=False) for m in (ours, published))
    for actual, wanted in zip(*results, strict=True):
        # Rounding of two orders of summation; gradients pass through it twice.
        close(actual, wanted, 1e-5 if dtype == torch.float32 else 1e-12)
    assert {"patch_norm", "align", "align_backward", "norm_gradient"} <= set(calls)


@pytest.mark.usefixtures("passes")
@pytest.mark.parametrize("max_out", [1, 2])
def test_bcos_gradients_have_gradients(max_out):
    layer = BcosConv2d(3, 4, 3, b=1.7, max_out=max_out, dtype=torch.float64)
    x = channels_last(torch.randn(2, 3, 6, 6, dtype=torch.float64)).requires_grad_()

    def run(x, weight):
        return torch.func.functional_call(layer, {"weight": weight}, (x,))

    assert torch.autograd.gradgradcheck(run, (x, layer.weight))


@pytest.mark.usefixtures("passes")
@pytest.mark.parametrize("name", ["rohrer25k_scs", "rohrer25k_ssdp_relu_maxpool", "resnet20_bcos", "resnet20_scs_relu"])
def test_explaining_changes_no_logit(name):
    model, x = create_model(name).eval(), torch.rand(2, 3, 32, 32)
    with torch.no_grad():
        plain = model(x)
        with explanation_mode():
            assert torch.equal(model(x), plain)


@needs_library
@pytest.mark.parametrize("name", ["rohrer25k_scs", "resnet20_bcos"])
def test_an_image_alone_has_the_bits_that_it_has_among_others(name):
    """Sums run within an image, so neither its neighbours nor the threads may show."""
    torch.manual_seed(0)
    x = channels_last(torch.randn(5, 6, 16, 16))
    layer = SCS2d(6, 9, 3, padding=1, pool=MaxAbsPool2d(2)) if "scs" in name else BcosConv2d(6, 9, 3, padding=1)
    slopes = []
    for threads in (1, 2):
        torch.set_num_threads(threads)
        try:
            inputs = x.clone(memory_format=torch.preserve_format).requires_grad_()
            y = layer(inputs)
            slopes.append((y.detach(), torch.autograd.grad(y.square().sum(), inputs)[0]))
        finally:
            torch.set_num_threads(1)
    for one, other in zip(*slopes, strict=True):
        assert torch.equal(one, other)


@pytest.mark.usefixtures("passes")
@pytest.mark.parametrize("pool", [None, MaxAbsPool2d(2), nn.MaxPool2d(2)], ids=repr)
@pytest.mark.parametrize("relu", [False, True])
@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_what_is_no_number_does_not_vanish(pool, relu, bad):
    torch.manual_seed(0)
    layer, x = SCS2d(3, 4, 3, pool=pool, relu=relu), torch.rand(1, 3, 8, 8)
    x[0, 0, 4, 4] = bad
    with torch.no_grad():
        assert layer(x).isnan().any()  # inf over inf


@needs_library
@pytest.mark.parametrize("exponent", [0.1, 1.0, 2.5, 40.0])
def test_logarithms_and_powers_over_all_magnitudes(exponent):
    """One kernel of weight 1 that is not normalised: y = sign(x) (|x| + eps)^p itself, down to gradual underflow."""
    x = torch.logspace(-30, 30, 4096, dtype=torch.float64).float()
    x = torch.cat([x, -x, torch.tensor([0.0, -0.0])]).view(1, 1, 2, -1)
    y = torch.empty_like(x)
    fused.sharpen(x, None, torch.full((1,), exponent), y, None, None, pool=None, relu=False, eps=1e-6)
    exact = x.double().sign() * (x.abs() + 1e-6).double() ** exponent  # the sum is float32's in both
    # An ulp in log2, which is at most 100, counts as p · 100 · 6e-8 in the exponent.
    tolerance = 2e-7 + 1e-5 * exponent
    large = exact.abs() >= 2.0**-126
    finite = large & (exact.abs() <= torch.finfo(torch.float32).max * (1 - tolerance))
    assert ((y - exact).abs()[finite] <= tolerance * exact.abs()[finite]).all()
    assert (y[~large].abs() <= 2.0**-125).all()
    assert torch.equal(y.sign()[large], x.sign()[large])


@needs_library
def test_they_stand_back_where_operations_are_recorded():
    layer, x = SCS2d(3, 4, 3, padding=1, pool=MaxAbsPool2d(2)).eval(), torch.rand(2, 3, 8, 8)
    other = torch.rand(2, 3, 8, 8)
    with torch.no_grad():
        wanted = layer(other)
        traced = torch.jit.trace(layer, x, check_trace=False)
    close(traced(other), wanted, 1e-5)  # another path's rounding; a frozen map would be another image's
    with FlopCounterMode(display=False):
        assert not fused.serves(x, groups=1)
    with FakeTensorMode():
        assert SCS2d(3, 4, 3)(torch.empty(2, 3, 8, 8)).shape == (2, 4, 6, 6)
    assert SCS2d(3, 4, 3, device="meta")(x.to("meta")).shape == (2, 4, 6, 6)


def test_windows_too_large_for_a_byte_take_the_other_path():
    layer, x = SCS2d(2, 3, 1, pool=nn.MaxPool2d(17)), torch.rand(1, 2, 17, 17)
    assert not fused.pools(layer.pool)
    assert layer(x).shape == (1, 3, 1, 1)


@pytest.mark.usefixtures("passes")
def test_doctor_says_which_is_used():
    result = CliRunner().invoke(cli, ["doctor", "--system"])
    assert result.exit_code == 0, result.output
    line = next(line for line in result.output.splitlines() if line.startswith("layers"))
    assert ("compiled" if fused.LIBRARY is not None else "no compiler") in line


def test_a_library_of_another_machine_is_no_error(tmp_path, monkeypatch):
    suffix = fused.EXTENSION_SUFFIXES[0]
    (tmp_path / f"_fused{suffix}").write_bytes(b"not a library")
    monkeypatch.setattr(fused, "__file__", str(tmp_path / "fused.py"))
    assert fused._load() is None
