"""Folders for the Hub: read by huggingface_hub itself, and loaded by us."""

import json

import torch
from click.testing import CliRunner
from huggingface_hub import ModelCard

import scs_eval
from scs_eval.cli.main import cli
from scs_eval.errors import InputError
from scs_eval.models.loading.load import weights_index


def test_an_exported_network_is_whole(tmp_path):
    done = CliRunner().invoke(cli, ["zoo", "export-hub", str(tmp_path / "hub"), "--model", "bcos_cnn9_w=0.25_b=1.5"])
    assert done.exit_code == 0, done.output
    folder = tmp_path / "hub" / "bcos_cnn9_w-0.25_b-1.5"
    entry = weights_index()["bcos_cnn9_w=0.25_b=1.5"]
    card = ModelCard.load(folder / "README.md")
    (result,) = card.data.eval_results
    assert (result.metric_type, result.metric_value, result.dataset_name) == (
        "accuracy", entry["accuracy"], "CIFAR-10",
    )  # fmt: skip
    assert card.data.library_name == "scs-eval"
    config = json.loads((folder / "config.json").read_text())
    assert (config["architecture"], config["num_classes"]) == ("bcos_cnn9_w=0.25_b=1.5", 10)
    images = scs_eval.load_data("sample", n=4).images
    loaded, ours = scs_eval.load_model(folder / "model.safetensors"), scs_eval.load_model("bcos_cnn9_w=0.25_b=1.5")
    assert torch.equal(loaded(images), ours(images))
    again = CliRunner().invoke(cli, ["zoo", "export-hub", str(tmp_path / "hub"), "--model", "bcos_cnn9_w=0.25_b=1.5"])
    assert isinstance(again.exception, InputError)
    assert "exists already" in str(again.exception)
