"""The weights that a run begins with (`--init-from`), and the file of its final ones with how they came about.

The first come from a file (safetensors, or a torch checkpoint of tensors) or from a trained network of the zoo.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from safetensors.torch import save
from torch import Tensor, nn

from scs_eval import __version__
from scs_eval.errors import InputError, printable
from scs_eval.files import write_atomically
from scs_eval.images import indices_digest
from scs_eval.models.conversion.transfer import transfer_weights
from scs_eval.models.loading.load import WEIGHTS, weights_index
from scs_eval.models.loading.state_dict import read_state
from scs_eval.training.job import CHOSEN, Job
from scs_eval.training.network import description


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


def write_weights(path: Path, model: nn.Module, metadata: Mapping[str, object]) -> None:
    """Write the state of a model, and metadata as strings, whole or not at all."""
    tensors = {name: value.detach().cpu().contiguous() for name, value in model.state_dict().items()}
    write_atomically(path, save(tensors, metadata={name: printable(str(value)) for name, value in metadata.items()}))


def describe_job(job: Job, *, num_classes: int) -> dict[str, object]:
    """The part of the metadata that is known before training."""
    return {
        **description(job.model),
        "num_classes": num_classes,
        "data": job.data,
        "validation": job.validation,
        "train_images": job.train_images,
        **{name: _digest(getattr(job, name)) for name in CHOSEN},
        "recipe": json.dumps(asdict(job.recipe)),
        "epochs": job.recipe.epochs,
        "seed": job.seed,
        "init_from": str(job.init_from or ""),
        "torch": torch.__version__,
        "scs_eval": __version__,
    }


def _digest(indices: Sequence[int] | None) -> str:
    """Which images a list names, as tables of results say it; empty without a list."""
    return "" if indices is None else indices_digest(indices)
