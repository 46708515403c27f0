"""B-cosification starts from the same function: against the network it was, in single and double precision."""

import json

import pytest
import torch
from click.testing import CliRunner
from torch import nn

from scs_eval import InputError, create_model, load_data, load_model
from scs_eval.cli.main import cli
from scs_eval.models.conversion.bcosify import SPEC, additive_parameters, bcosify, current_b, described_as, set_b
from scs_eval.models.conversion.convert import conversion
from scs_eval.models.conversion.target import ConversionSpec
from scs_eval.models.explain.decomposition import decompose
from scs_eval.models.layers import BatchNorm, BcosConv2d, BcosLinear
from scs_eval.models.layers.convolution import lengths, unit_kernels
from scs_eval.models.loading.load import open_source
from scs_eval.models.loading.state_dict import metadata_of


def trained_resnet20() -> nn.Module:
    return load_model("resnet20_conv")


def resnet18() -> nn.Module:
    """torchvision's, with statistics and norms as after some training."""
    torch.manual_seed(0)
    model = open_source("torchvision:resnet18", weights="none", normalize="imagenet", num_classes=7).model
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.uniform_(module.weight, 0.5, 1.5)
            nn.init.uniform_(module.bias, -0.5, 0.5)
    model.train()(torch.rand(8, 3, 64, 64))
    return model.eval()


def external_vit(source: str) -> nn.Module:
    """A transformer from elsewhere; its head and positions, zero at the start, made to matter."""
    if source.startswith("timm"):
        pytest.importorskip("timm")
    torch.manual_seed(0)
    model = open_source(source, weights="none", normalize="imagenet").model.eval()
    for parameter in model.parameters():
        nn.init.normal_(parameter, parameter.detach().mean(), 0.05)
    return model


NETWORKS = {
    "resnet20_conv": (trained_resnet20, 32),
    "torchvision:resnet18": (resnet18, 64),
    "timm:vit": (lambda: external_vit("timm:vit_tiny_patch16_224"), 224),
    "torchvision:vit": (lambda: external_vit("torchvision:vit_b_32"), 224),
    "timm:resnet": (lambda: external_vit("timm:resnet18"), 64),
    "zoo's vit": (lambda: create_model("vit_ti_conv").eval(), 64),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_a_converted_network_starts_from_the_same_function(name: str) -> None:
    make, size = NETWORKS[name]
    model = make()
    images = torch.rand(2, 3, size, size, generator=torch.Generator().manual_seed(1))
    converted = bcosify(model).model
    with torch.no_grad():
        wanted, actual = model(images), converted(images)
        assert (actual - wanted).abs().max() <= 1e-5 * wanted.abs().max()  # fp32, tens of layers
        wide, exact = converted.double()(images.double()), model.double()(images.double())
    # The statistics of the normalisation are kept in float32, and so are their complements 1 - mean.
    assert (wide - exact).abs().max() <= 1e-6 * exact.abs().max()


@pytest.mark.parametrize("name", ["resnet20_conv", "torchvision:resnet18", "timm:vit", "torchvision:vit"])
def test_its_logits_are_taken_apart_completely(name: str) -> None:
    """Biases and norms are kept, and counted; also when B is raised."""
    make, size = NETWORKS[name]
    model = bcosify(make()).model.double()
    images = torch.rand(2, 3, size, size, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    for b in (1.0, 1.5, 2.0):
        set_b(model, b)
        assert current_b(model) == b
        parts = decompose(model, images, torch.tensor([1, 2]))
        assert parts.weights.shape[1] == 6
        terms = parts.contributions.abs().sum((1, 2, 3)) + sum(bias.abs() for bias in parts.biases.values())
        assert (parts.residual.abs() <= 1e-11 * terms).all()
        assert (parts.bias.abs() > 1e-4 * terms.min()).any()
    assert all(isinstance(parameter, nn.Parameter) for parameter in model.parameters())  # as they were


def test_the_bundled_network_keeps_its_accuracy() -> None:
    data = load_data("sample", n=200)
    model = load_model("resnet20_conv")
    with torch.no_grad():
        before, after = model(data.images), bcosify(model).model(data.images)
    assert torch.equal(before.argmax(1), after.argmax(1))
    assert (after.argmax(1) == data.labels).float().mean() > 0.8


def test_what_a_transformer_becomes() -> None:
    """Queries, keys and values stay linear; GELU, norms and softmax are dynamic-linear; the rest is named."""
    pytest.importorskip("timm")
    done = bcosify(external_vit("timm:vit_tiny_patch16_224"))
    network = done.model.network[1]
    assert all(type(block.attn.qkv) is nn.Linear for block in network.blocks)
    assert sum(isinstance(module, BcosLinear) for module in network.modules()) == 3 * 12 + 1
    assert done.unconverted == {"1.cls_token, 1.pos_embed": "VisionTransformer"}
    block, tokens = network.blocks[0].double(), torch.randn(2, 5, 192, dtype=torch.float64)
    parts = decompose(_Tokens(block).eval(), tokens.view(2, 1, 5, 192), torch.tensor([3, 4]))
    terms = parts.contributions.abs().sum((1, 2, 3)) + sum(bias.abs() for bias in parts.biases.values())
    assert (parts.residual.abs() <= 1e-10 * terms).all()


class _Tokens(nn.Module):
    def __init__(self, block: nn.Module) -> None:
        super().__init__()
        self.block = block

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.block(x[:, 0]).mean(1)


def test_queries_keys_and_values_stay_linear_in_any_bcos_conversion() -> None:
    model = conversion(create_model("vit_ti_conv"), ConversionSpec(layer="bcos")).model
    inputs = [module for name, module in model.named_modules() if name.endswith("to_qkv")]
    assert len(inputs) == 12
    assert all(type(module) is nn.Linear and module.bias is None for module in inputs)


class Called(nn.Module):
    """Its activations are functions."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.head = nn.Conv2d(3, 4, 3), nn.Linear(4, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(torch.relu(nn.functional.gelu(self.conv(x))).mean((2, 3)))


def test_functional_activations_are_named() -> None:
    assert bcosify(Called()).unconverted == {"gelu()": "in the forward pass"}  # ReLU is linear where it is active


@pytest.mark.parametrize("b", [1.0, 1.7, 2.0])
def test_layers_that_keep_length_and_bias(b: float) -> None:
    """‖w‖ times the published layer, plus the bias."""
    torch.manual_seed(0)
    x = torch.randn(2, 6, 7, 7, dtype=torch.float64)
    conv = BcosConv2d(6, 4, 3, b=b, unit_norm=False, bias=True).double()
    unit = BcosConv2d(6, 4, 3, b=b).double()
    unit.weight.data = unit_kernels(conv.weight.data)
    wanted = unit(x) * lengths(conv.weight).view(1, -1, 1, 1) + conv.bias.view(1, -1, 1, 1)
    torch.testing.assert_close(conv(x), wanted, rtol=1e-12, atol=1e-14)
    if b == 1:
        torch.testing.assert_close(conv(x), nn.functional.conv2d(x, conv.weight, conv.bias), rtol=1e-12, atol=1e-12)
    linear = BcosLinear(6, 4, b=b, unit_norm=False, bias=True).double()
    tokens = torch.randn(3, 6, dtype=torch.float64)
    cosine = (tokens @ linear.weight.T).abs() / tokens.norm(dim=1, keepdim=True) / linear.weight.norm(dim=1)
    wanted = tokens @ linear.weight.T * (cosine + (b != 2) * 1e-6) ** (b - 1) + linear.bias
    torch.testing.assert_close(linear(tokens), wanted, rtol=1e-9, atol=1e-12)
    with pytest.raises(ValueError, match="unit norm with MaxOut"):
        BcosConv2d(6, 4, 3, max_out=2, unit_norm=False)


def test_a_file_of_it_loads_and_can_be_fine_tuned(tmp_path) -> None:
    out = tmp_path / "start.safetensors"
    asked = ["convert", "resnet20_conv", "--layer", "bcos", "--same-function", "--out", str(out)]
    done = CliRunner().invoke(cli, asked, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    model, images = load_model(out), torch.rand(2, 3, 32, 32)
    torch.testing.assert_close(model(images), load_model("resnet20_conv")(images), rtol=1e-4, atol=1e-4)
    description = metadata_of(out)["converted"]
    assert json.loads(description)["spec"]["same_function"]
    set_b(model, 1.5)
    assert json.loads(described_as(description, model))["spec"]["b"] == 1.5
    set_b(model, 1)
    biases = dict(additive_parameters(model))
    assert len(biases) == 20  # 19 norms and the head: the convolutions have none
    nn.functional.cross_entropy(model(images), torch.tensor([1, 2])).backward()
    assert all(parameter.grad.isfinite().all() for parameter in model.parameters())


@pytest.mark.parametrize("change", [{"layer": "ssdp"}, {"norm": "bnu"}, {"activation": "linear"}])
def test_what_would_change_the_function_is_refused(change: dict) -> None:
    with pytest.raises(InputError, match="the same function is kept"):
        ConversionSpec(**{"layer": "bcos", "same_function": True, **change})


def test_b_of_networks_without_one() -> None:
    with pytest.raises(InputError, match="B-cos layers of one B, got none"):
        current_b(nn.Sequential(nn.Conv2d(3, 4, 3), BatchNorm(4)))
    with pytest.raises(InputError, match="B of at least 1"):
        set_b(bcosify(Called()).model, 0.5)
    assert SPEC.b == 1


def test_timm_by_name() -> None:
    timm = pytest.importorskip("timm")
    torch.manual_seed(0)
    theirs = timm.create_model("resnet10t", num_classes=5).eval()
    ours = open_source("timm:resnet10t", weights="none", num_classes=5)
    assert ours.architecture == "timm:resnet10t"
    ours.model.load_state_dict(theirs.state_dict())
    images = torch.rand(2, 3, 64, 64)
    torch.testing.assert_close(ours.model(images), theirs(images))
    with pytest.raises(InputError, match="timm has no classifier 'resnet19'; did you mean"):
        load_model("timm:resnet19", weights="none")
