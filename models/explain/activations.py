"""A layer inside a network, by its name, and its output in a forward pass."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn

from scs_eval.errors import InputError, did_you_mean

LISTED = 80  # names in a message; a deep network has hundreds


def find_layer(model: nn.Module, name: str) -> nn.Module:
    """The module of that name, as in `named_modules`; an unknown name raises, suggests the nearest and lists them."""
    layers = {key: module for key, module in model.named_modules() if key}
    if name in layers:
        return layers[name]
    more = f" … and {len(layers) - LISTED} more" if len(layers) > LISTED else ""
    hint = did_you_mean(name, layers, otherwise="there are these", most=1)
    raise InputError(f"unknown layer {name!r}; {hint} layers: {', '.join([*layers][:LISTED])}{more}")


class Activation:
    """The outputs of one layer, as part of the graph of the forward pass."""

    def __init__(self, layer: str) -> None:
        self.layer = layer
        self.outputs: list[Any] = []

    @property
    def output(self) -> Tensor:
        """Its output (N, …); of a layer that ran several times in the pass, such as a block's only ReLU, the last."""
        if not self.outputs:
            raise InputError(f"the layer {self.layer} is not reached in the forward pass; name another")
        if not isinstance(output := self.outputs[-1], Tensor):
            raise InputError(f"expected a layer that gives one tensor, {self.layer} gives a {type(output).__name__}")
        return output


@contextmanager
def capture_output(model: nn.Module, layer: str) -> Iterator[Activation]:
    """Keep what the layer gives out; hooks that it has already come first, so what they add is captured too."""
    activation = Activation(layer)

    def keep(_module: nn.Module, _inputs: Any, output: Any) -> Any:
        activation.outputs.append(output)
        return output.clone() if isinstance(output, Tensor) else output  # what follows may work in place

    handle = find_layer(model, layer).register_forward_hook(keep)
    try:
        yield activation
    finally:
        handle.remove()


def features(output: Tensor) -> Tensor:
    """The output as feature vectors (N, C, P) at P positions: of a map (N, C, h, w), tokens (N, P, C) or (N, C)."""
    if output.ndim not in (2, 3, 4):
        raise InputError(f"expected a layer that gives (N, C), (N, tokens, C) or (N, C, h, w), got {output.ndim} axes")
    return output.transpose(1, 2) if output.ndim == 3 else output.reshape(*output.shape[:2], -1)


def at_positions(vectors: Tensor, positions: Tensor, like: Tensor) -> Tensor:
    """The inverse of `features` for one vector (N, C) at one position (N,) each; the shape of `like`, zero elsewhere.

    Its inner product with a layer's output is vector · feature at that position.
    """
    flat = features(like.new_zeros(like.shape)).clone()
    flat[range(len(flat)), :, positions] = vectors.to(flat)
    return flat.transpose(1, 2) if like.ndim == 3 else flat.view(like.shape)
