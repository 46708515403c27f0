"""How many classes a network has."""

from torch import nn


def count_outputs(model: nn.Module) -> int | None:
    """The outputs of the last layer with kernels, several of which may serve one unit; None without such a layer."""
    layers = [module for module in model.modules() if isinstance(module, nn.Linear | nn.Conv2d)]
    if not layers:
        return None
    last = layers[-1]
    count = last.out_features if isinstance(last, nn.Linear) else last.out_channels
    return count // int(getattr(last, "max_out", 1))
