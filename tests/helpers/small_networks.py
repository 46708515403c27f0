"""Small untrained networks, and the same network by the package `bcos` and by us."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from bcos.models import resnet as published
from bcos.modules import BcosConv2d as PublishedConv
from bcos.modules import norms
from torch import nn

from scs_eval.models.zoo.registry import create_model


class Lambda(nn.Module):
    """A function of images or logits as a layer."""

    def __init__(self, function: Callable[[Any], Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, values: Any) -> Any:
        return self.function(values)


GRIDS = torch.rand(2, 3, 16, 16, generator=torch.Generator().manual_seed(5))
TARGETS = torch.tensor([[0, 3, 2, 4], [1, 0, 4, 3]])


def convolutional() -> nn.Sequential:
    """Takes any size; five classes."""
    torch.manual_seed(1)
    layers = nn.Conv2d(3, 6, 3, padding=1), nn.ReLU(), nn.Conv2d(6, 8, 3, padding=1), nn.ReLU(inplace=True)
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 5)).eval()


def published_resnet20() -> tuple[nn.Module, nn.Module]:
    """Theirs and ours with the same weights; its norm is not homogeneous, so that a wrong W could not pass."""
    torch.manual_seed(3)
    norm = norms.NoBias(norms.PositionNormUncentered2d)
    conv = partial(PublishedConv, b=2, max_out=2)
    theirs = published.cifar10_resnet20(norm_layer=norm, conv_layer=conv, logit_bias=0.0).eval()
    ours = create_model("resnet20_bcos_pnu").eval()
    ours.load_state_dict(theirs.state_dict(), strict=True)
    return theirs, ours
