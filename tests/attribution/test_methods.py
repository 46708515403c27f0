"""The record of each attribution method: what it says is measured on the method itself."""

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner
from torch import Tensor, nn

from scs_eval.analyses.attribution.attribute import attribute, pixel_maps
from scs_eval.analyses.attribution.methods import METHODS, MapOptions, Method, caption, find_method
from scs_eval.analyses.attribution.own_methods import register_method
from scs_eval.analyses.saliency import SaliencyOptions, saliency
from scs_eval.cli.main import cli
from scs_eval.errors import InputError, NotApplicableError
from scs_eval.models.zoo.registry import create_model

IMAGES = torch.rand(2, 3, 32, 32, generator=torch.Generator().manual_seed(5))
TARGETS = torch.tensor([[0, 3, 2], [1, 0, 4]])
CLASS_BY_CLASS = [name for name, method in METHODS.items() if "attention" not in method.needs]


def network() -> nn.Sequential:
    torch.manual_seed(1)
    layers = nn.Conv2d(3, 6, 3, padding=1), nn.ReLU(), nn.Conv2d(6, 8, 3, padding=1), nn.ReLU()
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(32, 5)).eval()


class Steps(nn.Module):
    """Not differentiable."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([(x > 0.5).float().mean((2, 3)), (x > 0.2).float().mean((2, 3))[:, :2]], 1)


@pytest.mark.parametrize("name", CLASS_BY_CLASS)
def test_passes_are_as_many_as_the_record_says(name: str) -> None:
    """Of one image; besides them, at most three to check the model, find the layer and see what adds up."""
    model, method, images = network(), METHODS[name], []
    model[0].register_forward_pre_hook(lambda _m, inputs: images.append(len(inputs[0])))
    attribute(model, IMAGES[:1], TARGETS[:1, 0], method=name)
    assert method.passes <= sum(images) <= method.passes + 4  # DeepLIFT's check is two, on both ends
    images.clear()
    pixel_maps(model, IMAGES[:1], TARGETS[:1], method=name)
    assert (sum(images) <= method.passes + 1) == method.shares_passes


@pytest.mark.parametrize("name", CLASS_BY_CLASS)
def test_one_class_is_several_with_one(name: str) -> None:
    alone = attribute(network(), IMAGES, TARGETS[:, 1], method=name).sum(1)
    assert torch.equal(pixel_maps(network(), IMAGES, TARGETS[:, 1:2], method=name)[:, 0], alone)


@pytest.mark.parametrize("name", CLASS_BY_CLASS)
def test_who_needs_a_gradient(name: str) -> None:
    if METHODS[name].needs_gradient:
        with pytest.raises(NotApplicableError):
            attribute(Steps(), IMAGES, TARGETS[:, 0], method=name)
    else:
        assert attribute(Steps(), IMAGES, TARGETS[:, 0], method=name).any()


@pytest.mark.parametrize("name", [name for name in CLASS_BY_CLASS if METHODS[name].local])
def test_local_maps_are_zero_where_the_logit_does_not_look(name: str) -> None:
    model = network()
    crop = nn.Sequential(nn.ZeroPad2d((0, -16, 0, 0)), model).eval()  # the left half alone
    maps = attribute(crop, IMAGES, TARGETS[:, 0], method=name)
    assert not maps[..., 16:].any()
    assert maps[..., :16].any()


@pytest.mark.parametrize("name", ["intgrad", "deeplift", "wx"])
def test_what_adds_up(name: str) -> None:
    """Without biases W(x)⊙x is the whole logit; the others are the change from black."""
    model = network()
    for module in model:
        if hasattr(module, "bias"):
            module.bias = None
    with torch.no_grad():
        change = (model(IMAGES) - model(torch.zeros_like(IMAGES)))[[0, 1], TARGETS[:, 0]]
    found = attribute(model, IMAGES, TARGETS[:, 0], method=name).sum((1, 2, 3))
    torch.testing.assert_close(found, change, rtol=1e-4, atol=1e-6)  # fp32 sums of 3,072 terms


@pytest.mark.parametrize("name", [name for name in CLASS_BY_CLASS if "seed" in METHODS[name].reads])
def test_who_reads_the_seed(name: str) -> None:
    first, second = (pixel_maps(network(), IMAGES, TARGETS, method=name, options=MapOptions(seed=s)) for s in (0, 1))
    assert not torch.equal(first, second)


def test_others_do_not_read_the_seed() -> None:
    for name in CLASS_BY_CLASS:
        if "seed" not in METHODS[name].reads:
            maps = [pixel_maps(network(), IMAGES, TARGETS, method=name, options=MapOptions(seed=s)) for s in (0, 1)]
            assert torch.equal(*maps), name


def test_sensitivities_do_not_scale_with_the_image() -> None:
    """Of a linear model: a gradient is the same for half the image, a contribution is half of it."""
    linear = nn.Sequential(nn.Flatten(), nn.Linear(3072, 5, bias=False)).eval()
    for name in ("grad", "smoothgrad", "ixg", "intgrad", "wx", "occlusion"):
        whole, half = (attribute(linear, IMAGES * scale, TARGETS[:, 0], method=name) for scale in (1, 0.5))
        factor = 1 if METHODS[name].quantity == "sensitivity" else 0.5
        torch.testing.assert_close(half, factor * whole, rtol=1e-3, atol=1e-6)  # occlusion: differences in fp32


def brightness(model: nn.Module, images: Tensor, targets: Tensor, options: MapOptions) -> Tensor:
    return images[:, None].expand(-1, targets.shape[1], -1, -1, -1)


def test_a_method_of_ones_own_reaches_the_analyses() -> None:
    own = Method(
        name="brightness", label="brightness", source="here", function=brightness, measures="light", fails="always"
    )
    register_method(own)
    assert caption("brightness") == "brightness"
    torch.testing.assert_close(attribute(network(), IMAGES, TARGETS[:, 0], method="brightness"), IMAGES)
    few = SaliencyOptions(samples=0)
    result = saliency(network(), IMAGES, TARGETS[:, 0], classes=list("abcde"), method="brightness", options=few)
    torch.testing.assert_close(torch.from_numpy(result.maps), IMAGES.amax(1))
    with pytest.raises(InputError, match="already"):
        register_method(own)


def test_the_registry_does_not_import_torch() -> None:
    code = "import sys; import scs_eval.analyses.attribution.methods, scs_eval.cli.commands.methods; "
    done = subprocess.run(
        [sys.executable, "-c", f"{code}print('torch' in sys.modules)"], capture_output=True, text=True
    )
    assert done.stdout.strip() == "False", done.stderr


def test_command_lists_every_method() -> None:
    listed = json.loads(CliRunner().invoke(cli, ["methods", "--json"]).output)
    assert [row["name"] for row in listed] == list(METHODS)
    assert all(row["source"] and row["measures"] and row["fails"] and row["cost"] for row in listed)
    shown = CliRunner().invoke(cli, ["methods", "gradcam"]).output
    assert "Selvaraju" in shown.replace("\n", " ")
    assert "convolution" in shown
    refused = CliRunner().invoke(cli, ["methods", "gradcm"])
    assert "did you mean gradcam" in str(refused.exception)


@pytest.mark.parametrize("width", [60, 80, 139])
def test_a_narrow_terminal_gets_paragraphs_of_whole_words(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    lines = CliRunner().invoke(cli, ["methods"]).output.splitlines()
    assert max(map(len, lines)) <= width
    words = {word for line in lines for word in line.split()}
    assert {"Sundararajan", "references)"} <= words
    assert all(METHODS[name].fails.split()[-1] in words for name in METHODS)


def test_no_other_file_lists_methods() -> None:
    """Two names of methods in one tuple, list or set: but for the default of faithfulness, the registry alone."""
    root = Path(__file__).parents[2]
    files = [path for folder in ("analyses", "scs_eval") for path in (root / folder).rglob("*.py")]
    for path in files:
        if path.name in ("methods.py",):
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Tuple | ast.List | ast.Set):
                names = [item.value for item in node.elts if isinstance(item, ast.Constant) and item.value in METHODS]
                assert len(names) < 2 or tuple(names) == ("grad", "ixg", "wx"), f"{path}:{node.lineno} lists {names}"


def test_six_channels_of_a_network_that_encodes() -> None:
    """By hand: x ⊙ gradient with respect to [x, 1−x], which a copy of the network without its encoding takes."""
    model = create_model("bcos_cnn9_w=0.125").eval()
    bare = create_model("bcos_cnn9_w=0.125").eval()
    bare.load_state_dict(model.state_dict())
    encoding = next(name for name, module in bare.named_modules() if type(module).__name__ == "AddInverse")
    bare.set_submodule(encoding, nn.Identity())
    six = torch.cat([IMAGES, 1 - IMAGES], 1).requires_grad_()
    (slope,) = torch.autograd.grad(bare(six)[[0, 1], TARGETS[:, 0]].sum(), six)
    wanted = (six * slope).detach().unflatten(1, (2, 3)).sum(1)
    found = attribute(model, IMAGES, TARGETS[:, 0], method="ixg", channels=6)
    torch.testing.assert_close(found, wanted)
    three = attribute(model, IMAGES, TARGETS[:, 0], method="ixg")
    assert (three - found).abs().max() > 0.1 * found.abs().max()


@pytest.mark.parametrize("name", ["smoothgrad", "intgrad", "occlusion", "rise", "lime", "gradcam", "wx"])
def test_six_channels_of_a_network_that_does_not_encode_are_its_three(name: str) -> None:
    maps = [attribute(network(), IMAGES, TARGETS[:, 0], method=name, channels=channels) for channels in (3, 6)]
    assert torch.equal(*maps)


def test_other_numbers_of_channels() -> None:
    with pytest.raises(InputError, match="3 or 6 channels"):
        attribute(network(), IMAGES, TARGETS[:, 0], channels=4)


def test_unknown_names() -> None:
    with pytest.raises(InputError, match="did you mean gradcam"):
        find_method("gradcm")
    assert caption("of another version") == "of another version"
