"""Where a device has no double precision, as Apple's GPUs: no image is in it, and attacks stay in the ball."""

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from scs_eval.analyses.attacks.attack import attack
from scs_eval.analyses.attacks.config import Attack
from scs_eval.analyses.core import precision

IMAGES = torch.rand(6, 3, 8, 8, generator=torch.Generator().manual_seed(0))
LABELS = torch.arange(6) % 3
EPS = 8 / 255


class NoDouble(TorchDispatchMode):
    """A device without float64: what would be made there raises; what numpy made is not there yet."""

    def __torch_dispatch__(self, function, types, arguments=(), options=None):
        made = function(*arguments, **(options or {}))
        if function is torch.ops.aten.lift_fresh.default:
            return made
        for value in made if isinstance(made, tuple | list) else [made]:
            if isinstance(value, Tensor) and value.ndim >= 3 and value.dtype == torch.float64:
                raise TypeError(f"{function} made a float64 tensor")
        return made


@pytest.fixture
def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(144, 3)).eval()


@pytest.mark.parametrize("norm", ["linf", "l2"])
@pytest.mark.parametrize("name", ["pgd", "apgd", "fab", "square"])
def test_attacks_without_double_precision(network, monkeypatch, name, norm):
    radius = EPS if norm == "linf" else 0.5
    settings = Attack(name=name, norm=norm, steps=5)
    with NoDouble(), pytest.raises(TypeError, match="float64"):  # or the test below would see nothing
        attack(network, IMAGES, LABELS, radius, settings=settings)
    monkeypatch.setattr(precision, "widest", lambda device: torch.float32)
    for module in ("apgd", "ball", "pgd", "square"):
        monkeypatch.setattr(f"scs_eval.analyses.attacks.{module}.widest", lambda device: torch.float32)
    with NoDouble():
        found = attack(network, IMAGES, LABELS, radius, settings=settings)
    change = (found.images.double() - IMAGES.double()).flatten(1)
    size = change.abs().amax(1) if norm == "linf" else change.norm(dim=1)
    assert float(size.max()) <= radius + 1e-6  # what single precision may add to a distance


def test_apples_gpus_have_single_precision():
    assert precision.widest(torch.device("mps")) == torch.float32
    assert precision.widest(torch.device("cpu")) == precision.widest(torch.device("cuda")) == torch.float64
