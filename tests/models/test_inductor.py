"""What torch.compile makes of a sharpened layer, for the machines that the compiled passes do not serve."""

import re

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch._inductor.utils import run_and_get_code

from scs_eval.models.layers import MaxAbsPool2d, SCS2d
from scs_eval.models.zoo.registry import create_model

MOST = 3  # kernels besides the convolution
CALL = re.compile(r"^ +(?:\w+ = )?(cpp_fused_\w+|triton_\w+|extern_kernels\.\w+)(?:\.run)?\(", re.MULTILINE)


@pytest.mark.parametrize("name", ["rohrer100k_scs", "rohrer100k_ssdp", "rohrer100k_scs_relu_maxpool"])
def test_training_is_one_graph(name: str) -> None:
    """`fullgraph` raises at the first operation that is not part of it; the backward pass is traced as well.

    In double precision: in single, rounding may choose another maximum of a pool, whose gradient is another.
    """
    model, labels = create_model(name, seed=0).train().double(), torch.arange(4)
    images = torch.rand(4, 3, 32, 32, generator=torch.Generator().manual_seed(0), dtype=torch.float64)

    def gradients(network: nn.Module) -> list[torch.Tensor]:
        loss = F.cross_entropy(network(images), labels)
        return list(torch.autograd.grad(loss, list(model.parameters())))

    compiled = gradients(torch.compile(model, fullgraph=True, backend="aot_eager"))
    for found, wanted in zip(compiled, gradients(model), strict=True):
        torch.testing.assert_close(found, wanted, rtol=1e-8, atol=1e-10)  # sums in another order


@pytest.mark.slow
@pytest.mark.parametrize("pool", [None, nn.MaxPool2d(2), MaxAbsPool2d(2)], ids=str)
def test_a_block_is_a_few_kernels_besides_its_convolution(pool: nn.MaxPool2d | MaxAbsPool2d | None) -> None:
    """As the program that Inductor writes for this machine calls them: unit kernels, norm, pooling, sharpening."""
    block = SCS2d(16, 32, 3, padding=1, pool=pool).eval()
    images = torch.rand(4, 16, 32, 32)
    with torch.no_grad():
        found, programs = run_and_get_code(torch.compile(block, fullgraph=True), images)
        torch.testing.assert_close(found, block(images), rtol=1e-4, atol=1e-6)
    assert len(programs) == 1
    calls = CALL.findall(programs[0].rpartition("def call(")[2])
    assert calls.count("extern_kernels.convolution") == 1
    assert 1 <= len(calls) - 1 <= MOST, calls
