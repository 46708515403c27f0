"""The stages of a network: the layers in its depth whose outputs detectors look at."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import torch
from torch import Tensor, nn

from scs_eval.analyses.core.model_state import device_of
from scs_eval.errors import InputError
from scs_eval.models.explain.activations import Activation, capture_output, features

MOST = 6


def stages_of(model: nn.Module, image: Tensor) -> tuple[str, ...]:
    """Names of up to six layers with kernels, evenly spread over the depth; the last is the one before the logits.

    A layer with kernels has a weight of at least two axes, as convolutions, SCS and linear layers have; the order is
    that of the forward pass. The very last of them makes the logits and is no stage, unless it is the only one.
    """
    order: list[str] = []
    with ExitStack() as hooks:
        for name, module in model.named_modules():
            if name and any(p.ndim >= 2 for p in module.parameters(recurse=False)):
                handle = module.register_forward_hook(lambda _m, _i, _o, name=name: order.append(name))
                hooks.callback(handle.remove)
        with torch.no_grad():
            model(image.to(device_of(model)))
    names = [*dict.fromkeys(order)]
    names = names[:-1] or names
    if not names:
        raise InputError("expected a network with layers that have kernels, found none; name its layers")
    places = torch.linspace(0, len(names) - 1, min(MOST, len(names))).round().long().tolist()
    return tuple(names[index] for index in dict.fromkeys(places))


@contextmanager
def captured(model: nn.Module, stages: tuple[str, ...]) -> Iterator[list[Activation]]:
    """What these layers give out in the forward passes inside."""
    with ExitStack() as stack:
        yield [stack.enter_context(capture_output(model, name)) for name in stages]


def channel_means(activation: Activation) -> Tensor:
    """(n, C) a layer's last output, each channel's mean over positions."""
    return features(activation.output).mean(2)
