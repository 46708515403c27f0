"""`scs-eval doctor`, and how commands take their models."""

import json

import click
import numpy as np
import pytest
import torch
from click.testing import CliRunner
from PIL import Image
from safetensors.torch import save_file

from scs_eval import InputError, contributions, create_model, load_data, load_model
from scs_eval.cli.main import cli
from scs_eval.cli.request import Request, request_options
from scs_eval.models.loading.load import weights_index
from scs_eval.models.loading.sources import input_size_of, parse_sources, split_label


def doctor(*arguments: object) -> dict[str, str]:
    done = CliRunner().invoke(cli, ["doctor", *map(str, arguments), "--json"], catch_exceptions=False)
    return json.loads(done.stdout)


def test_a_wrapped_file_is_described(tmp_path):
    state = create_model("rohrer25k_conv", num_classes=7).state_dict()
    torch.save({"state_dict": {f"module.{key}": value for key, value in state.items()}}, tmp_path / "a.pt")
    found = doctor(tmp_path / "a.pt")
    assert found["undone"] == "took 'state_dict'; removed 'module.'"
    assert found["fits"].startswith("rohrer25k_conv, rohrer25k_conv_maxabspool")
    assert found["loads"].startswith("no: ")
    found = doctor(tmp_path / "a.pt", "--arch", "rohrer25k_conv")
    assert found["loads"] == "yes, as rohrer25k_conv"
    assert (found["classes"], found["input size"]) == ("7", "32 pixels")
    assert found["dynamic-linear"].startswith("yes")


def test_what_does_not_fit_is_named(tmp_path):
    state = create_model("rohrer25k_conv").state_dict()
    state["more"] = state.pop("head.bias")
    torch.save(state, tmp_path / "a.pt")
    found = doctor(tmp_path / "a.pt", "--arch", "rohrer25k_conv")
    assert (found["missing"], found["unexpected"]) == ("head.bias", "more")
    assert found["loads"].startswith("no: ")


def test_a_trained_model_is_measured():
    found = doctor("rohrer100k_scs")
    # On the 1,000 bundled images, whose accuracy has a standard error of 1.2 points at 82 %.
    recorded = 100 * weights_index()["rohrer100k_scs"]["accuracy"]
    assert float(found["accuracy"].partition("%")[0]) == pytest.approx(recorded, abs=4)
    assert found["normalisation"] == "none"
    network, data = load_model("rohrer100k_scs"), load_data("sample")
    shares = contributions(network, data.images[:16]).table()["bias_share"]
    lower = shares.sort_values().iloc[7]  # torch's median of 16
    assert found["dynamic-linear"].endswith(f"the bias is {lower:.2%} of that (median)")


def test_a_network_that_is_not_dynamic_linear(tmp_path):
    (tmp_path / "own.py").write_text(
        "from torch import nn\ndef net():\n    return nn.Sequential(nn.Flatten(), nn.Linear(3072, 9), nn.GELU())\n"
    )
    torch.manual_seed(0)
    found = doctor(f"{tmp_path}/own.py:net", "--normalize", "0.5,0.25")
    assert found["dynamic-linear"].startswith("no")
    assert found["normalisation"].startswith("Normalize(mean=[0.5, 0.5, 0.5]")
    assert found["accuracy"].startswith("not measured")


NORMALISED = """
from torch import nn
import torch, scs_eval
from scs_eval.models.layers import Normalize

MEAN, STD = torch.tensor([0.4914, 0.4822, 0.4465]), torch.tensor([0.2470, 0.2435, 0.2616])

class Undo(nn.Module):
    def forward(self, x):
        return x * STD.view(3, 1, 1) + MEAN.view(3, 1, 1)

def bare():
    "Takes normalised images."
    return nn.Sequential(Undo(), nn.Identity(), scs_eval.load_model("rohrer25k_conv"))

def whole():
    "Has its normalisation inside."
    return nn.Sequential(nn.Identity(), Normalize(MEAN.tolist(), STD.tolist()), bare())

def twice():
    return nn.Sequential(nn.Identity(), Normalize(MEAN.tolist(), STD.tolist()), whole())
"""


@pytest.mark.parametrize(
    ("network", "options", "verdict"),
    [
        ("bare", [], "missing: with --normalize cifar10 it is right on"),
        ("bare", ["--normalize", "cifar10"], "no usual statistics do better"),
        ("bare", ["--normalize", "0.5,0.05"], "another: with --normalize cifar10 instead it is right on"),
        ("whole", [], "no usual statistics do better"),
        ("whole", ["--normalize", "cifar10"], "doubled: without the one in front of the network it is right on"),
        ("twice", [], "doubled inside: where one by cifar10 is undone, it is right on"),
    ],
)
def test_a_missing_or_doubled_normalisation(network, options, verdict, tmp_path):
    """ImageNet's statistics are so near CIFAR-10's that 300 images may not tell them apart."""
    (tmp_path / "own.py").write_text(NORMALISED)
    found = doctor(f"{tmp_path}/own.py:{network}", *options, "-n", 300)["normalisation"]
    assert verdict in found.replace("imagenet", "cifar10")


def test_labelled_images_of_ones_own(tmp_path):
    """Three outputs, three folders: accuracy and normalisation are of those images."""
    for label, name in enumerate(("a", "b", "c")):
        (tmp_path / "images" / name).mkdir(parents=True)
        for number in range(4):
            picture = np.full((8, 8, 3), 80 * label + 10 * number, dtype=np.uint8)
            Image.fromarray(picture).save(tmp_path / "images" / name / f"{number}.png")
    (tmp_path / "own.py").write_text(
        "from torch import nn\nimport torch\n"
        "class Net(nn.Module):\n"
        "    def forward(self, x):\n"
        "        return -(x.mean((1, 2, 3))[:, None] - torch.tensor([15, 95, 175]) / 255).abs()\n"
    )
    found = doctor(f"{tmp_path}/own.py:Net", "--data", tmp_path / "images")
    assert found["accuracy"].startswith("100.0%")
    assert "do better on 12 images, of which it is right on 12" in found["normalisation"]
    without = doctor(f"{tmp_path}/own.py:Net")
    assert "--data takes a folder" in without["accuracy"]
    assert "not tried" in without["normalisation"]


def test_labels_and_sources(tmp_path):
    path = tmp_path / "lr=0.1.safetensors"
    save_file(create_model("rohrer25k_conv").state_dict(), path, metadata={"name": "rohrer25k_conv"})
    assert split_label("mine=rohrer100k_scs") == ("mine", "rohrer100k_scs")
    assert split_label(f"mine={path}") == ("mine", str(path))
    for whole in (str(path), "bcos_cnn9_w=0.25_b=1.5", "rohrer100k_scs"):
        assert split_label(whole) == (None, whole)
    first, second = parse_sources(["A=rohrer100k_scs_linear", str(path)])
    assert (first.label, first.source, second.label) == ("A", "rohrer100k_scs", str(path))
    assert first.open().input_size == second.open().input_size == 32
    assert input_size_of("torchvision:resnet18") == 224
    with pytest.raises(InputError, match="two models are called 'A'"):
        parse_sources(["A=rohrer100k_scs", "A=rohrer100k_conv"])
    with pytest.raises(InputError, match="one model for the label"):
        parse_sources(["A=rohrer100k*"])


@pytest.fixture
def files(tmp_path):
    """A file that says what it holds, one that does not, and a factory with a file of weights for it."""
    torch.manual_seed(0)
    save_file(create_model("rohrer25k_conv").state_dict(), tmp_path / "says.safetensors", {"name": "rohrer25k_conv"})
    torch.save(create_model("rohrer25k_scs").state_dict(), tmp_path / "silent.pt")
    (tmp_path / "own.py").write_text(
        "from torch import nn\ndef net():\n    return nn.Sequential(nn.Flatten(), nn.Linear(3072, 10))\n"
    )
    torch.save({"1.weight": torch.randn(10, 3072), "1.bias": torch.zeros(10)}, tmp_path / "own.pt")
    return tmp_path


def loaded(*arguments: object) -> "dict[str, torch.nn.Module]":
    """What a command with these options would load."""

    @click.command()
    @request_options("accuracy")
    def command(request: Request) -> "dict[str, torch.nn.Module]":
        with request.open() as session:
            return {name: named.model for name, named in session.models.items()}

    return command.main([str(each) for each in arguments], standalone_mode=False)


def test_an_option_goes_to_the_models_that_need_it(files):
    """Each as if it had been loaded alone."""
    own = f"own={files}/own.py:net"
    several = (
        "--model",
        "rohrer100k_conv",
        "--model",
        f"a={files}/says.safetensors",
        "--model",
        f"b={files}/silent.pt",
    )
    found = loaded(*several, "--model", own, "--arch", "rohrer25k_scs", "--weights", files / "own.pt",
                   "--normalize", "0.5,0.25")  # fmt: skip
    statistics = {"normalize": "0.5,0.25"}
    alone = {
        "rohrer100k_conv": load_model("rohrer100k_conv"),
        "a": load_model(files / "says.safetensors"),
        "b": load_model(files / "silent.pt", arch="rohrer25k_scs", **statistics),
        "own": load_model(f"{files}/own.py:net", weights=files / "own.pt", **statistics),
    }
    image = torch.rand(1, 3, 32, 32)
    assert found.keys() == alone.keys()
    for name, network in found.items():
        assert torch.equal(network(image), alone[name](image)), name


def test_the_users_word_for_a_single_file(files):
    with pytest.raises(InputError, match="do not fit rohrer25k_scs"):
        loaded("--model", files / "says.safetensors", "--arch", "rohrer25k_scs")


@pytest.mark.parametrize(
    ("sources", "options", "why"),
    [
        (["rohrer100k_conv"], ["--normalize", "imagenet"], "have theirs inside"),
        (["rohrer100k_conv", "rohrer100k_scs"], ["--weights", "own.pt"], "--weights is for, got none"),
        (["rohrer25k_cos", "rohrer25k_bcos"], ["--weights", "own.pt"], "got 2 .rohrer25k_bcos, rohrer25k_cos"),
        (["{}/silent.pt"], ["--weights", "own.pt"], "--weights is for, got none"),
    ],
)
def test_an_option_that_is_for_nobody_is_refused(files, sources, options, why):
    models = [word for source in sources for word in ("--model", source.format(files))]
    with pytest.raises(InputError, match=why):
        loaded(*models, *options)


def test_a_file_takes_no_weights(files):
    with pytest.raises(InputError, match=r"silent.pt is a file of weights itself"):
        load_model(files / "silent.pt", weights=files / "own.pt")
