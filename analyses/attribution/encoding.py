"""Explanations of what enters a network that encodes [x, 1−x]: six channels, as the published B-cos networks see."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from scs_eval.models.layers import AddInverse


class EncodedInput(nn.Module):
    """The network as a function of its encoding (N, 6, H, W): what is left of the image is only its size."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, encoded: Tensor) -> Tensor:
        """Logits (N, classes)."""

        def replace(_module: nn.Module, _inputs: Any, _output: Tensor) -> Tensor:
            return encoded

        with _hooked(self.model, replace):
            output: Tensor = self.model(encoded[:, :3])
        return output


def encodes(model: nn.Module) -> bool:
    """Whether the network sees [x, 1−x]."""
    return any(isinstance(module, AddInverse) for module in model.modules())


def encode(model: nn.Module, images: Tensor) -> Tensor:
    """What the network's encoding makes of images, (N, 6, H, W)."""
    outputs: list[Tensor] = []

    def keep(_module: nn.Module, _inputs: Any, output: Tensor) -> None:
        outputs.append(output.detach())

    with _hooked(model, keep), torch.no_grad():
        model(images)
    return outputs[0].clone()


@contextmanager
def _hooked(model: nn.Module, hook: Any) -> Iterator[None]:
    handles = [module.register_forward_hook(hook) for module in model.modules() if isinstance(module, AddInverse)]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
