"""`--init-from`: begin with the weights of a trained convolution network instead of random ones.

They come from a file (safetensors, or a torch checkpoint of tensors) or from a trained network of the zoo.
"""

from dataclasses import dataclass
from pathlib import Path

from torch import Tensor, nn

from scs_eval.errors import InputError
from scs_eval.models.conversion.transfer import transfer_weights
from scs_eval.models.loading.load import WEIGHTS, weights_index
from scs_eval.models.loading.state_dict import read_state


@dataclass(frozen=True)
class Initialisation:
    """The names of a model's tensors that were taken from a checkpoint, and of those that kept their initial values."""

    checkpoint: Path
    carried: list[str]
    kept: list[str]

    def __str__(self) -> str:
        kept = f"; not carried: {', '.join(self.kept)}" if self.kept else ""
        return f"carried {len(self.carried)} tensors from {self.checkpoint}: {', '.join(self.carried)}{kept}"


def initialise_from(model: nn.Module, checkpoint: Path) -> Initialisation:
    """Transplant the kernels of a twin into the model, and copy what else has the same name and shape."""
    weights = _read(checkpoint)
    kernels = transfer_weights(weights, model)
    _refuse_stranger(model, kernels, checkpoint)
    own = model.state_dict()
    others = [name for name, value in own.items() if name not in kernels and _fits(weights.get(name), value)]
    for name in others:
        own[name].copy_(weights[name])
    carried = [*kernels, *others]
    return Initialisation(checkpoint, carried, [name for name in own if name not in carried])


def _refuse_stranger(model: nn.Module, carried: list[str], checkpoint: Path) -> None:
    """Raise unless all kernels but the first and the last came over: half a network is nobody's intention.

    The first may see other channels than its twin's (the patches of a ViT), the last may know other classes, and a
    shortcut may have no kernel in the twin (the CIFAR ResNets', which pad with zeros).
    """
    kernels = [name for name, value in model.named_parameters() if value.ndim > 1 and name.endswith("weight")]
    needed = [name for name in kernels[1:-1] or kernels if ".downsample." not in name]
    missing = [name for name in needed if name not in carried]
    if missing:
        raise InputError(
            f"{checkpoint} has no weight that fits {len(missing)} of the {len(kernels)} kernels of this model by name "
            f"and shape, such as {missing[0]}; is it of its twin?"
        )


def _fits(value: Tensor | None, own: Tensor) -> bool:
    return value is not None and value.shape == own.shape and value.dtype == own.dtype


def _file_of(checkpoint: Path) -> Path:
    """The file itself, or that of a trained network of the zoo."""
    entry = None if checkpoint.is_file() else weights_index().get(str(checkpoint))
    return WEIGHTS / entry["file"] if entry else checkpoint


def _read(checkpoint: Path) -> dict[str, Tensor]:
    """The tensors, also under the names they have where a layer wraps its kernel as `linear` (the B-cos package)."""
    weights = read_state(_file_of(checkpoint)).state
    plain = {name.replace(".linear.weight", ".weight"): value for name, value in weights.items()}
    wrapped = {name.replace(".weight", ".linear.weight"): value for name, value in plain.items()}
    return {**wrapped, **plain}
