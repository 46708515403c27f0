"""What is recorded of each layer: the norms of its weight and gradient, and p and q where it has them."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn


@dataclass(frozen=True)
class Layer:
    """A module with a weight of at least two dimensions: convolution, linear, SCS, B-cos."""

    name: str
    weight: nn.Parameter
    p: nn.Parameter | None
    log_q: nn.Parameter | None


def find_layers(model: nn.Module) -> list[Layer]:
    """The layers in order of definition; a B-cos layer goes by its own name, not by that of the linear part in it."""
    layers = []
    for name, module in model.named_modules():
        learned = dict(module.named_parameters(recurse=False))  # a fixed p is a buffer and not worth a record
        if "weight" in learned and learned["weight"].ndim >= 2:
            name = name.removesuffix(".linear")
            layers.append(Layer(name, learned["weight"], learned.get("p"), learned.get("log_q")))
    return layers


def norms(tensors: list[Tensor]) -> Tensor:
    """The L2 norm of each tensor as one vector on the device."""
    return torch.stack(torch._foreach_norm(tensors)).float()


def describe(layers: list[Layer]) -> list[tuple[str, str, str, float]]:
    """Rows (layer, quantity, index, value) of the weights, p and q as they are now."""
    lengths = norms([layer.weight.detach() for layer in layers]).tolist()
    rows = [(layer.name, "weight_norm", "", length) for layer, length in zip(layers, lengths, strict=True)]
    for layer in layers:
        if layer.log_q is not None:
            rows.append((layer.name, "q", "", layer.log_q.detach().exp().item()))
        if layer.p is not None:
            rows += [(layer.name, "p", str(k), value) for k, value in enumerate(layer.p.detach().flatten().tolist())]
    return rows
