"""Every listed network builds, has the parameters its source says, runs both ways, and starts where its twins do."""

from functools import partial

import pytest
import torch
from bcos.models import resnet as published
from bcos.modules import BcosConv2d as PublishedConv
from bcos.modules import norms
from torch import nn

from scs_eval import InputError
from scs_eval.models.architectures.bcos_cnn import gamma, temperature
from scs_eval.models.explain.decomposition import decompose
from scs_eval.models.layers import MaxAbsPool2d, SCS2d, SharpenedSDP2d
from scs_eval.models.zoo.catalogue import BIASED, CENTRED, UNCENTRED
from scs_eval.models.zoo.parameter_counts import count, parameter_count
from scs_eval.models.zoo.registry import (
    canonical_name,
    create_model,
    default_classes,
    input_size,
    list_models,
    register_model,
)

# rohrer_nets: trainable parameters of convolution kernels and head; sharpened layers add one p per kernel and one q.
WEIGHTS = {"rohrer25k": 24_730, "rohrer47k": 47_560, "rohrer68k": 67_858, "rohrer100k": 113_514, "rohrer583k": 629_370}
KERNELS = {"rohrer25k": 240, "rohrer47k": 90, "rohrer68k": 168, "rohrer100k": 224, "rohrer583k": 560}
LAYERS = {"rohrer25k": 4}


# Those of ImageNet are large, and have tests of their own (test_imagenet_families.py).
@pytest.mark.parametrize("name", [name for name in list_models() if default_classes(name) == 10])
def test_builds_and_runs_forward_and_backward(name):
    model = create_model(name)
    assert sum(p.numel() for p in model.parameters()) == parameter_count(name)
    # A ResNet-18 takes any size; at 224 pixels it would cost forty times as much.
    logits = model(torch.rand(2, 3, 32, 32))
    assert logits.shape == (2, 10)
    assert torch.isfinite(logits).all()
    logits[:, 3].sum().backward()
    silent = [n for n, p in model.named_parameters() if p.grad is None]
    assert not silent


def test_two_hundred_and_twenty_four_pixels():
    assert input_size("resnet18_224_scs") == 224
    assert create_model("resnet18_224_scs").eval()(torch.rand(1, 3, 224, 224)).shape == (1, 10)
    small, large = (create_model(name).eval() for name in ("resnet18_scs_nobn", "resnet18_224_scs_nobn"))
    x = torch.rand(1, 3, 64, 64)
    assert torch.equal(small(x), large(x))


@pytest.mark.parametrize("architecture", WEIGHTS)
def test_parameters_of_the_gallery_networks(architecture):
    weights, kernels, layers = WEIGHTS[architecture], KERNELS[architecture], LAYERS.get(architecture, 3)
    assert count(f"{architecture}_conv") == weights
    assert count(f"{architecture}_scs") == weights + kernels + layers
    assert count(f"{architecture}_ssdp") == weights + kernels
    assert count(f"{architecture}_cos") == weights + layers


def test_parameters_of_the_published_resnets():
    assert count("resnet20_bcos") == 543_440
    assert count("resnet20_bcos_plain") == 272_112
    assert count("resnet20_conv") == 269_722  # He et al.'s 0.27 million


def test_at_least_a_hundred_and_fifty_names():
    names = list_models()
    assert len(names) == len(set(names)) >= 150
    assert all(canonical_name(name) == name for name in names)


ARCHITECTURES = ["rohrer25k", "rohrer100k", "resnet18", "resnet20"]
STARTS = {architecture: f"{architecture}_conv" for architecture in ARCHITECTURES} | {"bcos_cnn9": "bcos_cnn9_plain"}


@pytest.mark.parametrize("architecture", STARTS)
def test_variants_start_from_the_same_weights(architecture):
    skipped = ("_224_", "_nobn", "_w=")  # the same code, and a ResNet-18 takes a second to make; another width
    names = [name for name in list_models(f"{architecture}*_*") if not any(part in name for part in skipped)]
    start = create_model(STARTS[architecture], seed=3).state_dict()
    other = create_model(STARTS[architecture], seed=4).state_dict()
    for name in names:
        state = create_model(name, seed=3).state_dict()
        kernels = [key for key in start if key.endswith("weight") and start[key].ndim == 4]
        for key in kernels:
            mine = state[key][:: len(state[key]) // len(start[key])]  # the first kernel of each MaxOut unit
            if mine.shape[1] == 6 and start[key].shape[1] == 3:
                assert torch.equal(mine[:, :3], -mine[:, 3:])
                mine = 2 * mine[:, :3]
            assert torch.equal(mine, start[key]), (name, key)
            assert not torch.equal(mine, other[key])
        biases = [key for key in start if key in state and key in ("head.bias", "fc.bias")]
        assert all(torch.equal(state[key], start[key]) for key in biases)
        assert biases or "bcos" in name


def test_creating_a_model_leaves_the_random_state_alone():
    torch.manual_seed(0)
    before = torch.random.get_rng_state()
    first = create_model("rohrer68k_scs", seed=1)
    assert torch.equal(torch.random.get_rng_state(), before)
    second = create_model("rohrer68k_scs", seed=1)
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), second.parameters(), strict=True))
    assert create_model("rohrer68k_scs", num_classes=7)(torch.rand(1, 3, 32, 32)).shape == (1, 7)


def test_what_a_name_stands_for():
    scs = create_model("rohrer100k_scs")
    layers = [m for m in scs.modules() if isinstance(m, SCS2d)]
    assert [layer.weight.shape[0] for layer in layers] == [32, 64, 128]
    assert all(isinstance(layer.pool, MaxAbsPool2d) and layer.pool.ceil_mode and not layer.relu for layer in layers)
    ssdp = create_model("rohrer100k_ssdp_relu_maxpool")
    assert all(type(m.pool) is nn.MaxPool2d and m.relu for m in ssdp.modules() if isinstance(m, SharpenedSDP2d))
    assert create_model("rohrer100k_scs_p=2.5").stages[0].layer.fixed_p == 2.5
    assert create_model("rohrer25k_scs_q=0.37").stages[3].layer.log_q.exp().item() == pytest.approx(0.37)
    assert create_model("rohrer100k_bcos_b=1.5").stages[1].layer.b == 1.5
    assert create_model("bcos_cnn9_w=0.5").layers[7].out_channels == 2 * 128  # MaxOut doubles the kernels


@pytest.mark.parametrize(
    ("spelled", "canonical"),
    [
        ("rohrer100k_scs_linear_maxabspool", "rohrer100k_scs"),
        ("rohrer100k_conv_relu_maxpool", "rohrer100k_conv"),
        ("resnet18_224_scs_bn", "resnet18_224_scs"),
        ("bcos_cnn9_b=2", "bcos_cnn9"),
        ("bcos_cnn9_maxout_w=0.250_b=2.0", "bcos_cnn9_w=0.25"),
        ("rohrer100k_bcos_hardened_b=1.5", "rohrer100k_bcos_hardened_b=1.5"),
        ("rohrer100k_scs_p=2.0000001", "rohrer100k_scs_p=2.0000001"),
    ],
)
def test_defaults_may_be_spelled_out(spelled, canonical):
    assert canonical_name(spelled) == canonical


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("rohrer100_scs", "did you mean rohrer100k_scs"),
        ("resnet21_conv", "did you mean .*resnet20_conv"),
        ("something else entirely!", "scs-eval models"),
        ("rohrer100k_scs_bn", "unknown option 'bn'"),
        ("rohrer100k_conv_p=2", "unknown option 'p=2'"),
        ("rohrer100k_ssdp_q=0.37", "unknown option 'q=0.37'"),
        ("rohrer100k_scs_p=-1", "from 0.1 to 100"),
        ("rohrer100k_scs_p=x", "from 0.1 to 100"),
        ("bcos_cnn9_b=0.5", "from 1 to 10"),
        ("bcos_cnn9_b=nan", "from 1 to 10"),
        ("rohrer100k_scs_relu_linear", "says its activation twice"),
        ("bcos_cnn9_b=1_b=2", "says its b twice"),
        ("resnet20_conv_hardened", "unknown option 'hardened'"),
    ],
)
def test_unknown_names_say_what_is_near(name, hint):
    with pytest.raises(InputError, match=hint):
        create_model(name)


def test_models_of_ones_own():
    register_model("my_net", input_size=2)(lambda classes: nn.Sequential(nn.Flatten(), nn.Linear(12, classes)))
    assert "my_net" in list_models("my_*")
    assert create_model("my_net", num_classes=4)(torch.rand(1, 3, 2, 2)).shape == (1, 4)
    assert input_size("my_net") == 2
    for taken in ("my_net", "rohrer100k_scs", "rohrer100k_scs_p=4"):
        with pytest.raises(InputError, match="already; choose another"):
            register_model(taken)(lambda classes: nn.Identity())


def test_order_of_pooling_and_relu():
    """MaxAbsPool, then ReLU: a window whose strongest answer is negative gives zero."""
    x = torch.rand(2, 3, 32, 32)
    conv, scs = create_model("rohrer68k_conv_maxabspool"), create_model("rohrer68k_scs_relu")
    strongest = MaxAbsPool2d(2, ceil_mode=True)(conv.stages[0].layer(x))
    assert torch.equal(conv.stages[0](x), strongest.clamp(min=0))
    assert (strongest < 0).any()
    assert (scs.stages[0](x) == 0).float().mean() > 0.1


NORMS = {
    "b": (norms.BatchNorm2d, norms.BatchNormUncentered2d),
    "l": (norms.DetachableGNLayerNorm2d, norms.GNLayerNormUncentered2d),
    "i": (norms.DetachableGNInstanceNorm2d, norms.GNInstanceNormUncentered2d),
    "p": (norms.DetachablePositionNorm2d, norms.PositionNormUncentered2d),
    "a": (norms.AllNorm2d, norms.AllNormUncentered2d),
    "g": (partial(norms.DetachableGroupNorm2d, 2), partial(norms.GroupNormUncentered2d, 2)),
}


def published_resnet20(norm: str, max_out: int) -> nn.Module:
    plain = norm.removesuffix("bias")
    layer = NORMS[plain[0]][plain.endswith("u")]
    layer = layer if norm.endswith("bias") else norms.NoBias(layer)
    conv = partial(PublishedConv, b=2, max_out=max_out)
    return published.cifar10_resnet20(norm_layer=layer, conv_layer=conv, logit_bias=-2.1972245773362196)


@pytest.mark.parametrize("norm", [*UNCENTRED, *CENTRED, *BIASED])
def test_bcos_resnet_matches_the_published_one(norm):
    torch.manual_seed(0)
    units = "" if norm == "bnu" else f"_{norm}"
    theirs, ours = published_resnet20(norm, 2).double(), create_model(f"resnet20_bcos{units}").double()
    x = torch.rand(4, 3, 32, 32, dtype=torch.double)
    encoded = torch.cat([x, 1 - x], 1)
    for module in theirs.modules():  # statistics as after training; without them the bias drowns every difference
        if hasattr(module, "momentum"):
            module.momentum = 1.0
        if getattr(module, "weight", None) is not None and module.weight.ndim == 1:
            nn.init.uniform_(module.weight, 0.5, 1.5)
            if getattr(module, "bias", None) is not None:
                nn.init.uniform_(module.bias, -0.5, 0.5)
    theirs.train()(encoded)
    ours.load_state_dict(theirs.state_dict(), strict=True)
    theirs.eval(), ours.eval()
    bias = theirs.logit_layer.logit_bias
    wanted, actual = theirs(encoded) - bias, ours(x) - bias
    assert (actual - wanted).abs().max() <= 1e-10 * wanted.abs().max()
    with theirs.explanation_mode():
        inputs = encoded.clone().requires_grad_()
        theirs(inputs)[:, 3].sum().backward()
    found = decompose(ours, x, torch.full((4,), 3))
    assert (found.weights - inputs.grad).abs().max() <= 1e-10 * inputs.grad.abs().max()


def test_constants_of_the_nine_layer_network():
    assert gamma(1) == pytest.approx(10**-0.25)
    assert gamma(2.5) == pytest.approx(100)
    assert temperature(2) == 100
    assert temperature(1.625) == pytest.approx(10**-0.5)  # half way between 1e-2 and 1e1
    assert temperature(3) == temperature(2.5)


@pytest.mark.parametrize("name", list_models("bcos_cnn9*"))
def test_untrained_logits_of_the_nine_layer_network_are_of_order_one(name):
    """A network whose fixed factors were off by one power of ten per layer would start at 1e9 or 1e-9."""
    spread = create_model(name).eval()(torch.rand(8, 3, 32, 32)).std()
    assert 1e-3 < spread < 10


@pytest.mark.parametrize("name", ["rohrer100k_conv", "rohrer100k_bcos", "resnet20_scs_relu", "bcos_cnn9_w=0.25"])
def test_gradients_of_images_have_the_layout_of_images(name):
    """Attacks of others take a `view` of them."""
    x = torch.rand(2, 3, 32, 32, requires_grad=True)
    (grad,) = torch.autograd.grad(create_model(name).eval()(x).sum(), x)
    assert grad.is_contiguous()
