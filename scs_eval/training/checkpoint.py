"""Saving and loading the state of a run, and its final weights with how they came about."""

import io
import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save
from torch import nn

from scs_eval import __version__
from scs_eval.errors import InputError, printable
from scs_eval.files import write_atomically
from scs_eval.models.loading.torch_file import read_torch
from scs_eval.training.job import Job
from scs_eval.training.network import description

FILE = "checkpoint.pt"
KEYS = {"epoch", "batch", "model", "optimizer", "schedule", "metrics"}


def save_checkpoint(directory: Path, state: dict[str, Any]) -> None:
    """Replace the checkpoint by this state, which holds only tensors and plain values."""
    buffer = io.BytesIO()
    torch.save(state, buffer)
    write_atomically(directory / FILE, buffer.getvalue())


def load_checkpoint(directory: Path) -> dict[str, Any] | None:
    """The state last saved, on the CPU; None if there is none."""
    path = directory / FILE
    if not path.exists():
        return None
    state = read_torch(path)
    if not isinstance(state, dict) or not state.keys() >= KEYS:
        raise InputError(f"{path} is not the checkpoint of a training run; --overwrite begins again")
    return state


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
        "recipe": json.dumps(asdict(job.recipe)),
        "epochs": job.recipe.epochs,
        "seed": job.seed,
        "init_from": str(job.init_from or ""),
        "torch": torch.__version__,
        "scs_eval": __version__,
    }
