"""The policy on TF32, by the switches that torch reads; whether a GPU obeys them cannot be seen here."""

import pytest
import torch
from torch import nn

from scs_eval.cli.main import cli
from scs_eval.models.explain.decomposition import decompose
from scs_eval.models.explain.precision import allow_tf32


def switches():
    return torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32


@pytest.fixture(autouse=True)
def _as_before():
    before = switches()
    yield
    allow_tf32(False)
    torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = before


class Looking(nn.Module):
    """Notes the switches in its forward pass."""

    def forward(self, images):
        self.seen = switches()
        return images.flatten(1)


def test_a_decomposition_is_exact_and_puts_back_what_the_host_had_set():
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    model = Looking().eval()
    decompose(model, torch.rand(1, 3, 2, 2), torch.tensor([0]))
    assert model.seen == (False, False)
    assert switches() == (True, True)
    allow_tf32(True)
    decompose(model, torch.rand(1, 3, 2, 2), torch.tensor([0]))
    assert model.seen == (True, True)


@pytest.mark.parametrize(("words", "wanted"), [([], (False, False)), (["--tf32"], (True, True))])
def test_commands_are_exact_unless_asked_otherwise(tmp_path, words, wanted):
    torch.backends.cudnn.allow_tf32 = not wanted[1]
    cli.main(["accuracy", "rohrer25k_conv", "-n", "10", "--out", str(tmp_path / "out"), *words], standalone_mode=False)
    assert switches() == wanted
