"""Neurons and directions inside a network: what they are, where they peak, and that their explanations are right."""

import json
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from click.testing import CliRunner
from small_networks import published_resnet20
from torch import Tensor, nn

from scs_eval.analyses.contributions.neurons import NeuronsComparison, NeuronsResult, neurons
from scs_eval.analyses.contributions.neurons.directions import choose_directions, linearised
from scs_eval.analyses.contributions.neurons.figure import windows
from scs_eval.analyses.core.result import load_result
from scs_eval.analyses.plotting import colour
from scs_eval.cli.commands.contributions import command
from scs_eval.data import load_data
from scs_eval.errors import InputError
from scs_eval.models.explain.activations import at_positions, features
from scs_eval.models.explain.decomposition import decompose
from scs_eval.models.explain.dynamic_linear import explaining
from scs_eval.models.layers import AddInverse, BcosConv2d, SCS2d, SelfAttention
from scs_eval.models.zoo.registry import create_model


def small(channels: int = 3) -> nn.Sequential:
    """Two convolutions with a biased norm between them, for images of 8 × 8."""
    torch.manual_seed(0)
    first = [AddInverse(), BcosConv2d(6, 5, 3)] if channels == 6 else [SCS2d(3, 5, 3)]
    norm = nn.BatchNorm2d(5, momentum=1.0)
    nn.init.uniform_(norm.bias, -0.1, 0.1)
    model = nn.Sequential(*first, norm, nn.Conv2d(5, 4, 3), nn.Flatten(), nn.Linear(64, 3))
    with torch.no_grad():
        model(pictures())  # the norm's statistics: features that point in all directions
    return model.eval()


def pictures(n: int = 6, size: int = 8) -> Tensor:
    return torch.rand(n, 3, size, size, generator=torch.Generator().manual_seed(1))


@pytest.fixture(scope="module", params=[3, 6])
def result(request: pytest.FixtureRequest) -> NeuronsResult:
    model, last = small(request.param), "2" if request.param == 3 else "3"
    return neurons(model, pictures(), layer=last, channels=[2, 0], directions=3, label="small", top=3, batch_size=4)


def test_neurons_agree_with_the_published_package() -> None:
    theirs, ours = published_resnet20()
    x = torch.rand(3, 3, 32, 32)
    kept: list[Tensor] = []
    theirs.layer2[0].register_forward_hook(lambda module, inputs, output: kept.append(output))
    encoded = torch.cat([x, 1 - x], 1).requires_grad_()
    with theirs.explanation_mode():
        theirs(encoded)
        strongest = kept[0][:, 5].flatten(1).max(1)
        (wanted,) = torch.autograd.grad(strongest.values.sum(), encoded)
    found = neurons(ours, x, layer="layer2.0", channels=[5], top=3)
    order = strongest.values.argsort(descending=True)
    assert found.indices[0].tolist() == order.tolist()
    places = found.positions[0, :, 0] * 16 + found.positions[0, :, 1]
    assert places.tolist() == strongest.indices[order].tolist()
    assert found.activations[0] == pytest.approx(strongest.values[order].detach().numpy(), rel=1e-4)
    limit = 5e-5 * wanted[order].abs().amax((1, 2, 3)).numpy()  # single precision through nine layers
    assert (np.abs(found.rows[0] - wanted[order].numpy()).max((1, 2, 3)) <= limit).all()


def test_neurons_agree_with_the_formula() -> None:
    """SCS and norm written out in double precision, what depends on the input held constant."""
    model, images = small().double(), pictures().double()
    scs, norm = model[0], model[1]
    x = images.clone().requires_grad_()
    kernels = scs.weight / scs.weight.square().sum((1, 2, 3), keepdim=True).sqrt()
    patches = nn.functional.unfold(x, 3)
    size = (patches.square().sum(1, keepdim=True) + scs.eps).sqrt() + scs.log_q.exp().view(1, 1, 1)
    c = (kernels.flatten(1) @ patches) / size.detach()
    y = c.sign() * (c.abs() + scs.eps) ** scs.p.view(1, -1, 1)
    y = c * (y / c).detach()
    factor = (norm.weight / (norm.running_var + norm.eps).sqrt()).view(1, -1, 1)
    constant = norm.bias - norm.running_mean * factor.flatten()
    out = y * factor + constant.view(1, -1, 1)  # (6, 5, 36)
    found = neurons(model, images, layer="1", channels=[3], top=6)
    strongest = out[:, 3].max(1)
    (wanted,) = torch.autograd.grad(strongest.values.sum(), x)
    order = strongest.values.argsort(descending=True)
    assert found.indices[0].tolist() == order.tolist()
    assert np.allclose(found.activations[0], strongest.values[order].detach(), rtol=1e-9)
    assert np.allclose(found.rows[0], wanted[order], atol=1e-12)
    assert np.allclose(found.bias, constant[3].item(), rtol=1e-12)
    assert (np.abs(found.residual) < 1e-12).all()


def awaken(name: str) -> nn.Module:
    """Untrained, but with constants that matter."""
    torch.manual_seed(7)
    model = create_model(name)
    for module in model.modules():
        if getattr(module, "running_var", None) is not None:
            module.momentum = 1.0
        if isinstance(module, nn.BatchNorm2d):
            nn.init.uniform_(module.bias, -0.5, 0.5)
    model.train()
    with torch.no_grad():
        model(torch.rand(4, 3, 32, 32))
    return model.eval()


@pytest.mark.parametrize(
    ("name", "layers", "biased"),
    [
        ("rohrer100k_scs", ["encode", "stages.0", "stages.1.layer", "head"], ["head"]),
        ("rohrer100k_ssdp_relu_maxpool", ["stages.2", "stages"], []),
        ("rohrer100k_conv", ["stages.0.layer", "stages.1.pool", "stages.2.activation", "logits"], ["logits"]),
        ("rohrer100k_bcos", ["encode", "stages.1", "head", "logits"], ["logits"]),
        ("resnet20_conv", ["bn1", "layer2.0", "layer2.0.activation", "layer3.2.bn2"], ["bn1", "layer2.0"]),
        ("resnet20_bcos_pnu", ["layer1.0.bn1", "layer2.0.downsample", "layer3"], []),
    ],
)
def test_contributions_and_biases_add_up(name: str, layers: list[str], biased: list[str]) -> None:
    model, images = awaken(name), pictures(3, 32)
    for layer in layers:
        found = neurons(model, images, layer=layer, channels=[1, 2], directions=1, top=2)
        terms = np.abs(found.rows * found.inputs).sum((2, 3, 4)) + np.abs(found.biases).sum(-1)
        # A sum of terms of both signs that nearly cancels keeps the rounding of its terms.
        assert (np.abs(found.residual) <= 1e-5 * np.maximum(np.abs(found.activations), 1e-2 * terms)).all(), layer
        assert found.activations.any()
        if layer in biased:
            assert (np.abs(found.bias) > 1e-3 * np.abs(found.activations)).any(), layer
        if layer == "encode":
            assert np.count_nonzero(found.rows[0, 0]) == 1  # a pixel is explained by itself


def test_only_biases_up_to_the_layer_count() -> None:
    found = neurons(small(), pictures(), layer="1", channels=[0], top=2)
    assert found.layers == ("1", "2", "4")
    assert found.biases[..., 0].all()
    assert not found.biases[..., 1:].any()


def test_a_batch_is_exactly_the_same_as_one_at_a_time() -> None:
    """Small whole numbers have no rounding, so the order in which a convolution adds makes no difference."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Conv2d(4, 3, 3), nn.Flatten(), nn.Linear(48, 3)).double()
    for parameter in model.parameters():
        parameter.data = torch.randint(-2, 3, parameter.shape).double()
    images = (4 * pictures()).round().double() / 4
    options = {"layer": "2", "channels": [2, 0], "top": 4}
    together, alone = (neurons(model, images, **options, batch_size=size) for size in (50, 1))
    for key, values in together.arrays().items():
        assert np.array_equal(values, alone.arrays()[key], equal_nan=True), key
    assert not together.residual.any()
    assert together.bias.any()


def test_the_batch_size_changes_nothing() -> None:
    options = {"layer": "2", "channels": [2, 0], "directions": 2, "top": 4}
    model, images = small().double(), pictures().double()
    together, alone = (neurons(model, images, **options, batch_size=size) for size in (50, 1))
    for key, values in together.arrays().items():
        assert np.allclose(values, alone.arrays()[key], rtol=1e-12, atol=1e-12, equal_nan=True), key
    assert len(together.features) == 4


def test_peaks_by_brute_force(result: NeuronsResult) -> None:
    model = small(result.rows.shape[2])
    with torch.no_grad():
        output = nn.Sequential(*list(model)[:-2])(pictures()).numpy()
    for vector, indices, positions, activations in zip(
        result.vectors, result.indices, result.positions, result.activations, strict=True
    ):
        answers = np.einsum("c,nchw->nhw", vector, output)
        assert indices.tolist() == np.argsort(-answers.max((1, 2)))[:3].tolist()
        for index, (row, column), activation in zip(indices, positions, activations, strict=True):
            assert answers[index].max() == answers[index, row, column]
            assert activation == pytest.approx(answers[index].max(), rel=1e-5)
    assert np.array_equal(result.vectors[:2], np.eye(4)[[2, 0]])


def test_directions_by_hand() -> None:
    """A linear network: the term of a position is the head's row there times the feature vector."""
    torch.manual_seed(2)
    model = nn.Sequential(nn.Conv2d(3, 2, 2, 2, bias=False), nn.Flatten(), nn.Linear(32, 3)).double().eval()
    images, targets = pictures().double(), torch.tensor([0, 1, 2, 0, 1, 2])
    with torch.no_grad():
        maps, head = model[0](images), model[2].weight.view(3, 2, 4, 4)
    terms = np.array([(maps[i] * head[target]).sum(0).flatten().tolist() for i, target in enumerate(targets)])
    activations, slopes, logits = linearised(model, images, targets, layer="0")
    assert np.allclose((activations * slopes).sum(1), terms)
    assert np.allclose(terms.sum(1) + model[2].bias[targets].tolist(), logits)

    vectors = torch.nn.functional.normalize(maps.flatten(2), dim=1)
    chosen: list[tuple[int, int]] = []
    for i, place in (np.unravel_index(k, terms.shape) for k in np.argsort(-terms.flatten())):
        if terms[i, place] > 0 and all((vectors[i, :, place] @ vectors[j, :, other]) <= 0.8 for j, other in chosen):
            chosen.append((int(i), int(place)))
    found = choose_directions(model, images, targets, layer="0", count=50, batch_size=4)
    assert list(zip(found.sources.tolist(), found.offsets.tolist(), strict=True)) == chosen
    assert 1 < len(chosen) < 10
    assert np.allclose(found.contributions, [terms[pair] for pair in chosen])
    assert torch.allclose(found.vectors, torch.stack([vectors[i, :, place] for i, place in chosen]))
    assert torch.equal(found.targets, targets[found.sources])
    first = choose_directions(model, images, targets, layer="0", count=1)
    assert torch.equal(first.vectors, found.vectors[:1])


def test_the_wanted_class_decides_the_directions() -> None:
    found = [
        neurons(small(), pictures(), torch.full((6,), target), layer="2", directions=1, labels=torch.arange(6) % 3)
        for target in (0, 1)
    ]
    assert found[0].source_classes.tolist() == [0]
    assert found[1].source_classes.tolist() == [1]
    assert not np.allclose(found[0].vectors, found[1].vectors)


@pytest.mark.parametrize("shape", [(2, 3), (2, 5, 3), (2, 3, 4, 5)])
def test_features_and_back(shape: tuple[int, ...]) -> None:
    output, vectors = torch.rand(shape), torch.rand(2, 3)
    places = torch.tensor([0, features(output).shape[2] - 1])
    mixtures = at_positions(vectors, places, output)
    assert mixtures.shape == shape
    wanted = [(vectors[i] * features(output)[i, :, places[i]]).sum().item() for i in range(2)]
    assert (mixtures * output).flatten(1).sum(1).tolist() == pytest.approx(wanted)


def test_tokens_have_neurons_too() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(2), SelfAttention(64, 2, head_width=8), nn.Flatten(), nn.Linear(192, 3)).eval()
    found = neurons(model, pictures(), layer="1", channels=[63], directions=1, top=2)
    with torch.no_grad():
        tokens = model[1](model[0](pictures()))[..., 63]
    assert found.activations[0, 0] == pytest.approx(tokens.max().item(), rel=1e-5)
    assert found.positions[0, 0].tolist() == [int(tokens.amax(0).argmax()), 0]
    assert found.complete.all()


def test_tables_say_what_the_arrays_say(result: NeuronsResult) -> None:
    table = result.table()
    assert len(table) == 5 * 3
    assert np.allclose(table["activation"], table["contributions"] + table["bias"] + table["residual"])
    assert table["complete"].all()
    assert result.features == ("neuron 2", "neuron 0", "direction 1", "direction 2", "direction 3")
    sources = result.tables()["directions"]
    assert sources["feature"].tolist() == ["direction 1", "direction 2", "direction 3"]
    assert (sources["contribution"].diff().dropna() <= 0).all()
    assert list(result.summary())[:3] == ["model", "layer", "feature"]


def test_what_is_not_dynamic_linear_is_marked() -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Sigmoid(), nn.Flatten(), nn.Linear(144, 3)).eval()
    before, after = (neurons(model, pictures(), layer=layer, channels=[0], top=2) for layer in ("0", "1"))
    assert before.complete.all()
    assert not after.complete.any()
    assert after.summary()[""].tolist() == ["INCOMPLETE"] * 2
    texts = [text.get_text() for text in after.figure().axes[0].texts]
    assert any(text.endswith(" !") for text in texts)


def test_results_are_saved_drawn_and_compared(result: NeuronsResult, tmp_path: Path) -> None:
    result.save(tmp_path)
    again = load_result(tmp_path)
    assert isinstance(again, NeuronsResult)
    pd.testing.assert_frame_equal(again.table(), result.table())
    assert list(again.figures()) == ["figure", "figure-2"]
    assert result.rgba().shape == (5, 3, 8, 8, 4)
    if not result.coloured:
        assert np.allclose(colour.on_white(result.rgba()[2]), colour.signed(result.maps[2]))
        with pytest.raises(InputError, match="no colours"):
            result.rgba("paper")
    other = neurons(small(), pictures(), layer="1", channels=[0], label="other")
    both = NeuronsComparison.of([result, other], label="both")
    assert list(both.figures()) == ["figure", "small_figure", "small_figure-2", "other_figure"]
    texts = [text.get_text() for text in both.figure().axes[0].texts]
    assert any(text.startswith("other\n1\nneuron 0") for text in texts)


def test_windows_hold_what_is_seen() -> None:
    rows = np.zeros((2, 1, 20, 20))
    rows[0, 0, 3:6, 10:20] = 1
    rows[0, 0, 0, 0] = 0.01  # faint
    rows[1, 0, 19, 0] = -1
    corners, side = windows(rows)
    assert side == 10
    assert corners.tolist() == [[0, 10], [10, 0]]
    assert windows(np.ones((1, 3, 9, 9)))[1] == 9
    assert windows(np.zeros((1, 3, 9, 9)))[1] == 9  # silent


def state(model: nn.Module) -> list[object]:
    flags = [(p.requires_grad, p.grad is None) for p in model.parameters()]
    hooks = [len(m._forward_hooks) for m in model.modules()]
    return [flags, hooks, [m.training for m in model.modules()], explaining(), torch.random.get_rng_state().tolist()]


@pytest.mark.parametrize("calls", [1, 3, 4])
def test_models_come_out_untouched(calls: int) -> None:
    """Also when the network fails: while it is measured, while directions are sought, while neurons are explained."""
    model = small(6)
    model[2].train()
    weights = {key: value.clone() for key, value in model.state_dict().items()}
    before = state(model)
    neurons(model, pictures(), layer="3", channels=[0], directions=1)
    assert state(model) == before
    seen: list[int] = []

    def fail(module: nn.Module, inputs: object, output: Tensor) -> None:
        seen.append(1)
        if explaining() and len(seen) > calls:
            raise KeyError("inside")

    handle = model[4].register_forward_hook(fail)
    before = state(model)
    with pytest.raises(KeyError, match="inside"):
        neurons(model, pictures(), layer="3", channels=[0], directions=1)
    assert state(model) == before
    handle.remove()
    assert all(torch.equal(value, weights[key]) for key, value in model.state_dict().items())


class Detour(nn.Module):
    """A layer that never runs, one that gives a pair, one that the logits ignore."""

    def __init__(self) -> None:
        super().__init__()
        self.idle, self.first, self.aside = nn.Linear(2, 2), nn.Conv2d(3, 2, 8), nn.Conv2d(3, 2, 8)
        self.pair = nn.LSTM(2, 2, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        y = self.first(x).flatten(1)
        self.aside(x)
        return y + self.pair(y[:, None])[0][:, 0]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"layer": "frist", "channels": [0]}, "unknown layer 'frist'; did you mean first.*layers: idle, first, aside"),
        ({"layer": "idle", "channels": [0]}, "idle is not reached"),
        ({"layer": "pair", "channels": [0]}, "pair gives a tuple"),
        ({"layer": "aside", "directions": 1}, "do not depend on the output of aside"),
        ({"layer": "first", "channels": [2]}, "neuron of first from 0 to 1, got 2"),
        ({"layer": "first", "channels": [-1]}, "channels as a whole number of at least 0, got -1"),
        ({"layer": "first", "channels": [1, 1]}, "each neuron once"),
        ({"layer": "first"}, "channels, or directions of at least 1"),
        ({"layer": "first", "directions": -1}, "directions as a whole number of at least 0"),
        ({"layer": "first", "channels": [0], "top": 0}, "top as a whole number of at least 1, got 0"),
        ({"layer": "first", "channels": [0], "picture": "oil"}, "expected picture as one of paper, bcos-v2"),
        ({"layer": "first", "channels": [0], "targets": torch.full((6,), 2)}, "from 0 to 1, got 2"),
    ],
)
def test_wrong_requests(options: dict, message: str) -> None:
    with pytest.raises(InputError, match=message):
        neurons(Detour().eval(), pictures(), **options)


def test_mixtures_must_fit_the_layer() -> None:
    with pytest.raises(
        InputError, match=re.escape("expected mixtures (N, K, 4, 4, 4) of 2, got torch.float32 (6, 1, 4)")
    ):
        decompose(small(), pictures(), torch.zeros(6, 1, 4), layer="2")
    with pytest.raises(InputError, match="expected mixtures"):
        decompose(small(), pictures(), torch.zeros(6).long(), layer="2")


def test_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    arguments = ["--model", "rohrer100k_scs", "--layer", "stages.1", "--neuron", "3", "--directions", "1", "-n", "20"]
    done = CliRunner().invoke(command, [*arguments, "--target", "dog"], catch_exceptions=False)
    out = Path("results/neurons/rohrer100k_scs")
    assert done.stdout.splitlines()[-1] == str(out)
    table = pd.read_csv(out / "table.csv")
    assert table["feature"].tolist() == ["neuron 3"] * 7 + ["direction 1"] * 7
    assert table["complete"].all()
    assert set(table["index"]) <= set(load_data("sample", n=20).indices.tolist())
    assert pd.read_csv(out / "directions.csv")["class"].tolist() == ["dog"]
    assert {"figure.png", "arrays.npz"} <= set(json.loads((out / "run.json").read_text())["files"])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--neuron", "3"], "--neuron needs --layer"),
        (["--directions", "3"], "--directions needs --layer"),
        (["--layer", "stage.1"], "did you mean stages.1"),
        (["--layer", "stages.1", "--neuron", "64"], "from 0 to 63, got 64"),
        (["--layer", "stages.1", "--directions", "0"], "--directions of at least 1, got 0"),
        (["--layer", "stages.1", "--delta"], "--delta is about logits"),
    ],
)
def test_wrong_commands_write_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=message):
        CliRunner().invoke(command, ["--model", "rohrer100k_scs", "-n", "10", *arguments], catch_exceptions=False)
    assert not list(tmp_path.iterdir())
