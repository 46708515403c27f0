"""Exported networks, run by onnxruntime and by torch's own loader, against the network itself."""

import onnxruntime
import pytest
import torch
from torch import nn

from scs_eval import InputError, load_model
from scs_eval.cli.main import cli
from scs_eval.models.export import export_model, largest_difference
from scs_eval.models.zoo.registry import create_model

IMAGES = torch.rand(5, 3, 32, 32, generator=torch.Generator().manual_seed(3))


@pytest.mark.parametrize("name", ["rohrer25k_scs", "resnet20_bcos", "rohrer100k_ssdp_relu_maxpool"])
def test_onnx_gives_the_logits_for_any_number_of_images(tmp_path, name):
    model, path = load_model(name), tmp_path / "model.onnx"
    export_model(model, path, format="onnx", size=32)
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    with torch.no_grad():
        for images in (IMAGES[:1], IMAGES):
            wanted = model(images)
            (found,) = session.run(["logits"], {"images": images.numpy()})
            # Single precision, other kernels: sums of some thousand terms in another order.
            torch.testing.assert_close(
                torch.from_numpy(found), wanted, rtol=1e-3, atol=1e-4 * float(wanted.abs().max())
            )
            assert found.argmax(1).tolist() == wanted.argmax(1).tolist()


def test_torchs_own_format_gives_the_logits(tmp_path):
    model, path = create_model("rohrer25k_scs", seed=1).eval(), tmp_path / "model.pt2"
    export_model(model, path, format="torch-export", size=32)
    # The same kernels in the same order, but for what tracing folds together.
    assert largest_difference(model, path, format="torch-export", images=IMAGES) < 1e-4


def test_the_command_says_how_far_the_file_is_from_the_network(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    cli.main(["export", "rohrer25k_conv"], standalone_mode=False)
    assert (tmp_path / "rohrer25k_conv.onnx").is_file()
    assert "rohrer25k_conv.onnx: logits differ by" in capsys.readouterr().out


class Untraceable(nn.Module):
    """What it computes depends on the values."""

    def forward(self, images):
        return images.mean((2, 3)) if float(images.sum()) > 1 else images.amax((2, 3))


def test_what_cannot_be_exported_is_one_line(tmp_path):
    with pytest.raises(InputError, match=r"torch.export cannot trace this network: .*") as caught:
        export_model(Untraceable(), tmp_path / "x.onnx", format="onnx", size=32)
    assert "\n" not in str(caught.value)
    with pytest.raises(InputError, match="expected a format of onnx, torch-export"):
        export_model(Untraceable(), tmp_path / "x", format="tflite", size=32)
