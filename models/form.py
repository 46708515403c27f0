"""What a converted network is to be made of."""

from dataclasses import dataclass

from scs_eval.errors import InputError

LAYERS = ("scs", "ssdp", "cos", "bcos", "conv")
NORMS = ("bn", "ln", "in", "pn", "an")


@dataclass(frozen=True, kw_only=True)
class Form:
    """What a network is to be made of.

    layer: scs, ssdp, cos, bcos or conv. B-cos takes the linear layers too; the others leave the head as it is.
    norm: keep, none, or two letters (batch, layer, instance, position, all: bn, ln, in, pn, an) and u for uncentred;
        without bias. None: bnu for B-cos, keep for the others.
    activation: keep, linear or relu. None: linear (none at all) for sharpened and B-cos layers, keep for conv.
    b: the B of B-cos layers.
    classifier_first: apply the classifier at every place of the feature map and average its answers.
    """

    layer: str
    norm: str | None = None
    activation: str | None = None
    b: float = 2.0
    classifier_first: bool = False

    def __post_init__(self) -> None:
        _one_of("layer", self.layer, LAYERS)
        _one_of("norm", self.chosen_norm, ("keep", "none", *NORMS, *(f"{norm}u" for norm in NORMS)))
        _one_of("activation", self.chosen_activation, ("keep", "linear", "relu"))
        if not self.b >= 1:
            raise InputError(f"expected B of at least 1 (1 is a linear layer), got {self.b}")

    @property
    def chosen_norm(self) -> str:
        """The norm, by default the layer's."""
        return self.norm or ("bnu" if self.layer == "bcos" else "keep")

    @property
    def chosen_activation(self) -> str:
        """The activation, by default the layer's."""
        return self.activation or ("keep" if self.layer == "conv" else "linear")


def _one_of(what: str, value: str, known: tuple[str, ...]) -> None:
    if value not in known:
        raise InputError(f"expected the {what} {', '.join(known)}, got {value!r}")
