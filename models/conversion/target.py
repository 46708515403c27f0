"""What a converted network is to be made of."""

import math
from dataclasses import dataclass

from scs_eval.errors import InputError

LAYERS = ("scs", "ssdp", "cos", "bcos", "conv")
NORMS = ("bn", "ln", "in", "pn", "an")


@dataclass(frozen=True, kw_only=True)
class ConversionSpec:
    """What a network is to be made of.

    layer: scs, ssdp, cos, bcos or conv. B-cos takes the linear layers too; the others leave the head as it is.
    norm: keep, none, or two letters (batch, layer, instance, position, all: bn, ln, in, pn, an) and u for uncentred;
        without bias. None: bnu for B-cos, keep for the others.
    activation: keep, linear or relu. None: linear (none at all) for sharpened and B-cos layers, keep for conv.
    b: the B of B-cos layers.
    same_function: B-cos layers that keep lengths and biases of their kernels, with norms and activations kept in a
        dynamic-linear form: at b = 1, and with the weights kept, the network computes what it did before.
    classifier_first: apply the classifier at every pixel of the last feature map and average the logits.
    """

    layer: str
    norm: str | None = None
    activation: str | None = None
    b: float = 2.0
    classifier_first: bool = False
    same_function: bool = False

    def __post_init__(self) -> None:
        _one_of("layer", self.layer, LAYERS)
        _one_of("norm", self.chosen_norm, ("keep", "none", *NORMS, *(f"{norm}u" for norm in NORMS)))
        _one_of("activation", self.chosen_activation, ("keep", "linear", "relu"))
        wanted = ("bcos", "keep", "keep", False)
        chosen = (self.layer, self.chosen_norm, self.chosen_activation, self.classifier_first)
        if self.same_function and chosen != wanted:
            raise InputError("the same function is kept by B-cos layers that keep norms, activations and the head")
        if not (math.isfinite(self.b) and self.b >= 1):
            raise InputError(f"expected B of at least 1 (1 is a linear layer), got {self.b}")

    @property
    def chosen_norm(self) -> str:
        """The norm, by default the layer's."""
        return self.norm or ("bnu" if self.layer == "bcos" and not self.same_function else "keep")

    @property
    def chosen_activation(self) -> str:
        """The activation, by default the layer's."""
        return self.activation or ("keep" if self.layer == "conv" or self.same_function else "linear")


def _one_of(what: str, value: str, known: tuple[str, ...]) -> None:
    if value not in known:
        raise InputError(f"expected the {what} {', '.join(known)}, got {value!r}")
