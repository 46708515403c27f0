"""Commands on ImageNet-sized networks and photographs: untrained, with weights given, and from a published file."""

import json
from pathlib import Path

import pandas as pd
import photographs
import published_networks as peer
import pytest
import torch
from click.testing import CliRunner, Result
from safetensors.torch import save_file
from torch import nn

from scs_eval import create_model, load_data
from scs_eval.cli.main import cli
from scs_eval.models.zoo.registry import default_classes, list_models


@pytest.fixture(scope="module")
def photos(tmp_path_factory) -> Path:
    return photographs.real(tmp_path_factory.mktemp("photos") / "val")


@pytest.fixture(scope="module")
def scenes(tmp_path_factory) -> Path:
    return photographs.generated(tmp_path_factory.mktemp("scenes") / "all")


def run(tmp_path: Path, command: str, *arguments: object) -> tuple[Result, pd.DataFrame]:
    out = tmp_path / "out"
    done = CliRunner().invoke(cli, [command, *map(str, arguments), "--out", str(out)], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    assert done.stdout.splitlines()[-1] == str(out)
    return done, pd.read_csv(out / "table.csv")


@torch.no_grad()
def taught(name: str, folder: Path, file: Path) -> Path:
    """Weights that tell a folder's classes apart, mostly: statistics of the images, and as each class's kernel of the
    head what its images' features have that others' have not."""
    data = load_data(folder, size=224, resize=256)
    model = create_model(name, num_classes=len(data.classes))
    for module in model.modules():
        if hasattr(module, "momentum"):
            module.momentum = 1.0
    model.train()(data.images[:])
    head = [module for module in model.modules() if isinstance(module, nn.Conv2d | nn.Linear)][-1]
    features = peer.heard(head, lambda: model.eval()(data.images[:]))
    features = features.mean((2, 3)) if features.ndim == 4 else features
    means = torch.stack([features[data.labels == label].mean(0) for label in range(len(data.classes))])
    offsets, middle = means - means.mean(0), (means + means.mean(0)) / 2
    head.weight.copy_(offsets.view_as(head.weight))
    if head.bias is not None:  # then the nearest mean wins
        head.bias.copy_(-(offsets * middle).sum(1))
    save_file(model.state_dict(), file, metadata={"name": name, "num_classes": str(len(data.classes))})
    return file


def test_contributions_of_an_untrained_network(tmp_path, photos):
    done, table = run(
        tmp_path, "contributions", "--model", "densenet121_bcos", "--weights", "none", "--data", photos, "-n", 2
    )
    assert "untrained, with random weights" in done.stderr
    assert set(table["model"]) == {"densenet121_bcos (untrained)"}
    assert set(table["class"]) <= set(photographs.NAMES)


def test_a_published_file_is_recognised(tmp_path):
    torch.manual_seed(0)
    theirs = peer.published("simple_vit_ti_patch16_224")
    torch.save(
        {"state_dict": {f"model.{key}": value for key, value in theirs.state_dict().items()}}, tmp_path / "a.ckpt"
    )
    done = CliRunner().invoke(cli, ["doctor", str(tmp_path / "a.ckpt"), "--json"], catch_exceptions=False)
    found = json.loads(done.stdout)
    assert found["fits"] == "vit_ti_bcos"
    assert found["undone"] == "took 'state_dict'; removed 'model.'"
    assert (found["loads"], found["classes"]) == ("yes, as vit_ti_bcos", "1000")
    assert (found["input size"], found["normalisation"]) == ("224 pixels", "[x, 1-x]")
    assert found["dynamic-linear"].startswith("yes")


def test_contributions_with_a_published_file(tmp_path, photos):
    """1000 logits, of which the four class folders are some; the file says nothing of itself."""
    torch.manual_seed(0)
    theirs = peer.awakened(peer.published("densenet121"), 64)
    torch.save(theirs.state_dict(), tmp_path / "densenet121-released.pth")
    options = ("--target", "label", "--mean-corrected", "-n", 4)
    _, table = run(
        tmp_path, "contributions", "--model", tmp_path / "densenet121-released.pth", "--data", photos, *options
    )
    assert sorted(table["class"]) == sorted(photographs.NAMES)
    tabby = table[table["class"] == "tabby"].iloc[0]
    image = load_data(photos, size=224, resize=256).images[:1]  # chelsea is the first by synset
    with torch.no_grad():
        logit = theirs(peer.encoded(image, standard=False))[0, 281].item()  # 281 is the tabby cat
    assert abs(tabby["logit"] - logit) <= 5e-5 * abs(logit)  # fp32, as in the parity tests
    assert (table["relative_residual"] < 1e-3).all()


def test_rollout_and_windows_of_a_transformer(tmp_path, scenes):
    file = taught("vit_ti_bcos", scenes, tmp_path / "vit.safetensors")
    _, table = run(tmp_path, "saliency", "--model", f"vit={file}", "--method", "rollout", "--data", scenes, "-n", 2)
    assert table["gini"].notna().all()
    _, table = run(
        tmp_path, "localisation", "--model", f"vit={file}", "--method", "wx", "--method", "rollout", "--data", scenes,
        "--grid", 2, "-n", 1,
    )  # fmt: skip
    assert len(table) == 2
    assert table["seen"].eq("windows of 224, stride 112").all()


@pytest.mark.slow
def test_an_attack_at_224_pixels(tmp_path, scenes):
    """The scenes' classes are colours 0.3 apart, so a change of 0.5 can turn any into any other."""
    file = taught("resnet18_224_bcos", scenes, tmp_path / "resnet.safetensors")
    arguments = ("--eps", "0.5", "--steps", 4, "--rel-step-size", 0.5, "--no-scorecard", "-n", 4, "--data", scenes)
    _, table = run(tmp_path, "pgd", "--model", f"resnet={file}", *arguments)
    assert table["clean_accuracy"].item() >= 0.5  # of four classes, so that there is something to lose
    assert table["accuracy_at_max"].item() < table["clean_accuracy"].item()


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in list_models() if default_classes(name) == 1000])
def test_every_network_is_explained_localised_and_attacked_at_224_pixels(tmp_path, scenes, name):
    """That the commands get through, and that W(x) is complete; what they find is tested on small networks."""
    chosen = ("--model", f"it={taught(name, scenes, tmp_path / 'it.safetensors')}", "--data", scenes)
    method = "wx" if name.endswith("_bcos") or "_bcos_" in name else "ixg"
    if method == "wx":
        _, table = run(tmp_path, "contributions", *chosen, "-n", 1)
        assert table["relative_residual"].item() < 1e-3  # fp32
    run(tmp_path, "saliency", *chosen, "--method", "gradcam" if "vit" not in name else "rollout", "-n", 1)
    run(tmp_path, "localisation", *chosen, "--method", method, "--grid", 2, "-n", 1)
    run(tmp_path, "pgd", *chosen, "--eps", "0.5", "--steps", 2, "--rel-step-size", 0.5, "--no-scorecard", "-n", 2)
