"""`--init-from`: begin with the weights of a trained convolution network instead of random ones."""

from dataclasses import dataclass
from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from scs_eval.errors import InputError
from scs_eval.models.transplant import transplant


@dataclass(frozen=True)
class Inheritance:
    """The names of a model's tensors that were taken from a checkpoint, and of those that kept their initial values."""

    checkpoint: Path
    carried: list[str]
    kept: list[str]

    def __str__(self) -> str:
        kept = f"; not carried: {', '.join(self.kept)}" if self.kept else ""
        return f"carried {len(self.carried)} tensors from {self.checkpoint}: {', '.join(self.carried)}{kept}"


def inherit_weights(model: nn.Module, checkpoint: Path) -> Inheritance:
    """Transplant the kernels of a twin into the model, and copy what else has the same name and shape."""
    weights = _read(checkpoint)
    kernels = transplant(weights, model)
    _refuse_stranger(model, kernels, checkpoint)
    own = model.state_dict()
    others = [name for name, value in own.items() if name not in kernels and _fits(weights.get(name), value)]
    for name in others:
        own[name].copy_(weights[name])
    carried = [*kernels, *others]
    return Inheritance(checkpoint, carried, [name for name in own if name not in carried])


def _refuse_stranger(model: nn.Module, carried: list[str], checkpoint: Path) -> None:
    """Raise unless all kernels but the first and the last came over: half a network is nobody's intention.

    The first may see other channels than its twin's (the patches of a ViT), the last may know other classes.
    """
    kernels = [name for name, value in model.named_parameters() if value.ndim > 1 and name.endswith("weight")]
    missing = [name for name in kernels[1:-1] or kernels if name not in carried]
    if missing:
        raise InputError(
            f"{checkpoint} has no weight that fits {len(missing)} of the {len(kernels)} kernels of this model by name "
            f"and shape, such as {missing[0]}; is it of its twin?"
        )


def _fits(value: Tensor | None, own: Tensor) -> bool:
    return value is not None and value.shape == own.shape and value.dtype == own.dtype


def _read(checkpoint: Path) -> dict[str, Tensor]:
    """The tensors, also under the names they have where a layer wraps its kernel as `linear` (the B-cos package)."""
    try:
        weights = load_file(checkpoint)
    except (OSError, SafetensorError) as error:
        raise InputError(f"expected safetensors weights in {checkpoint}: {error}") from error
    plain = {name.replace(".linear.weight", ".weight"): value for name, value in weights.items()}
    wrapped = {name.replace(".weight", ".linear.weight"): value for name, value in plain.items()}
    return {**wrapped, **plain}
