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
    same_function: with the weights kept, the network computes what it did before: B-cos layers (at b = 1) keep lengths
        and biases of their kernels, norms and activations a dynamic-linear form; SCS layers start with p = 1 and a q so
        large that they are linear but for a gain, and get a gain for each channel.
    learn_b: a same_function B-cos network whose layers learn their B.
    constants: of a same_function B-cos network, how much is left of the input's mean; what is gone of it is there of
        the logit bias log(1/(C-1)). Fine-tuning takes it from 1 to 0.
    classifier_first: apply the classifier at every pixel of the last feature map and average the logits.
    """

    layer: str
    norm: str | None = None
    activation: str | None = None
    b: float = 2.0
    classifier_first: bool = False
    same_function: bool = False
    learn_b: bool = False
    constants: float = 1.0

    def __post_init__(self) -> None:
        _one_of("layer", self.layer, LAYERS)
        _one_of("norm", self.chosen_norm, ("keep", "none", *NORMS, *(f"{norm}u" for norm in NORMS)))
        _one_of("activation", self.chosen_activation, ("keep", "linear", "relu"))
        kept = (self.chosen_norm, self.chosen_activation, self.classifier_first) == ("keep", "keep", False)
        if self.same_function and not (kept and self.layer in ("bcos", "scs")):
            raise InputError(
                "the same function is kept by B-cos or SCS layers that keep norms, activations and the head"
            )
        if self.learn_b and not (self.same_function and self.layer == "bcos"):
            raise InputError("B is learned by B-cos layers that keep the function (--layer bcos --same-function)")
        if not 0 <= self.constants <= 1 or (self.constants < 1 and not self.same_function):
            raise InputError(f"constants: expected 0 to 1 with same_function, else 1, got {self.constants}")
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
