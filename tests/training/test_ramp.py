"""From a converted network to one of its new kind: where it begins, where it ends, and what is kept on the way."""

import json
import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from click.testing import CliRunner
from torch import nn

from scs_eval import InputError, load_data, load_model
from scs_eval.cli.main import cli
from scs_eval.models.conversion.bcosify import additive_parameters, bcosify, current_b, learning_layers
from scs_eval.models.conversion.convert import conversion
from scs_eval.models.conversion.target import ConversionSpec
from scs_eval.models.explain.decomposition import decompose
from scs_eval.models.layers import SCS2d
from scs_eval.models.loading.state_dict import metadata_of
from scs_eval.training.job import Job
from scs_eval.training.metrics import ModelEvaluation
from scs_eval.training.ramp import Ramp
from scs_eval.training.recipe import RECIPES, Recipe, make_recipe
from scs_eval.training.run import train
from scs_eval.training.run_directory import RunDirectory

STEPS = 20
SCS = ConversionSpec(layer="scs", same_function=True)


def scsified(name: str) -> nn.Module:
    return conversion(load_model(name), SCS, keep_weights=True).model


def size_of(model: nn.Module, images: torch.Tensor) -> float:
    with torch.no_grad():
        return model(images).std().item()


def ramp(model: nn.Module, images: torch.Tensor, **numbers: float) -> Ramp:
    return Ramp(
        model, make_recipe("scsify", {"ramp_epochs": 1.0, "epochs": 1, **numbers}), images, steps_per_epoch=STEPS
    )


def test_an_scs_network_starts_from_the_function_of_convolutions() -> None:
    """Against the network itself. ŵ·x / (‖x‖ + q) is linear up to ‖x‖/q, here about 1 %."""
    data, model = load_data("sample", n=100), load_model("rohrer100k_conv")
    with torch.no_grad():
        wanted, actual = model(data.images), scsified("rohrer100k_conv")(data.images)
    assert (actual - wanted).abs().max() <= 0.03 * wanted.abs().max()
    assert (actual.argmax(1) == wanted.argmax(1)).float().mean() >= 0.98


def test_p_and_q_arrive_and_outputs_keep_their_size() -> None:
    images = load_data("sample", n=32).images
    model = scsified("rohrer100k_conv")
    first, steps = size_of(model, images), ramp(model, images, ramp_p=1.7)
    for step in range(1, STEPS + 6):
        steps.advance(step)
        assert 0.3 < size_of(model, images) / first < 3, step
    for layer in (module for module in model.modules() if isinstance(module, SCS2d)):
        assert torch.allclose(layer.p, torch.tensor(1.7), atol=1e-5)
        assert layer.log_q.exp().item() == pytest.approx(1e-3, rel=1e-3)


def test_what_p_and_q_learn_besides_is_kept() -> None:
    images = load_data("sample", n=8).images
    model = scsified("rohrer100k_conv")
    steps = ramp(model, images)
    layer = next(module for module in model.modules() if isinstance(module, SCS2d))
    steps.advance(1)
    layer.p.data += 0.25
    for step in range(2, STEPS + 1):
        steps.advance(step)
    assert torch.allclose(layer.p, torch.tensor(2.25), atol=1e-5)


@pytest.mark.parametrize("name", ["resnet20_conv", "rohrer100k_conv"])
def test_a_bcos_network_ends_with_b_and_without_anything_added(name: str) -> None:
    """W(x)·x and the logit bias are all that is left of every logit: checked by the decomposition in float64."""
    images = load_data("sample", n=4).images
    model = bcosify(load_model(name)).model
    first, steps = size_of(model, images), ramp(model, images)
    for step in range(1, STEPS + 1):
        steps.advance(step)
        assert current_b(model) == pytest.approx(1 + step / STEPS)
    assert all((value == 0).all() for _, value in additive_parameters(model))
    parts = decompose(model.eval().double(), images.double(), torch.tensor([1, 2, 3, 4]))
    added = {key: value for key, value in parts.biases.items() if value.abs().max() > 1e-12}
    assert list(added) == ["logits"]
    assert added["logits"].tolist() == pytest.approx([-math.log(9)] * 4)
    assert parts.residual.abs().max() <= 1e-10 * parts.contributions.abs().sum((1, 2, 3)).max()
    if name == "rohrer100k_conv":  # without norms, which would keep it
        assert 0.1 < size_of(model.float(), images) / first < 10


def test_what_b_learns_besides_is_kept() -> None:
    images = load_data("sample", n=8).images
    spec = ConversionSpec(layer="bcos", b=1.0, same_function=True, learn_b=True)
    model = conversion(load_model("rohrer25k_conv"), spec, keep_weights=True).model
    steps = ramp(model, images, ramp_b=1.5)
    first, second, *_ = learning_layers(model)
    steps.advance(1)
    first.learned_b.data += 0.25
    for step in range(2, STEPS + 1):
        steps.advance(step)
    steps.resume(STEPS)
    assert (first.b, second.b) == (pytest.approx(1.75), pytest.approx(1.5))
    assert all((value == 0).all() for _, value in additive_parameters(model))


def test_a_run_that_learns_b_writes_it(tmp_path: Path, few_images: None) -> None:
    start, out = tmp_path / "start.safetensors", tmp_path / "out"
    asked = ["convert", "rohrer25k_conv", "--same-function", "--learn-b", "--layer", "bcos", "--out", str(start)]
    assert CliRunner().invoke(cli, asked, catch_exceptions=False).exit_code == 0
    train_cli(start, out, "--recipe", "bcosify", "--ramp-b", "1")
    before, after = (load_model(path) for path in (start, out / "start.safetensors"))
    assert {layer.b for layer in learning_layers(before)} == {1}
    learned = [layer.b for layer in learning_layers(after)]
    assert len(set(learned)) > 1
    assert min(learned) >= 1
    rows = pd.read_csv(out / "layers.csv")
    last = rows[(rows["quantity"] == "b") & (rows["epoch"] == 2)]["value"].tolist()
    assert last == pytest.approx(learned, abs=1e-6)
    assert all((value == 0).all() for _, value in additive_parameters(after))


def test_a_ramp_needs_a_converted_network() -> None:
    with pytest.raises(InputError, match="convert --same-function"):
        ramp(load_model("rohrer100k_scs"), torch.rand(2, 3, 32, 32))


@pytest.mark.parametrize(
    ("numbers", "said"),
    [
        ({"ramp_epochs": 4}, "ramp_epochs: expected at most epochs"),
        ({"ramp_epochs": 0}, None),
        ({"ramp_epochs": 0, "ramp_b": 1.5}, "need ramp_epochs"),
        ({"ramp_p": 0.5}, "ramp_p: expected at least 1"),
        ({"ema_decay": 0.9}, "ema_decay would average networks"),
    ],
)
def test_numbers_of_a_ramp(numbers: dict[str, float], said: str | None) -> None:
    if said is None:
        assert make_recipe("bcosify", numbers).ramp_epochs == 0
        return
    with pytest.raises(InputError, match=said):
        make_recipe("bcosify", numbers)


def test_the_recipes_are_a_fifth_of_training_from_scratch() -> None:
    for name in ("bcosify", "scsify"):
        assert RECIPES[name].epochs * 5 <= RECIPES["fast"].epochs
    assert isinstance(RECIPES["bcosify"], Recipe)


@pytest.fixture
def few_images(monkeypatch: pytest.MonkeyPatch) -> None:
    """32 random ones in the place of CIFAR-10."""
    draws = np.random.default_rng(0)
    images, labels = draws.integers(0, 256, (32, 3, 32, 32), dtype=np.uint8), np.arange(32) % 10
    monkeypatch.setattr("scs_eval.data.cifar10.read_cifar10", lambda data_dir, train: (images, labels))


def train_cli(start: Path, out: Path, *options: str) -> list[str]:
    numbers = ["--epochs", "2", "--ramp-epochs", "1.5", "--batch-size", "8", "--weights-every", "1"]
    asked = ["train", "--model", str(start), "--out", str(out), *numbers, *options]
    done = CliRunner().invoke(cli, asked, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return sorted(path.name for path in out.glob("*.safetensors"))


@pytest.mark.parametrize("layer", ["bcos", "scs"])
def test_a_run_writes_what_loads_again_and_can_be_interrupted(tmp_path: Path, few_images: None, layer: str) -> None:
    start = tmp_path / "start.safetensors"
    asked = ["convert", "rohrer25k_conv", "--same-function", "--layer", layer, "--out", str(start)]
    assert CliRunner().invoke(cli, asked, catch_exceptions=False).exit_code == 0
    whole, parts, recipe = tmp_path / "whole", tmp_path / "parts", f"{layer}ify"
    assert train_cli(start, whole, "--recipe", recipe) == ["start-epoch1.safetensors", "start.safetensors"]

    def stop(epoch: int, test: ModelEvaluation) -> None:
        raise KeyboardInterrupt

    numbers = {"epochs": 2, "ramp_epochs": 1.5, "batch_size": 8}
    job = Job(str(start), parts, make_recipe(recipe, numbers), weights_every=1)
    with pytest.raises(KeyboardInterrupt):
        train(job, after_epoch=stop)
    assert not RunDirectory(parts).finished  # though the weights of an epoch are there
    train_cli(start, parts, "--recipe", recipe, "--resume")
    first, last = (load_model(whole / name) for name in ("start-epoch1.safetensors", "start.safetensors"))
    again = load_model(parts / "start.safetensors").state_dict()
    assert all(torch.equal(value, again[name]) for name, value in last.state_dict().items())
    if layer == "bcos":
        assert (current_b(first), current_b(last)) == (pytest.approx(1 + 4 / 6), 2)
        spec = json.loads(metadata_of(whole / "start.safetensors")["converted"])["spec"]
        assert (spec["b"], spec["constants"]) == (2, 0)
        assert all((value == 0).all() for _, value in additive_parameters(last))
    assert RunDirectory(whole).finished
