"""Converting networks: against the zoo's own B-cos networks, torchvision, and what must not change."""

import pytest
import torch
import torchvision
from click.testing import CliRunner
from torch import nn
from torchvision.models import convnext

from scs_eval import InputError, create_model, load_model
from scs_eval.cli.commands.convert import check_file
from scs_eval.cli.main import cli
from scs_eval.models.conversion.convert import conversion, convert
from scs_eval.models.conversion.target import ConversionSpec
from scs_eval.models.conversion.unconverted import summarise
from scs_eval.models.explain.decomposition import decompose
from scs_eval.models.layers import (
    BatchNorm,
    BcosConv2d,
    BcosLinear,
    Normalize,
    PositionNorm,
    SCS2d,
    SharpenedSDP2d,
)
from scs_eval.models.layers.token_norm import TokenNorm

X = torch.rand(2, 3, 64, 64, generator=torch.Generator().manual_seed(0))


def count(model: nn.Module, kind: type[nn.Module]) -> int:
    return sum(type(module) is kind for module in model.modules())


def resnet18() -> nn.Module:
    torch.manual_seed(0)
    return torchvision.models.resnet18(num_classes=7)


def test_a_resnet_becomes_bcos() -> None:
    model = convert(resnet18(), layer="bcos", classifier_first=True).eval()
    assert count(model, BcosConv2d) == 21  # 20 convolutions and the classifier
    for kind in (nn.Conv2d, nn.ReLU, nn.BatchNorm2d, nn.Linear):
        assert count(model, kind) == 0
    assert not any(name.endswith("bias") for name, _ in model.named_parameters())
    parts = decompose(model, X, torch.tensor([3, 6]))
    assert (parts.residual.abs() <= 1e-5 * parts.logits.abs().clamp(min=1)).all()
    assert model(X).shape == (2, 7)


def test_a_converted_resnet_is_the_zoos() -> None:
    """Same tensors, same answers as the zoo's B-cos ResNet-18, which matches the published one."""
    ours = create_model("resnet18_bcos", num_classes=7).eval()
    model = convert(resnet18(), layer="bcos", classifier_first=True).eval()
    model.network.maxpool = nn.AvgPool2d(3, 2, 1)  # the published networks also pool their stem by averaging
    state = {key.replace("network.avgpool.0", "fc").removeprefix("network."): key for key in model.state_dict()}
    model.load_state_dict({key: ours.state_dict()[name] for name, key in state.items()})
    torch.testing.assert_close(model(X), ours(X))


@pytest.mark.parametrize(("layer", "kind"), [("scs", SCS2d), ("ssdp", SharpenedSDP2d)])
def test_sharpened_networks_keep_norms_and_head(layer: str, kind: type[nn.Module]) -> None:
    model = convert(resnet18(), layer=layer)
    assert count(model, kind) == 20
    assert count(model, nn.BatchNorm2d) == 20
    assert count(model, nn.Linear) == 1
    assert count(model, nn.ReLU) == 0
    assert count(convert(resnet18(), layer=layer, activation="keep", norm="none"), nn.BatchNorm2d) == 0
    assert model(X).shape == (2, 7)


def test_weights_are_carried_over_on_request() -> None:
    start = resnet18()
    kept = convert(start, layer="bcos", keep_weights=True, classifier_first=True).network
    w = start.conv1.weight
    assert torch.equal(kept.conv1.weight, torch.cat([w, -w], 1) / 2)
    assert torch.equal(kept.layer2[0].conv1.weight, start.layer2[0].conv1.weight)
    assert torch.equal(kept.avgpool[0].weight.flatten(1), start.fc.weight)
    assert not torch.equal(convert(start, layer="bcos").network.layer2[0].conv1.weight, start.layer2[0].conv1.weight)


def test_there_and_back() -> None:
    start = resnet18().eval()
    there = convert(start, layer="ssdp", activation="keep", keep_weights=True)
    back = convert(there, layer="conv", keep_weights=True).eval()
    torch.testing.assert_close(back(X), start(X))


def test_nothing_outside_changes() -> None:
    start = resnet18()
    state, before = {k: v.clone() for k, v in start.state_dict().items()}, torch.get_rng_state()
    first, second = convert(start, layer="scs"), convert(start, layer="scs")
    assert torch.equal(torch.get_rng_state(), before)
    assert all(torch.equal(value, state[key]) for key, value in start.state_dict().items())
    assert count(start, nn.Conv2d) == 20
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), second.parameters(), strict=True))


class Odd(nn.Module):
    """One layer of every kind that has no B-cos form, and a function for an activation."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.up = nn.Conv2d(3, 4, 3), nn.ConvTranspose2d(4, 4, 2)
        self.slope, self.gate, self.head = nn.PReLU(), nn.Hardsigmoid(), nn.Linear(4, 5)
        self.scale = nn.Parameter(torch.ones(1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.up(self.stem(x))
        return self.head(self.scale * torch.relu(self.slope(x) * self.gate(x)).mean((2, 3)))


def test_what_cannot_be_converted_is_named() -> None:
    left = conversion(Odd(), ConversionSpec(layer="bcos")).unconverted
    assert left.pop("relu()") == "in the forward pass"
    assert left == {"up": "ConvTranspose2d", "slope": "PReLU", "gate": "Hardsigmoid", "scale": "Odd"}
    with pytest.warns(UserWarning, match=r"not converted: .*up \(ConvTranspose2d\)"):
        convert(Odd(), layer="bcos")
    assert (
        "features.norm5" not in conversion(torchvision.models.densenet121(), ConversionSpec(layer="bcos")).unconverted
    )
    assert "relu()" in conversion(torchvision.models.densenet121(), ConversionSpec(layer="bcos")).unconverted


class Casting(nn.LayerNorm):
    """As timm's: another class, the same numbers."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x.contiguous())


class Doubling(nn.Linear):
    """Another layer by its numbers."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return 2 * super().forward(x)


def test_a_subclass_is_its_base_if_it_answers_as_it_does() -> None:
    done = conversion(nn.Sequential(Casting(4), nn.Linear(4, 4), Doubling(4, 3)), ConversionSpec(layer="bcos"))
    assert done.replaced == {"0": "Casting → TokenNorm", "1": "Linear → BcosLinear"}
    assert done.unconverted == {"2": "Doubling"}


class Activated(nn.BatchNorm2d):
    """As timm's: the activation is a part of the norm."""

    def __init__(self, channels: int, factor: float) -> None:
        super().__init__(channels)
        self.drop, self.act, self.factor = nn.Identity(), nn.ReLU(), factor

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.act(self.drop(self.factor * super().forward(x)))


def test_a_norm_with_its_activation_inside_is_taken_apart() -> None:
    norms = [Activated(4, factor).eval() for factor in (1.0, 3.0)]  # the second does something of its own
    nn.init.uniform_(norms[0].running_var)
    nn.init.uniform_(norms[0].weight)
    done = conversion(nn.Sequential(nn.Conv2d(3, 4, 1), *norms), ConversionSpec(layer="bcos"), keep_weights=True)
    assert done.replaced["1.0"] == "BatchNorm2d → BatchNorm"
    assert done.replaced["1.2"] == "ReLU → Identity"
    assert done.unconverted["2.weight, 2.bias"] == "Activated"
    assert set(done.unconverted) == {"2.weight, 2.bias", "the forward pass"}  # torch.fx cannot look into foreign norms
    for name in ("running_var", "weight"):
        assert torch.equal(getattr(done.model.network[1][0], name), getattr(norms[0], name))


def test_many_places_of_a_kind_are_summed_up() -> None:
    left = {"a": "Odd", "b.1": "Gate", "b.2": "Odd", "b.3": "Odd", "c": "Odd"}
    assert summarise(left) == "a, b.2, b.3 and 1 more (Odd); b.1 (Gate)"


def test_norms_per_token_and_per_pixel_lose_their_bias() -> None:
    """ConvNeXt has both kinds; without biases the converted network is complete."""
    stages = [convnext.CNBlockConfig(8, 16, 1), convnext.CNBlockConfig(16, None, 1)]
    start = convnext.ConvNeXt(stages, num_classes=7).eval()
    done = conversion(start, ConversionSpec(layer="bcos"))
    assert not any(module.training for module in done.model.modules())
    assert set(done.unconverted.values()) == {"CNBlock"}
    assert all(place.endswith(".layer_scale") for place in done.unconverted)
    assert not any(name.endswith("bias") for name, _ in done.model.named_parameters())
    norms = [module for module in done.model.modules() if isinstance(module, PositionNorm)]
    assert len(norms) == 5
    assert all(norm.centred and norm.eps == 1e-6 for norm in norms)
    x = X.double()
    parts = decompose(done.model.double(), x, torch.tensor([3, 6]))
    assert (parts.residual.abs() <= 1e-12 * parts.contributions.abs().sum((1, 2, 3))).all()
    assert parts.contributions.abs().sum() > 0.1  # or there would be nothing to miss
    pixels = conversion(start, ConversionSpec(layer="bcos", norm="bnu")).model
    assert count(pixels, BatchNorm) == 3
    assert count(pixels, TokenNorm) == 2


def test_attention_is_named() -> None:
    layer = nn.TransformerEncoderLayer(8, 2, 16, activation=nn.GELU())
    left = conversion(nn.Sequential(nn.Conv2d(3, 8, 1), layer), ConversionSpec(layer="bcos")).unconverted
    assert left["1.self_attn"] == "MultiheadAttention"


def test_running_statistics_are_carried_over() -> None:
    start = resnet18()
    start(X)
    kept = convert(start, layer="conv", norm="bn", keep_weights=True).eval()
    for (_, theirs), (_, ours) in zip(start.named_buffers(), kept.named_buffers(), strict=True):
        assert torch.equal(theirs, ours)
    torch.testing.assert_close(kept(X), start.eval()(X))  # its biases are zero at the start


def test_the_classifier_comes_first_only_right_after_the_pooling() -> None:
    head = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 6), nn.Linear(6, 4)]
    with pytest.raises(InputError, match="cannot come first: 3 stands between the global pooling and it"):
        convert(nn.Sequential(nn.Conv2d(3, 8, 3), *head), layer="bcos", classifier_first=True)


def test_shared_layers_stay_shared() -> None:
    conv = nn.Conv2d(3, 3, 1)
    model = convert(nn.Sequential(conv, conv), layer="scs")
    assert model[0] is model[1]


def test_linear_layers_and_norms() -> None:
    model = convert(nn.Sequential(nn.Conv2d(3, 8, 3), nn.GroupNorm(2, 8), nn.Flatten(), nn.Linear(8, 4)), layer="bcos")
    assert isinstance(model.network[1], BatchNorm)
    assert not model.network[1].centred
    assert isinstance(model.network[3], BcosLinear)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"layer": "fft"}, "expected the layer scs"),
        ({"layer": "scs", "norm": "xn"}, "expected the norm keep"),
        ({"layer": "scs", "activation": "gelu"}, "expected the activation"),
        ({"layer": "bcos", "b": 0.5}, "B of at least 1"),
    ],
)
def test_bad_requests(options: dict, why: str) -> None:
    with pytest.raises(InputError, match=why):
        convert(resnet18(), **options)


def test_nothing_to_convert() -> None:
    with pytest.raises(InputError, match="nothing to convert to scs in Flatten"):
        convert(nn.Flatten(), layer="scs")
    with pytest.raises(InputError, match="build its twin by name"):
        convert(create_model("rohrer25k_scs"), layer="conv")
    with pytest.raises(InputError, match="no global average pooling"):
        convert(nn.Sequential(nn.Conv2d(3, 8, 3), nn.Flatten()), layer="bcos", classifier_first=True)


def run(*arguments: str) -> str:
    return CliRunner().invoke(cli, arguments, catch_exceptions=False).stdout


def test_the_command_writes_a_file_that_loads(tmp_path) -> None:
    out = tmp_path / "converted.safetensors"
    asked = ["convert", "--model", "torchvision:resnet18", "--weights", "none", "--normalize", "imagenet"]
    done = CliRunner().invoke(
        cli, [*asked, "--layer", "scs", "--norm", "none", "--out", str(out)], catch_exceptions=False
    )
    assert done.stdout.splitlines()[-1] == str(out)
    model = load_model(out)
    assert count(model, SCS2d) == 20
    assert count(model, nn.BatchNorm2d) == 0
    assert isinstance(model[0], Normalize)
    out = tmp_path / "bcos.safetensors"
    options = ["--layer", "bcos", "--keep-weights", "--classifier-first", "--out", str(out)]
    CliRunner().invoke(
        cli, ["convert", "--model", "resnet34_conv", "--weights", "none", *options], catch_exceptions=False
    )
    start = create_model("resnet34_conv")
    assert torch.equal(load_model(out).network.layer2[0].conv1.weight, start.layer2[0].conv1.weight)


def test_a_converted_file_cannot_name_a_factory(tmp_path) -> None:
    (tmp_path / "own.py").write_text("from torch import nn\ndef net():\n    return nn.Sequential(nn.Conv2d(3, 4, 3))\n")
    source, out = f"{tmp_path}/own.py:net", tmp_path / "own.safetensors"
    run("convert", "--model", source, "--layer", "scs", "--out", str(out))
    with pytest.raises(InputError, match=r"give --arch .* if that may be called"):
        load_model(out)
    assert count(load_model(out, arch=source), SCS2d) == 1


@pytest.mark.parametrize("out", ["there.pt", "no/such/folder.safetensors"])
def test_where_it_cannot_write(tmp_path, out: str) -> None:
    with pytest.raises(InputError, match=r"expected --out to end in|no such directory"):
        check_file(tmp_path / out)
