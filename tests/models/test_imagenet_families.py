"""The ImageNet networks against the published B-cos package and torchvision: weights, answers, W, start."""

import csv
import os
from functools import partial
from pathlib import Path

import published_networks as peer
import pytest
import torch
import torchvision
from bcos.models.convnext import BcosConvNeXt, CNBlockConfig
from bcos.models.resnet import BcosResNet, Bottleneck
from bcos.modules import BcosConv2d, norms
from torch import nn
from torchvision.transforms.functional import normalize

from scs_eval import InputError
from scs_eval.models.architectures import convnext, resnet
from scs_eval.models.architectures._imagenet import MEAN, STD
from scs_eval.models.conversion.transfer import transfer_weights
from scs_eval.models.explain.decomposition import decompose
from scs_eval.models.zoo.parameter_counts import parameter_count
from scs_eval.models.zoo.registry import canonical_name, create_model, default_classes, input_size, list_models

LARGE = [name for name in list_models() if default_classes(name) == 1000]
TORCHVISION = {
    **{f"resnet{depth}_conv": f"ResNet{depth}" for depth in (34, 50, 101, 152)},
    "resnext50_32x4d_conv": "ResNeXt50_32X4D",
    "vgg11_conv": "VGG11_BN",
    **{f"densenet{depth}_conv": f"DenseNet{depth}" for depth in (121, 161, 169, 201)},
    **{f"convnext_{size}_conv": f"ConvNeXt_{size.title()}" for size in ("tiny", "base")},
}


def size(model: nn.Module) -> int:
    return sum(p.numel() for p in model.parameters())


def test_every_entry_point_is_a_network_of_ours_and_every_network_has_a_peer():
    assert set(peer.OURS) == set(peer.pretrained.list_available())
    assert set(LARGE) <= {*peer.OURS.values(), *TORCHVISION}
    assert all(name in list_models() and input_size(name) == 224 for name in peer.OURS.values())


@pytest.mark.parametrize("entry", peer.OURS)
def test_published_state_dict_fits(entry):
    with torch.device("meta"):
        theirs, ours = peer.published(entry), create_model(peer.OURS[entry], num_classes=1000)
    ours.load_state_dict(theirs.state_dict(), strict=True)
    assert size(ours) == size(theirs)
    if default_classes(peer.OURS[entry]) == 1000:
        assert parameter_count(peer.OURS[entry]) == size(theirs)


SMALL = ["densenet121", "simple_vit_ti_patch16_224", "vitc_ti_patch1_14", "standard_vitc_ti_patch1_14"]


@pytest.mark.parametrize("entry", SMALL)
def test_same_answers_as_published(entry):
    row = peer.compare_entry(entry, 64)
    assert peer.agree(row[4:]), row


LAYERS = {
    "bnu": norms.NoBias(norms.BatchNormUncentered2d),
    "pn": partial(norms.NoBias(norms.DetachablePositionNorm2d), eps=1e-6),
}


@pytest.mark.parametrize("norm", ["pn", "bnu"])
def test_same_answers_as_a_smaller_published_convnext(norm, monkeypatch):
    torch.manual_seed(0)
    monkeypatch.setitem(convnext.SHAPES, "convnext_tiny", ((8, 16, 24, 32), (1, 1, 2, 1), 0.1))
    stages = [CNBlockConfig(8, 16, 1), CNBlockConfig(16, 24, 1), CNBlockConfig(24, 32, 2), CNBlockConfig(32, None, 1)]
    theirs = peer.awakened(BcosConvNeXt(stages, norm_layer=LAYERS[norm], num_classes=7), 64)
    differences = peer.compare(theirs, create_model(f"convnext_tiny_bcos_{norm}", num_classes=7), 64)
    assert peer.agree(differences), differences


def test_same_answers_as_a_shallower_published_resnext(monkeypatch):
    torch.manual_seed(0)
    monkeypatch.setitem(resnet.SHAPES["resnext50_32x4d"], "layers", [1, 1, 1, 1])
    options = {"groups": 32, "width_per_group": 4, "norm_layer": LAYERS["bnu"], "conv_layer": BcosConv2d}
    theirs = peer.awakened(BcosResNet(Bottleneck, [1, 1, 1, 1], num_classes=7, **options), 64)
    differences = peer.compare(theirs, create_model("resnext50_32x4d_bcos", num_classes=7), 64)
    assert peer.agree(differences), differences


def test_the_committed_table_has_all_entry_points_and_agrees():
    with (Path(__file__).parents[2] / "docs" / "bcos_parity.csv").open(newline="") as file:
        header, *rows = csv.reader(file)
    assert tuple(header) == peer.Row._fields
    assert {row[0]: row[1] for row in rows} == peer.OURS
    assert all(peer.agree([float(value) for value in row[4:]]) for row in rows)


@pytest.mark.slow
def test_table_of_all_entry_points(tmp_path):
    """Written to $SCS_EVAL_PARITY_TABLE, of all entry points or of those in $SCS_EVAL_PARITY_ENTRIES.

    SCS_EVAL_PARITY_TABLE=docs/bcos_parity.csv pytest -m slow -n 0 tests/test_imagenet_families.py
    """
    path = Path(os.environ.get("SCS_EVAL_PARITY_TABLE", tmp_path / "published.csv"))
    chosen = os.environ.get("SCS_EVAL_PARITY_ENTRIES", ",".join(peer.OURS)).split(",")
    wrong = []
    with path.open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(peer.Row._fields)
        for entry in chosen:
            row = peer.compare_entry(entry, 96)
            table.writerow([f"{value:.1e}" if isinstance(value, float) else value for value in row])
            file.flush()
            wrong += [] if peer.agree(row[4:]) else [row]
    assert not wrong


@pytest.mark.parametrize(("name", "theirs"), TORCHVISION.items())
def test_twins_take_torchvisions_weights(name, theirs):
    weights = torchvision.models.get_weight(f"{theirs}_Weights.IMAGENET1K_V1")
    assert parameter_count(name) == weights.meta["num_params"]
    with torch.device("meta"):
        model = torchvision.models.get_model(theirs.lower())
        ours = create_model(name)
    ours.load_state_dict(model.state_dict(), strict=True)
    assert size(ours) == parameter_count(name)


@pytest.mark.parametrize("name", ["resnet34_conv", "densenet121_conv"])
def test_twins_answer_as_torchvisions_do_to_normalised_images(name):
    torch.manual_seed(0)
    theirs, x = torchvision.models.get_model(TORCHVISION[name].lower()), torch.rand(2, 3, 64, 64)
    theirs.train()(normalize(x, MEAN, STD))
    ours = create_model(name)
    ours.load_state_dict(theirs.state_dict(), strict=True)
    wanted = theirs.eval()(normalize(x, MEAN, STD))
    assert (ours.eval()(x) - wanted).abs().max() <= 1e-5 * wanted.abs().max()  # fp32, in other steps


@pytest.mark.parametrize("name", ["densenet121_bcos", "vit_ti_bcos", "vitc_ti_bcos"])
def test_contributions_and_positions_add_up_to_the_logit(name):
    """Bias-free CNNs are complete; a transformer's positions add what the image does not."""
    torch.manual_seed(0)
    model, x = create_model(name).double(), torch.rand(2, 3, 64, 64, dtype=torch.double)
    model.train()(x)
    found = decompose(model.eval(), x, torch.tensor([1, 2]))
    assert (found.residual.abs() <= 1e-9 * found.contributions.abs().sum((1, 2, 3))).all()
    assert set(found.biases) == ({"logits"} if "densenet" in name else {"logits", "positions"})
    if "positions" in found.biases:
        share = found.biases["positions"].abs() / found.contributions.sum((1, 2, 3)).abs()
        assert (share > 0.01).all()


@pytest.mark.parametrize("architecture", ["densenet121", "convnext_tiny", "vit_ti", "vitc_ti"])
def test_bcos_form_starts_from_the_weights_of_its_twin(architecture, monkeypatch):
    monkeypatch.setitem(convnext.SHAPES, "convnext_tiny", ((8, 16, 24, 32), (1, 1, 2, 1), 0.1))
    twin, model = (create_model(f"{architecture}_{layer}", num_classes=7, seed=3) for layer in ("conv", "bcos"))
    other = create_model(f"{architecture}_conv", num_classes=7, seed=4)
    theirs, mine, others = (kernels(network) for network in (twin, model, other))
    assert len(theirs) == len(mine)
    for kernel, start, elsewhere in zip(mine, theirs, others, strict=True):
        assert not torch.equal(start, elsewhere)
        if kernel.numel() == 2 * start.numel():  # six channels for three: last in a patch, second in a convolution
            axis = 1 if kernel.ndim == 4 else 2
            kernel, start = (t if t.ndim == 4 else t.unflatten(1, (256, -1)) for t in (kernel, start))
            start = torch.cat([start, -start], axis) / 2
        assert torch.equal(kernel.flatten(), start.flatten())


def kernels(model: nn.Module) -> list[torch.Tensor]:
    """All weights but those of norms, in the order in which the layers are made."""
    layers = [module for module in model.modules() if isinstance(module, nn.Conv2d | nn.Linear)]
    return [layer.weight.detach() for layer in layers]


def test_a_linear_layer_over_a_window_becomes_a_convolution():
    """The first layer of VGG's head, smaller."""
    linear, conv, x = nn.Linear(2 * 3 * 3, 4, bias=False), nn.Conv2d(2, 4, 3, bias=False), torch.rand(5, 2, 3, 3)
    assert transfer_weights({"0.weight": linear.weight}, nn.Sequential(conv)) == ["0.weight"]
    assert torch.allclose(conv(x).flatten(1), linear(x.flatten(1)), atol=1e-6)


def test_options_and_names():
    assert canonical_name("convnext_tiny_bcos_pn") == "convnext_tiny_bcos"
    assert canonical_name("convnext_tiny_conv") == "convnext_tiny_conv"
    with pytest.raises(InputError, match=r"unknown option 'bnu'.*: none"):
        create_model("convnext_tiny_conv_bnu")
    with pytest.raises(InputError, match=r"did you mean .*densenet121"):
        create_model("densnet121_bcos")
    model = create_model("vit_ti_bcos_b=1.5", num_classes=7)
    assert {module.b for module in model.modules() if hasattr(module, "b")} == {1.5}
    assert model(torch.rand(1, 3, 32, 48)).shape == (1, 7)
    with pytest.raises(InputError, match=r"divisible by 16, got \(32, 40\)"):
        model(torch.rand(1, 3, 32, 40))
