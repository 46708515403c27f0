"""Swap the layers of any network: convolutions for SCS, SharpenedSDP, cosine or B-cos layers, and back."""

import copy
import math
import warnings
from typing import NamedTuple

import torch
from torch import Tensor, nn

from scs_eval.errors import InputError
from scs_eval.models.conversion.attention_inputs import attention_inputs, without_bias
from scs_eval.models.conversion.classifier_first import put_classifier_first
from scs_eval.models.conversion.norm_activation import TAKE_APART
from scs_eval.models.conversion.rules import conversion_rules
from scs_eval.models.conversion.same_function import fold_running_means, hold_attention
from scs_eval.models.conversion.swap import swap_layers
from scs_eval.models.conversion.target import ConversionSpec
from scs_eval.models.conversion.transfer import transfer_weights
from scs_eval.models.conversion.unconverted import called_activations, summarise, unconverted_modules
from scs_eval.models.layers import AddInverse, FadingNormalize, LogitLayer, Normalize
from scs_eval.models.loading.outputs import count_outputs


class Conversion(NamedTuple):
    """The new network, its layers that were replaced, and what stayed though it does not belong, both by name."""

    model: nn.Module
    replaced: dict[str, str]
    unconverted: dict[str, str]


class Encoded(nn.Module):
    """A B-cos network: [x, 1-x] in front, the logit layer behind; takes RGB in [0, 1].

    constants: see ConversionSpec.
    """

    def __init__(self, network: nn.Module, num_classes: int, spec: ConversionSpec) -> None:
        super().__init__()
        self.encode: nn.Module = AddInverse()
        self.network, self.logits = network, LogitLayer(num_classes, bias=0.0 if spec.same_function else None)
        if not spec.same_function:
            return
        if not any(isinstance(module, Normalize) for module in network.modules()):
            # [x, -x], which [w, -w]/2 sees as w did x, also where an image is padded with zeros.
            self.encode = nn.Sequential(self.encode, FadingNormalize((0.0,) * 3 + (1.0,) * 3, (1.0,) * 6))
        self.set_constants(spec.constants)

    def set_constants(self, share: float) -> None:
        """Leave so much of what is added to the input, and put what is gone into the logit bias."""
        self.constants = share
        for module in self.modules():
            if isinstance(module, FadingNormalize):
                module.share = share
        if self.logits.num_classes:
            self.logits.bias = -math.log(self.logits.num_classes - 1) * (1 - share)

    def forward(self, x: Tensor) -> Tensor:
        """(N, 3, H, W) to logits (N, classes)."""
        return self.logits(self.network(self.encode(x)))


def convert(
    model: nn.Module,
    *,
    layer: str,
    norm: str | None = None,
    activation: str | None = None,
    b: float = 2.0,
    classifier_first: bool = False,
    same_function: bool = False,
    learn_b: bool = False,
    keep_weights: bool = False,
    seed: int = 0,
) -> nn.Module:
    """A new network made of other layers (see `ConversionSpec`); `model` stays as it is.

    A warning names what was not converted.

    >>> import scs_eval
    >>> twin = scs_eval.convert(scs_eval.load_model("rohrer25k_conv"), layer="scs")
    >>> twin(scs_eval.load_data("sample", n=2).images).shape
    torch.Size([2, 10])
    """
    options = {"norm": norm, "activation": activation, "classifier_first": classifier_first}
    spec = ConversionSpec(layer=layer, b=b, same_function=same_function, learn_b=learn_b, **options)  # type: ignore[arg-type]
    result = conversion(model, spec, keep_weights=keep_weights, seed=seed)
    if result.unconverted:
        warnings.warn(f"not converted: {summarise(result.unconverted)}", stacklevel=2)
    return result.model


def conversion(model: nn.Module, spec: ConversionSpec, *, keep_weights: bool = False, seed: int = 0) -> Conversion:
    """The same, with what was replaced and what could not be.

    keep_weights carries kernels over (a stem's w becomes [w, -w]/2 for [x, 1-x]), to be fine-tuned; biases of replaced
    layers are dropped. Otherwise replaced layers start as such layers do, by `seed`.
    """
    result = copy.deepcopy(model)
    swap_layers(result, [TAKE_APART])
    called = called_activations(result, spec)
    start = {key: value.clone() for key, value in result.state_dict().items()}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        linear = attention_inputs(result) if spec.layer == "bcos" else []
        replaced = swap_layers(result, conversion_rules(spec, sees_rgb=_sees_rgb(result)), keep=linear.__contains__)
        if spec.same_function and spec.layer == "bcos":
            hold_attention(result)
        else:
            replaced |= without_bias(result, linear)
        if not replaced:
            raise InputError(f"nothing to convert to {spec.layer} in {type(model).__name__}")
        moved = put_classifier_first(result) if spec.classifier_first else None
    if keep_weights:
        transfer_weights(_renamed(start, moved), result)
        _carry_statistics(start, result)
        if spec.same_function and spec.layer == "bcos":
            fold_running_means(start, result)
    unconverted = dict(unconverted_modules(result, spec)) | called
    if spec.layer == "bcos" and any("3 → 6" in change for change in replaced.values()):
        classes = count_outputs(result) or 0
        result = Encoded(result, classes, spec).train(model.training)
    return Conversion(result, replaced, unconverted)


def _sees_rgb(model: nn.Module) -> bool:
    return any(isinstance(module, nn.Conv2d) and module.in_channels == 3 for module in model.modules())


def _renamed(state: dict[str, Tensor], moved: tuple[str, str] | None) -> dict[str, Tensor]:
    if moved is None:
        return state
    head, new = moved
    return {new + key.removeprefix(head) if key.startswith(f"{head}.") else key: value for key, value in state.items()}


def _carry_statistics(start: dict[str, Tensor], result: nn.Module) -> None:
    """Running means and variances of norms that became others of their kind."""
    for key, buffer in result.named_buffers():
        if key in start and start[key].shape == buffer.shape:
            buffer.copy_(start[key])
