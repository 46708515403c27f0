"""The switch of explanation mode: threads, nesting, exceptions, compile, vmap, checkpointing; precision and modes."""

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from scs_eval.errors import InputError
from scs_eval.models.explain import checkpointing
from scs_eval.models.explain.decomposition import decompose
from scs_eval.models.explain.dynamic_linear import explaining, explanation_mode
from scs_eval.models.layers import BatchNorm, BcosConv2d, BcosLinear, LayerNorm, SCS2d, SelfAttention, SharpenedSDP2d
from scs_eval.models.layers.token_norm import TokenNorm
from scs_eval.models.zoo.registry import create_model

X = torch.rand(2, 4, 6, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64) + 0.1


class Tokens(nn.Module):
    """Layers on tokens, between maps."""

    def __init__(self, *layers: nn.Module) -> None:
        super().__init__()
        self.layers = nn.Sequential(*layers)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x.flatten(2).transpose(1, 2))


def layers() -> dict[str, nn.Module]:
    torch.manual_seed(0)
    found = {
        "bcos": BcosConv2d(4, 5, 3, max_out=2),
        "bcos plain": BcosConv2d(4, 5, 3, max_out=3),  # without a hand-written backward pass
        "scs": SCS2d(4, 5, 3),
        "ssdp": SharpenedSDP2d(4, 5, 3),
        "norm": nn.Sequential(LayerNorm(4, centred=True), nn.Conv2d(4, 5, 3)),
        "uncentred norm": nn.Sequential(BatchNorm(4), nn.Conv2d(4, 5, 3)),
        "linear": Tokens(BcosLinear(4, 5)),
        "attention": Tokens(TokenNorm(4, centred=True), SelfAttention(4, 2, head_width=2)),
        "overwritten": nn.Sequential(SCS2d(4, 5, 3), nn.ReLU(inplace=True), BcosConv2d(5, 3, 1), nn.ReLU(inplace=True)),
    }
    return {name: layer.double().train() for name, layer in found.items()}


def gradient(layer: nn.Module, *, explain: bool, again: bool | None = None, reentrant: bool = False) -> torch.Tensor:
    """d(weighted sum of the output)/dx; `again`: checkpointed, with the mode in which the backward pass runs."""
    x = X.clone().requires_grad_()
    with explanation_mode(explain):
        y = layer(x) if again is None else checkpoint(layer, x, use_reentrant=reentrant)
        weights = torch.linspace(-1, 2, y.numel(), dtype=y.dtype).view_as(y)
    with explanation_mode(bool(again)):
        (y * weights).sum().backward()
    return x.grad


@pytest.mark.parametrize("name", layers())
@pytest.mark.parametrize("forward", [True, False])
@pytest.mark.parametrize("backward", [True, False])
def test_checkpointed_layers_have_their_forward_passs_gradient(name: str, forward: bool, backward: bool) -> None:
    layer = layers()[name]
    wanted, other = gradient(layer, explain=forward), gradient(layer, explain=not forward)
    assert not torch.allclose(wanted, other)  # or nothing could go wrong
    torch.testing.assert_close(gradient(layer, explain=forward, again=backward), wanted, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("again", [True, False])
def test_checkpointed_passes_of_both_modes_may_be_alive_at_once(again: bool) -> None:
    layer, x = layers()["bcos"], X.clone().requires_grad_()
    kept = checkpoint(layer, x, use_reentrant=False)  # alive, in the other mode
    wanted = gradient(layer, explain=True)
    torch.testing.assert_close(gradient(layer, explain=True, again=again), wanted, rtol=1e-12, atol=1e-14)
    assert kept.requires_grad


@pytest.mark.parametrize("name", ["bcos", "linear"])
def test_reentrant_checkpointing_is_refused_inside_the_mode_only(name: str) -> None:
    layer = layers()[name]
    wanted = gradient(layer, explain=False)
    for backward in (True, False):  # the forward pass ran outside the mode
        actual = gradient(layer, explain=False, again=backward, reentrant=True)
        torch.testing.assert_close(actual, wanted, rtol=1e-12, atol=1e-14)
    with pytest.raises(RuntimeError, match="use_reentrant=False"):
        gradient(layer, explain=True, again=True, reentrant=True)
    with torch.no_grad(), explanation_mode():
        layer(X)  # without a gradient there is nothing to refuse


PRIVATE = ["_graph_task", "_default_hooks", "_in_functorch", "_reentrant_code", "names in a closure"]


@pytest.fixture(params=PRIVATE)
def other_torch(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """A version of torch that lacks one of the names that it keeps to itself."""
    if request.param in vars(checkpointing):
        monkeypatch.setattr(checkpointing, request.param, None)
    else:
        other_closure = SimpleNamespace(unwrap=lambda pack: lambda value: pack(value))
        monkeypatch.setattr(checkpointing, "inspect", other_closure)


@pytest.mark.usefixtures("other_torch")
@pytest.mark.parametrize("name", ["bcos", "bcos plain", "scs", "norm", "attention"])
@pytest.mark.parametrize("reentrant", [False, True])
def test_with_another_torch_a_gradient_is_right_or_refused(name: str, reentrant: bool) -> None:
    layer = layers()[name]
    plain, explained = gradient(layer, explain=False), gradient(layer, explain=True)
    assert not torch.allclose(plain, explained)
    actual = gradient(layer, explain=False, again=False, reentrant=reentrant)
    torch.testing.assert_close(actual, plain, rtol=1e-12, atol=1e-14)
    for forward, backward, wanted in ((True, True, explained), (True, False, explained), (False, True, plain)):
        try:
            actual = gradient(layer, explain=forward, again=backward, reentrant=reentrant)
        except RuntimeError as error:
            assert "explanation mode" in str(error)  # noqa: PT017 -- being right is as good
        else:
            torch.testing.assert_close(actual, wanted, rtol=1e-12, atol=1e-14)


@pytest.mark.usefixtures("other_torch")
def test_with_another_torch_checkpointing_in_the_mode_is_refused_by_name() -> None:
    with pytest.raises(RuntimeError, match="explanation mode and the activation checkpointing of torch"):
        gradient(layers()["bcos"], explain=True, again=True)


def test_the_backward_pass_may_run_in_another_thread() -> None:
    layer, x = layers()["bcos"], X.clone().requires_grad_()
    with explanation_mode():
        total = checkpoint(layer, x, use_reentrant=False).sum()
    with ThreadPoolExecutor(1) as pool:
        pool.submit(total.backward).result()
    theirs = x.grad
    x.grad = None
    with explanation_mode():
        layer(x).sum().backward()
    torch.testing.assert_close(theirs, x.grad, rtol=1e-12, atol=1e-14)


THREADS, TRIALS = 4, 20


@pytest.mark.parametrize("trial", range(TRIALS))
def test_threads_do_not_see_each_others_mode(trial: int) -> None:
    """Four threads with a model each, two of them explaining; what they enter and leave overlaps."""
    models = [BcosConv2d(3, 4, 3).double() for _ in range(THREADS)]
    images = torch.rand(1, 3, 8, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(trial))
    alone = [_input_gradient(model, images, explain=bool(i % 2)) for i, model in enumerate(models)]
    barrier = Barrier(THREADS)

    def work(i: int) -> list[torch.Tensor]:
        barrier.wait()
        return [_input_gradient(models[i], images, explain=bool(i % 2)) for _ in range(10)]

    with ThreadPoolExecutor(THREADS) as pool:
        together = list(pool.map(work, range(THREADS)))
    assert not explaining()
    for wanted, results in zip(alone, together, strict=True):
        assert all(torch.equal(wanted, result) for result in results)


def _input_gradient(model: nn.Module, images: torch.Tensor, *, explain: bool) -> torch.Tensor:
    x = images.clone().requires_grad_()
    with explanation_mode(explain):
        y = model(x)
    return torch.autograd.grad(y.sum(), x)[0]


@pytest.mark.parametrize("inside", [False, True])
def test_a_compiled_network_follows_the_mode(inside: bool) -> None:
    """Also where the context is entered inside what is compiled, and after threads."""
    layer = BcosConv2d(3, 4, 3).double()
    x = torch.rand(1, 3, 8, 8, dtype=torch.float64)

    def forward(image: torch.Tensor, explain: bool) -> torch.Tensor:
        if not inside:
            return layer(image)
        with explanation_mode(explain):
            return layer(image)

    compiled = torch.compile(forward, backend="aot_eager")
    for explain in (False, True, False):
        image = x.clone().requires_grad_()
        with explanation_mode(explain and not inside):
            y = compiled(image, explain)
        torch.testing.assert_close(
            torch.autograd.grad(y.sum(), image)[0], _input_gradient(layer, x, explain=explain), rtol=1e-12, atol=1e-14
        )
    torch._dynamo.reset()


def test_vmap_in_the_mode() -> None:
    layer, x = layers()["bcos"], X
    with explanation_mode():
        per_image = torch.func.vmap(torch.func.grad(lambda image: layer(image[None]).sum()))(x)
    torch.testing.assert_close(per_image, _input_gradient(layer, x, explain=True), rtol=1e-12, atol=1e-14)


# With MaxPool: MaxAbsPool turns a rounding into another sign where the strongest two responses are nearly opposite.
SHARPENED = [f"rohrer100k_{layer}_maxpool" for layer in ("scs", "cos", "ssdp")]
HALF = [*SHARPENED, "rohrer100k_bcos", "resnet20_bcos_gn", "resnet20_bcos", "resnet20_scs"]


@pytest.mark.parametrize("name", HALF)
def test_networks_of_half_precision_give_the_same_logits_to_its_digits(name: str) -> None:
    model, images = create_model(name).eval(), torch.rand(2, 3, 32, 32, generator=torch.Generator().manual_seed(1))
    wanted = model(images)
    actual = model.half()(images.half())
    assert actual.dtype == torch.float16
    # 11 binary digits, 2⁻¹¹ = 5e-4 per rounding of each layer's input, weights and output
    assert (actual - wanted).norm() <= 5e-3 * wanted.norm()


@pytest.mark.parametrize("name", ["rohrer100k_scs", "rohrer100k_bcos"])
def test_a_decomposition_is_the_same_in_inference_mode_and_autocast(name: str) -> None:
    model, images = create_model(name).eval(), torch.rand(2, 3, 32, 32)
    targets = torch.tensor([1, 2])
    wanted = decompose(model, images, targets)
    with torch.autocast("cpu", dtype=torch.float16):
        autocast = decompose(model, images, targets)
    with torch.inference_mode():
        inference = decompose(model, images.clone(), targets)
    for parts in (autocast, inference):
        assert torch.equal(parts.weights, wanted.weights)
        assert torch.equal(parts.logits, wanted.logits)


def test_a_model_made_in_inference_mode_is_refused_by_name() -> None:
    with torch.inference_mode():
        model = create_model("rohrer100k_scs").eval()
    with pytest.raises(InputError, match=r"made outside torch\.inference_mode"):
        decompose(model, torch.rand(1, 3, 32, 32), torch.tensor([0]))
