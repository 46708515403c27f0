"""On the device "meta", where nothing is computed: shapes and costs of a network without its memory."""

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from scs_eval.models.zoo.registry import create_model, input_size, list_models, resolve

KINDS = {(resolve(name)[0].builder, resolve(name)[1].layer): name for name in reversed(list_models())}
SMALL = [name for name in KINDS.values() if input_size(name) == 32]
LARGE = [pytest.param(name, marks=pytest.mark.slow) for name in KINDS.values() if name not in SMALL]


def passes(name: str, device: str) -> tuple[torch.Size, torch.Size, int]:
    """The shapes of logits and of their gradient, and what both passes of two images cost."""
    with torch.device(device):
        model = create_model(name, num_classes=7).eval()
        images = torch.full((2, 3, input_size(name), input_size(name)), 0.5, requires_grad=True)
    with FlopCounterMode(display=False) as counter:
        logits = model(images)
        logits[:, 0].sum().backward()
    assert logits.device.type == images.grad.device.type == device
    return logits.shape, images.grad.shape, counter.get_total_flops()


@pytest.mark.parametrize("name", [*SMALL, *LARGE])
def test_shapes_and_costs_are_known_without_memory(name):
    logits, gradient, cost = passes(name, "meta")
    assert logits == (2, 7)
    assert gradient == (2, 3, input_size(name), input_size(name))
    assert cost > 0
    if name in SMALL and name.endswith("_conv"):  # other layers have passes of their own on a CPU
        assert cost == passes(name, "cpu")[2]
