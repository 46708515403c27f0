"""Where rounding decides: pooling ties in W(x), which are broken alike, and ReLU gates in gradients."""

import copy

import pytest
import torch
from torch import Tensor, nn

from scs_eval import create_model, load_data, load_model
from scs_eval.models.architectures import _blocks
from scs_eval.models.explain.decomposition import decompose
from scs_eval.models.layers import MaxAbsPool2d
from scs_eval.models.layers.kernels import dispatch
from scs_eval.models.layers.pooling import first_of_equals

IMAGES, BATCHES = load_data("sample", n=100), load_data("sample", n=40)


def rows(model: nn.Module, images: Tensor) -> Tensor:
    with torch.no_grad():
        targets = model(images).argmax(1)
    return decompose(model, images, targets).weights.flatten(1)


@pytest.fixture
def formula(monkeypatch):
    """Layers compute by their formula, as torch.compile gets it, in the caller's memory layout."""

    def switch() -> None:
        monkeypatch.setattr(dispatch, "replaceable", lambda x: False)
        monkeypatch.setattr(_blocks, "replaceable", lambda x: False)

    return switch


def test_pooling_ties_are_broken_alike_in_both_paths(formula) -> None:
    """Neighbouring patches of an even sky are equal; where rounding chose among them, 13 of 100 rows differed."""
    model, images = load_model("rohrer100k_scs").double(), IMAGES.images.double()
    fast = rows(model, images)
    formula()
    plain = rows(model, images)
    assert ((fast - plain).norm(dim=1) <= 1e-12 * plain.norm(dim=1)).all()  # fp64 through three layers


def test_explaining_ties_changes_no_logit_and_leaves_nothing_out() -> None:
    model, images = load_model("rohrer100k_scs").double(), IMAGES.images[:20].double()
    with torch.no_grad():
        logits = model(images)
    parts = decompose(model, images, logits.argmax(1))
    assert torch.equal(parts.logits, logits.max(1).values)
    assert (parts.residual.abs() <= 1e-12 * parts.contributions.abs().sum((1, 2, 3))).all()


POOLS = [
    nn.MaxPool2d(2, ceil_mode=True),
    nn.MaxPool2d(3, 2, 1),
    nn.MaxPool2d(2, 2, dilation=2),
    nn.MaxPool2d((3, 2), (1, 2), (1, 0)),
    MaxAbsPool2d(2, ceil_mode=True),
    MaxAbsPool2d(3, 2, 1),
]


@pytest.mark.parametrize("pool", POOLS, ids=str)
def test_without_ties_the_winners_are_torchs(pool) -> None:
    x = torch.randn(2, 3, 11, 9, generator=torch.Generator().manual_seed(0))
    settings = (pool.kernel_size, pool.stride, pool.padding, pool.dilation, pool.ceil_mode)
    strength = x.abs() if isinstance(pool, MaxAbsPool2d) else x
    _, wanted = nn.functional.max_pool2d(strength, *settings, return_indices=True)
    assert torch.equal(first_of_equals(x, pool(x), pool), wanted)
    nearly = torch.ones(1, 1, 11, 9) - 1e-7 * torch.rand(1, 1, 11, 9)  # equal but for one unit in the last place
    _, first = nn.functional.max_pool2d(torch.ones(1, 1, 11, 9), *settings, return_indices=True)
    assert torch.equal(first_of_equals(nearly, pool(nearly), pool), first)


def gradients(model: nn.Module, images: Tensor, labels: Tensor) -> dict[str, Tensor]:
    model.zero_grad()
    nn.functional.cross_entropy(model(images), labels).backward()
    return {name: parameter.grad.double() for name, parameter in model.named_parameters()}


def rounded(model: nn.Module, seed: int) -> nn.Module:
    """The network in float64, with noise of four float32 roundings after every layer."""
    generator = torch.Generator().manual_seed(seed)

    def disturb(_module: nn.Module, _inputs: object, output: Tensor) -> Tensor:
        noise = 2 * torch.rand(output.shape, generator=generator, dtype=torch.float64) - 1
        return output * (1 + 2**-22 * noise)

    model = copy.deepcopy(model).double()
    for module in model.modules():
        if not any(True for _ in module.children()):
            module.register_forward_hook(disturb)
    return model


def deviation(actual: dict[str, Tensor], wanted: dict[str, Tensor], *, q: bool) -> float:
    """The largest over parameters, relative; q: over the layers' log_q, each a single number."""
    names = [name for name in wanted if name.endswith("log_q") == q]
    return max(((actual[name] - wanted[name]).norm() / wanted[name].norm()).item() for name in names)


def all_gradients(name: str, batch: int, formula) -> tuple[dict[str, Tensor], list[dict[str, Tensor]], list]:
    model = create_model(name).train()
    chosen = slice(4 * batch, 4 * batch + 4)
    images, labels = BATCHES.images[chosen], BATCHES.labels[chosen]
    exact = gradients(copy.deepcopy(model).double(), images.double(), labels)
    noisy = [gradients(rounded(model, seed), images.double(), labels) for seed in range(3)]
    single = [gradients(copy.deepcopy(model), images, labels)]
    formula()
    single.append(gradients(copy.deepcopy(model), images, labels))
    return exact, single, noisy


@pytest.mark.parametrize("q", [False, True])
def test_float32_gradients_are_those_of_float64_with_rounding(formula, q: bool) -> None:
    """Both paths: neither loses more digits than the formula must. log_q loses the more: its terms nearly cancel."""
    exact, single, noisy = all_gradients("resnet20_scs", 0, formula)
    unavoidable = max(deviation(each, exact, q=q) for each in noisy)
    assert unavoidable <= (1e-2 if q else 1e-4)
    for actual in single:  # a rounding more or less at each of a layer's steps
        assert deviation(actual, exact, q=q) <= 5 * unavoidable


def test_a_relu_gate_that_rounding_flips_moves_a_gradient_by_percents(formula) -> None:
    """Compiled and eager gradients of resnet20_scs_relu differ for this reason, in log_q by tenths.

    In float64 the same batch moves as far when disturbed by float32's roundings; without ReLU (above) it does not.
    """
    exact, single, noisy = all_gradients("resnet20_scs_relu", 3, formula)
    assert max(deviation(each, exact, q=True) for each in noisy) >= 1e-2
    assert max(deviation(each, exact, q=False) for each in noisy) >= 1e-3
    for actual in single:
        assert deviation(actual, exact, q=False) <= 0.05
