"""The final weights: one safetensors file that says how they came about."""

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

import torch
from safetensors.torch import save
from torch import nn

from scs_eval import __version__
from scs_eval.training.job import Job
from scs_eval.training.records import write_atomically


def write_weights(path: Path, model: nn.Module, metadata: Mapping[str, object]) -> None:
    """Write the state of a model, and metadata as strings, whole or not at all."""
    tensors = {name: value.detach().cpu().contiguous() for name, value in model.state_dict().items()}
    write_atomically(path, save(tensors, metadata={name: str(value) for name, value in metadata.items()}))


def describe_job(job: Job, *, num_classes: int) -> dict[str, object]:
    """The part of the metadata that is known before training."""
    return {
        "name": job.model,
        "num_classes": num_classes,
        "data": job.data,
        "recipe": json.dumps(asdict(job.recipe)),
        "epochs": job.recipe.epochs,
        "seed": job.seed,
        "init_from": str(job.init_from or ""),
        "torch": torch.__version__,
        "scs_eval": __version__,
    }
