"""From a trained network to a B-cos network: start from the same function, then raise B and take the biases away.

    start = bcosify(model).model         # computes what `model` does, with B = 1
    set_b(start, 1.5)                    # while it is fine-tuned: B up to 2,
    for name, bias in additive_parameters(start): ...   # and these towards 0,
    set_constants(start, 0.5)            # with what is added before the first layer

`scs-eval train --recipe bcosify` does so (training/ramp.py). Source: Arya et al. 2024 (B-cosification).
"""

import json
from collections.abc import Iterator

from torch import nn

from scs_eval.errors import InputError
from scs_eval.models.conversion.convert import Conversion, Encoded, conversion
from scs_eval.models.conversion.target import ConversionSpec
from scs_eval.models.layers import BcosConv2d, BcosLinear, ChannelGain

SPEC = ConversionSpec(layer="bcos", b=1.0, same_function=True)


def bcosify(model: nn.Module) -> Conversion:
    """A B-cos network with B = 1 that computes the same as `model`, to rounding; `model` stays as it is."""
    return conversion(model, SPEC, keep_weights=True)


def set_b(model: nn.Module, b: float) -> None:
    """Give all B-cos layers this B."""
    if not b >= 1:
        raise InputError(f"expected B of at least 1 (1 is a linear layer), got {b}")
    for layer in _bcos_layers(model):
        layer.b = b
        if layer.learned_b is not None:
            layer.learned_b.data.fill_(b)


def current_b(model: nn.Module) -> float:
    """The B of a network's B-cos layers; networks without any, or with several B, raise."""
    values = {layer.b for layer in _bcos_layers(model)}
    if len(values) != 1:
        raise InputError(f"expected B-cos layers of one B, got {sorted(values) or 'none'}")
    return float(values.pop())


def set_constants(model: nn.Module, share: float) -> None:
    """Leave this share of the input's mean, and put the rest of the way to a B-cos network into the logit bias."""
    if not 0 <= share <= 1:
        raise InputError(f"expected a share from 0 to 1, got {share}")
    for module in model.modules():
        if isinstance(module, Encoded):
            module.set_constants(share)


def additive_parameters(model: nn.Module, *, gains_only: bool = False) -> Iterator[tuple[str, nn.Parameter]]:
    """The biases by name, of layers and norms: what a B-cos network has not, and fine-tuning decays.

    gains_only: those behind SCS layers alone.
    """
    for path, module in model.named_modules():
        for name, value in module.named_parameters(prefix=path, recurse=False):
            if name.endswith("bias") and (isinstance(module, ChannelGain) or not gains_only):
                yield name, value


def described_as(description: str, model: nn.Module) -> str:
    """The metadata `converted` of a file (conversion/files.py), for a network that came on from it as it is now."""
    content = json.loads(description)
    if not content.get("spec", {}).get("same_function") or content["spec"]["layer"] != "bcos":
        return description
    constants = [module.constants for module in model.modules() if isinstance(module, Encoded)]
    now = {"constants": constants[0] if constants else 1.0}
    if not content["spec"].get("learn_b"):  # of those that learn it the weights say it
        now["b"] = current_b(model)
    return json.dumps({**content, "spec": {**content["spec"], **now}})


def learning_layers(model: nn.Module) -> list[BcosConv2d | BcosLinear]:
    """The layers that learn their B."""
    return [layer for layer in _bcos_layers(model) if layer.learned_b is not None]


def _bcos_layers(model: nn.Module) -> Iterator[BcosConv2d | BcosLinear]:
    return (module for module in model.modules() if isinstance(module, BcosConv2d | BcosLinear))
