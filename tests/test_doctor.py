"""`scs-eval doctor`, and how commands take their models."""

import json

import pytest
import torch
from click.testing import CliRunner
from safetensors.torch import save_file

from scs_eval import InputError, create_model
from scs_eval.cli.main import cli
from scs_eval.cli.sources import choose_models, input_size_of, source_of, split_label


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
    assert found["accuracy"].startswith("76.4%")  # the shipped weights on the bundled images
    assert found["normalisation"] == "none"


def test_a_network_that_is_not_dynamic_linear(tmp_path):
    (tmp_path / "own.py").write_text(
        "from torch import nn\ndef net():\n    return nn.Sequential(nn.Flatten(), nn.Linear(3072, 9), nn.GELU())\n"
    )
    torch.manual_seed(0)
    found = doctor(f"{tmp_path}/own.py:net", "--normalize", "0.5,0.25")
    assert found["dynamic-linear"].startswith("no")
    assert found["normalisation"].startswith("Normalize(mean=[0.5, 0.5, 0.5]")
    assert found["accuracy"].startswith("not measured")


def test_labels_and_sources(tmp_path):
    path = tmp_path / "lr=0.1.safetensors"
    save_file(create_model("rohrer25k_conv").state_dict(), path, metadata={"name": "rohrer25k_conv"})
    assert split_label("mine=rohrer100k_scs") == ("mine", "rohrer100k_scs")
    assert split_label(f"mine={path}") == ("mine", str(path))
    for whole in (str(path), "bcos_cnn9_w=0.25_b=1.5", "rohrer100k_scs"):
        assert split_label(whole) == (None, whole)
    first, second = choose_models(["A=rohrer100k_scs_linear", str(path)])
    assert (first, source_of(first), second) == ("A", "rohrer100k_scs", str(path))
    assert input_size_of(first) == input_size_of(second) == 32
    assert input_size_of("torchvision:resnet18") == 224
    with pytest.raises(InputError, match="two models are called 'A'"):
        choose_models(["A=rohrer100k_scs", "A=rohrer100k_conv"])
    with pytest.raises(InputError, match="one model for the label"):
        choose_models(["A=rohrer100k*"])
