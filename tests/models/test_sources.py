"""Models from anywhere: wrapped checkpoints, the package `bcos`, Rohrer's scripts, torchvision, factories."""

from functools import partial

import huggingface_hub
import published_networks as peer
import pytest
import reference
import timm
import torch
import torchvision
from bcos.models import resnet as published
from bcos.modules import BcosConv2d, norms
from safetensors.torch import save_file
from torch import nn

from scs_eval import InputError, create_model, load_model
from scs_eval.models.loading.external import parse_statistics
from scs_eval.models.loading.identify import recognise
from scs_eval.models.loading.load import open_source
from scs_eval.models.loading.sources import input_size_of, parse_sources

X = torch.rand(4, 3, 32, 32, generator=torch.Generator().manual_seed(0))
WRAPPINGS = {
    "plain": (lambda state: state, ()),
    "state_dict": (lambda state: {"state_dict": state, "epoch": 3}, ("took 'state_dict'",)),
    "model": (lambda state: {"model": state, "optimizer": {}}, ("took 'model'",)),
    "module.": (lambda state: prefixed(state, "module."), ("removed 'module.'",)),
    "_orig_mod.": (lambda state: prefixed(state, "_orig_mod."), ("removed '_orig_mod.'",)),
    "both": (
        lambda state: {"model": prefixed(state, "module._orig_mod.")},
        ("took 'model'", "removed 'module.'", "removed '_orig_mod.'"),
    ),
    "ema": (
        lambda state: {"state_dict": {**prefixed(state, "ema.module."), **prefixed(zeros(state), "model.")}},
        ("took 'state_dict'", "took the averaged weights 'ema.module.'"),
    ),
}


def prefixed(state: dict[str, torch.Tensor], prefix: str) -> dict[str, torch.Tensor]:
    return {prefix + key: value for key, value in state.items()}


def zeros(state: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {key: torch.zeros_like(value) for key, value in state.items()}


@pytest.mark.parametrize("kind", WRAPPINGS)
def test_usual_wrappings_are_undone_and_reported(tmp_path, kind):
    wrap, notes = WRAPPINGS[kind]
    model = create_model("rohrer25k_conv", seed=3, num_classes=7).eval()
    torch.save(wrap(model.state_dict()), tmp_path / "model.pt")
    loaded = open_source(tmp_path / "model.pt", arch="rohrer25k_conv")
    assert torch.equal(loaded.model(X), model(X))
    assert loaded.notes == notes


def test_the_tensors_tell_network_and_number_of_classes():
    state = create_model("resnet32_bcos_bnu_plain", num_classes=5).state_dict()
    found = recognise(state)
    assert {match.name for match in found} == {"resnet32_bcos_plain", "resnet32_bcos_bn_plain"}
    assert all(match.exact and match.num_classes == 5 for match in found)
    del state["layer3.4.bn2.weight"]
    (nearest,) = recognise(state)
    assert nearest.name.startswith("resnet32_bcos_")
    assert nearest.missing == ("layer3.4.bn2.weight",)


def test_an_ambiguous_file_asks_for_the_architecture(tmp_path):
    save_file(create_model("rohrer25k_conv").state_dict(), tmp_path / "model.safetensors")
    with pytest.raises(InputError, match=r"fit 4 of the zoo .rohrer25k_conv.*--arch"):
        load_model(tmp_path / "model.safetensors")
    torch.save({"a.weight": torch.zeros(3)}, tmp_path / "other.pt")
    with pytest.raises(InputError, match="no network of the zoo fits; nearest is"):
        load_model(tmp_path / "other.pt")


def test_a_checkpoint_of_the_package_bcos_gives_its_answers(tmp_path):
    torch.manual_seed(0)
    layers = {
        "norm_layer": norms.NoBias(norms.BatchNormUncentered2d),
        "conv_layer": partial(BcosConv2d, b=2, max_out=2),
    }
    theirs = published.cifar10_resnet20(logit_bias=-2.1972245773362196, **layers)
    for module in theirs.modules():  # statistics as after training; at the start all answers are nearly zero
        if hasattr(module, "momentum"):
            module.momentum = 1.0
    encoded = torch.cat([X, 1 - X], 1)
    theirs.train()(encoded)
    torch.save({"state_dict": prefixed(theirs.state_dict(), "model.")}, tmp_path / "bcos.ckpt")
    ours, wanted = load_model(tmp_path / "bcos.ckpt", arch="resnet20_bcos"), theirs.eval()(encoded) + 2.1972245773362196
    actual = ours(X) - ours.logits.bias
    assert (actual - wanted).abs().max() <= 5e-5 * wanted.abs().max()  # fp32, other order of sums


@pytest.mark.parametrize("entry", ["resnet18", "convnext_tiny_bnu", "simple_vit_ti_patch16_224", "vitc_b_patch1_14"])
def test_released_files_of_the_package_bcos_are_recognised(entry):
    """By their tensors alone; ResNet-18's fit twelve networks, and are those of the released one."""
    with torch.device("meta"):
        state = peer.published(entry).state_dict()
    (found,) = recognise(state)
    assert (found.name, found.num_classes, found.exact) == (peer.OURS[entry], 1000, True)


def gallery_state(limit: float = 1.0) -> dict[str, torch.Tensor]:
    """As Rohrer's script of 25,214 parameters would save it."""
    torch.manual_seed(0)
    layers = {"scs1": (80, 3, 5), "scs2_depth": (80, 1, 3), "scs2_point": (40, 80, 1), "scs3": (40, 40, 3)}
    state = {}
    for layer, (kernels, channels, size) in layers.items():
        state[f"{layer}.weight"] = torch.empty(kernels, channels, size, size).uniform_(-limit, limit)
        state[f"{layer}.p"] = torch.empty(1, kernels, 1, 1).uniform_(1, 3)
        state[f"{layer}.log_q"] = torch.full((1, 1, 1, 1), -6.9)
    return state | {"out.weight": torch.randn(10, 40), "out.bias": torch.randn(10)}


@pytest.mark.parametrize("limit", [1.0, 3.0])
def test_a_state_dict_of_rohrers_scripts_gives_the_formulas_answers(tmp_path, limit):
    state = gallery_state(limit)
    torch.save(state, tmp_path / "gallery.pt")
    loaded = open_source(tmp_path / "gallery.pt", arch="rohrer25k_scs")
    wide, x = {key: value.double() for key, value in state.items()}, X.double()
    for layer, pool, groups in (("scs1", 2, 1), ("scs2_depth", 0, 80), ("scs2_point", 2, 1), ("scs3", 4, 1)):
        p, q = wide[f"{layer}.p"], wide[f"{layer}.log_q"].exp()
        x = reference.scs(x, wide[f"{layer}.weight"], p, q, groups=groups)
        x = reference.max_abs_pool(x, pool, pool, ceil_mode=True) if pool else x
    wanted = x.flatten(1) @ wide["out.weight"].T + wide["out.bias"]
    torch.testing.assert_close(loaded.model(X).double(), wanted, rtol=1e-4, atol=1e-4)  # fp32 through four layers
    assert ("weights beyond ±1 kept" in loaded.notes) == (limit > 1)


def test_torchvision_by_name(tmp_path):
    torch.manual_seed(0)
    theirs = torchvision.models.squeezenet1_1(num_classes=1000).eval()
    torch.save(theirs.state_dict(), tmp_path / "weights.pth")
    image = torch.rand(1, 3, 64, 64)
    statistics = torch.tensor([0.485, 0.456, 0.406]), torch.tensor([0.229, 0.224, 0.225])
    mean, std = (value.view(1, 3, 1, 1) for value in statistics)
    ours = load_model("torchvision:squeezenet1_1", weights=tmp_path / "weights.pth", normalize="imagenet")
    torch.testing.assert_close(ours(image), theirs((image - mean) / std))
    found = open_source(tmp_path / "weights.pth", arch="torchvision:squeezenet1_1")
    torch.testing.assert_close(found.model(image), theirs((image - mean) / std))
    assert found.notes == ("put torchvision's normalisation (0.485,0.456,0.406,0.229,0.224,0.225) inside",)
    as_it_is = load_model(tmp_path / "weights.pth", arch="torchvision:squeezenet1_1", normalize="0,1")
    torch.testing.assert_close(as_it_is(image), theirs(image))
    save_file(theirs.state_dict(), tmp_path / "ours.safetensors", {"name": "torchvision:squeezenet1_1"})
    torch.testing.assert_close(load_model(tmp_path / "ours.safetensors")(image), theirs(image))  # trained without
    with pytest.raises(InputError, match=r"no classifier 'resnet19'; did you mean resnet18"):
        load_model("torchvision:resnet19", weights="none")


@pytest.mark.parametrize(
    ("source", "size"),
    [
        ("timm:test_vit", 160), ("timm:vit_tiny_patch16_384", 384), ("torchvision:inception_v3", 299),
        ("torchvision:vit_h_14", 224), ("torchvision:resnet18 as resnet18_224_scs", 224), ("timm:nothing", None),
    ],
)  # fmt: skip
@pytest.mark.filterwarnings("ignore:The default weight initialization of inception_v3")
def test_the_input_size_that_a_package_says(source, size):
    """vit_h_14's default weights take 518 pixels, but untrained it is built for 224."""
    assert input_size_of(source) == size


@pytest.mark.parametrize("how", ["fetched before", "a file"])
def test_timms_weights_and_what_it_says_of_their_images(how, tmp_path, monkeypatch):
    """Offline: from the cache that an earlier download left, or from a file."""
    theirs = timm.create_model("test_efficientnet").eval()
    settings = theirs.pretrained_cfg
    folder = tmp_path / f"models--{settings['hf_hub_id'].replace('/', '--')}"
    (folder / "refs").mkdir(parents=True)
    (folder / "refs" / "main").write_text("a" * 40)
    file = folder / "snapshots" / ("a" * 40) / "model.safetensors"
    file.parent.mkdir(parents=True)
    save_file(theirs.state_dict(), file)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    loaded = open_source("timm:test_efficientnet", weights=None if how == "fetched before" else file)
    image = torch.rand(1, 3, 160, 160)
    mean, std = (torch.tensor(settings[key]).view(1, 3, 1, 1) for key in ("mean", "std"))
    torch.testing.assert_close(loaded.model(image), theirs((image - mean) / std))
    assert loaded.input_size == 160
    assert "put timm's normalisation (" in loaded.notes[0]


FACTORY = """
from torch import nn
import timm

def theirs():
    return timm.create_model("test_vit")

def net():
    return nn.Sequential(nn.Flatten(), nn.Linear(3072, 10))

def wrong():
    return 3

def broken():
    raise KeyError("no such thing")
"""


def test_a_factory_is_called_when_the_user_names_it(tmp_path):
    (tmp_path / "own.py").write_text(FACTORY)
    weights = {"1.weight": torch.randn(10, 3072), "1.bias": torch.randn(10)}
    torch.save(weights, tmp_path / "own.pt")
    for loaded in (
        load_model(f"{tmp_path}/own.py:net", weights=tmp_path / "own.pt"),
        load_model(tmp_path / "own.pt", arch=f"{tmp_path}/own.py:net"),
    ):
        torch.testing.assert_close(loaded(X), X.flatten(1) @ weights["1.weight"].T + weights["1.bias"])
        assert not loaded.training
    assert isinstance(load_model("torch.nn:Identity"), nn.Identity)
    for function, why in (("wrong", "got int"), ("broken", "KeyError"), ("absent", "no function 'absent'")):
        with pytest.raises(InputError, match=why):
            load_model(f"{tmp_path}/own.py:{function}")
    for source, why in (("no.such.module:net", "cannot import"), (f"{tmp_path}/no.py:net", "no such file")):
        with pytest.raises(InputError, match=why):
            load_model(source)


def test_a_factorys_network_of_timm_says_what_it_takes(tmp_path):
    (tmp_path / "own.py").write_text(FACTORY)
    (source,) = parse_sources([f"net={tmp_path}/own.py:theirs"])
    named = source.open()
    assert named.input_size == 160
    assert named.loaded.notes == ("timm says of this network: --normalize 0.5,0.5",)
    assert not open_source(f"{tmp_path}/own.py:theirs", normalize="0.5,0.5").notes
    with pytest.raises(InputError, match="a factory's network has its own"):
        load_model(f"{tmp_path}/own.py:net", weights="none")
    with pytest.raises(InputError, match="--weights none is for names"):
        parse_sources([f"net={tmp_path}/own.py:theirs"], weights="none")


def test_a_file_cannot_name_a_factory(tmp_path):
    (tmp_path / "own.py").write_text("open('sprung', 'w')\ndef net(): pass\n")
    metadata = {"name": f"{tmp_path}/own.py:net"}
    save_file({"a": torch.zeros(1)}, tmp_path / "own.safetensors", metadata=metadata)
    with pytest.raises(InputError, match="does not say which"):
        load_model(tmp_path / "own.safetensors")


def test_statistics():
    assert parse_statistics("0.5,0.25") == ((0.5, 0.5, 0.5), (0.25, 0.25, 0.25))
    assert parse_statistics("1,2,3,4,5,6") == ((1, 2, 3), (4, 5, 6))
    assert parse_statistics("imagenet").std[0] == 0.229
    for wrong in ("", "0.5", "0.5,0", "a,b", "1,2,3", "0.5,nan", "0.5,-1"):
        with pytest.raises(InputError, match="expected imagenet, cifar10, mean,std"):
            parse_statistics(wrong)
