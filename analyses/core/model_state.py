"""Analyses leave a model as they found it."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn


@contextmanager
def evaluating(model: nn.Module) -> Iterator[nn.Module]:
    """The model in eval mode with frozen parameters, put back on leaving, also after an exception.

    Put back: the mode of every module, `requires_grad` and `grad` of every parameter (None inside), and the state of
    torch's random numbers on the CPU and on the model's GPU. A second such block may be opened inside the first.
    """
    modes = [(module, module.training) for module in model.modules()]
    parameters = [(parameter, parameter.requires_grad, parameter.grad) for parameter in model.parameters()]
    device = device_of(model)
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        try:
            model.eval()
            for parameter, _, _ in parameters:
                parameter.requires_grad_(False)
                parameter.grad = None
            yield model
        finally:
            for module, mode in modes:
                module.training = mode  # not train(mode): some models override it
            for parameter, requires_grad, grad in parameters:
                parameter.requires_grad_(requires_grad)
                parameter.grad = grad


def device_of(model: nn.Module) -> torch.device:
    """Where the model is: the device of its first parameter or buffer, else the CPU."""
    tensors = (tensor for group in (model.parameters(), model.buffers()) for tensor in group)
    return next((tensor.device for tensor in tensors), torch.device("cpu"))
