"""Every analysis on a device that is not the CPU and has no double precision: it runs, and says what the CPU says.

There is no GPU here: `helpers/fake_gpu.py` pretends one. That it would notice a mistake is tested first.
"""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from click.testing import CliRunner
from fake_gpu import fake_gpu
from matplotlib.figure import Figure
from torch import nn
from torchvision.models import VisionTransformer

from scs_eval.analyses.attribution.attribute import attribute
from scs_eval.analyses.attribution.methods import METHODS
from scs_eval.cli.main import cli
from scs_eval.data import load_data
from scs_eval.models.loading.load import load_model

SCS, BCOS = "rohrer25k_scs", "bcos_cnn9_w=0.25"
FEW_STEPS = ("apgd-ce-3", "apgd-dlr-targeted-3", "fab-targeted-3", "square-20")
COMMANDS = {
    "accuracy": ["accuracy", SCS, BCOS, "-n", "20"],
    "calibration": ["calibration", SCS, BCOS, "-n", "20", "--bins", "4"],
    "corruptions": ["corruptions", SCS, BCOS, "-n", "6", "--corruption", "shot_noise"],
    "detect": ["detect", SCS, "-n", "24", "--eps", "0.02"],
    "certify": ["certify", SCS, "-n", "2", "--samples", "20", "--guesses", "5", "--draws", "1"],
    "saliency": ["saliency", SCS, BCOS, "-n", "4"],
    "contributions": ["contributions", SCS, BCOS, "-n", "2", "--audit"],
    "neurons": ["contributions", "rohrer25k_conv", "-n", "4", "--layer", "stages.1", "--directions", "2"],
    "faithfulness": ["faithfulness", SCS, "-n", "2", "--method", "grad", "--method", "wx", "--steps", "2"],
    "localisation": ["localisation", SCS, BCOS, "--grid", "2", "-n", "2"],
    "pgd": ["pgd", SCS, "--eps", "0.01", "-n", "2", "--steps", "3"],
    "autoattack": ["pgd", SCS, "--eps", "0.05", "--norm", "l2", "-n", "3", "--no-scorecard"]
    + [word for name in FEW_STEPS for word in ("--attack", f"{name}-l2")],
}


@pytest.fixture
def gpu(monkeypatch):
    with fake_gpu(monkeypatch) as made:
        yield made


def test_it_is_a_device_of_its_own(gpu):
    near, far = torch.ones(2), torch.ones(2, device="mps")
    assert [tensor.device.type for tensor in (near, far.cpu(), near.cpu())] == ["cpu"] * 3
    assert [tensor.device.type for tensor in (far, far + 1, near.to("mps"))] == ["mps"] * 3
    assert near.device.type == "cpu"
    network = nn.Linear(2, 2).to("mps")
    assert all(gpu.has(parameter) for parameter in network.parameters())
    assert network(far).device.type == "mps"
    with pytest.raises(RuntimeError, match="same device"):
        near + far
    with pytest.raises(RuntimeError, match="same device"):
        network(near)
    with pytest.raises(TypeError, match="float64"):
        far.double()
    with pytest.raises(TypeError, match="numpy"):
        np.asarray(far)
    far.copy_(near)
    far[near > 0] = near
    assert float(far.sum() + torch.tensor(1.0)) == 3


@pytest.fixture
def no_pixels(monkeypatch):
    """Figures are composed, but their files stay empty: pixels come from matplotlib, and take most of the time."""
    monkeypatch.setattr(Figure, "savefig", lambda figure, path, **options: Path(path).touch())


def run(name, device, out):
    done = CliRunner().invoke(cli, [*COMMANDS[name], "--device", device, "--out", str(out)], catch_exceptions=False)
    assert done.exit_code == 0, (done.output, done.exception)
    return {path.name: pd.read_csv(path) for path in sorted(out.rglob("*.csv"))}


@pytest.mark.usefixtures("no_pixels")
@pytest.mark.parametrize("name", COMMANDS)
def test_an_analysis_says_there_what_it_says_on_the_cpu(monkeypatch, tmp_path, name):
    expected = run(name, "cpu", tmp_path / "cpu")
    with fake_gpu(monkeypatch):
        tables = run(name, "mps", tmp_path / "mps")
    assert tables.keys() == expected.keys()
    for table, wanted in expected.items():
        numbers = [key for key in wanted.select_dtypes("number") if "seconds" not in key]
        assert list(tables[table]) == list(wanted)
        np.testing.assert_allclose(tables[table][numbers], wanted[numbers], rtol=2e-3, atol=2e-3, err_msg=table)


def transformer():
    torch.manual_seed(0)
    return VisionTransformer(
        image_size=32, patch_size=8, num_layers=2, num_heads=2, hidden_dim=16, mlp_dim=16, num_classes=10
    )


@pytest.mark.parametrize("name", METHODS)
def test_a_map_is_there_what_it_is_on_the_cpu(monkeypatch, name):
    model = transformer().eval() if "attention" in METHODS[name].needs else load_model("rohrer25k_conv")
    images, labels = load_data("sample", n=2).images, torch.tensor([3, 5])
    expected = attribute(model, images, labels, method=name)
    with fake_gpu(monkeypatch):
        maps = attribute(model.to("mps"), images, labels, method=name)
    torch.testing.assert_close(maps, expected, rtol=1e-3, atol=1e-5)
