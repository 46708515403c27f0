"""The network of a job: of the zoo by name, from a file that `train` or `convert` wrote, or a package's untrained."""

from pathlib import Path
from typing import TYPE_CHECKING

from scs_eval.errors import InputError
from scs_eval.models.loading.load import UNTRAINED, is_file, open_source
from scs_eval.models.zoo.names import split_seed
from scs_eval.models.zoo.registry import canonical_name, create_model

if TYPE_CHECKING:
    from torch import nn

PACKAGES = ("torchvision:", "timm:")


def is_external(model: str) -> bool:
    """Whether the model is no name of the zoo."""
    return is_file(model) or model.startswith(PACKAGES)


def model_name(model: str) -> str:
    """The one spelling of a zoo name; any other model as it is."""
    return model if is_external(model) else canonical_name(model)


def model_folder_name(model: str) -> str:
    """What a model's folder and file of weights are called."""
    return Path(model).stem if is_file(model) else model.replace(":", "_")


def build_network(model: str, *, num_classes: int, seed: int) -> "nn.Module":
    """The network before training, with as many outputs as the data have classes.

    One of the zoo or of a package starts from the seed; that of a file goes on from its weights.
    """
    if not is_external(model):
        return create_model(model, num_classes=num_classes, seed=seed)
    import torch

    from scs_eval.models.loading.outputs import count_outputs

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        options = {} if is_file(model) else {"weights": UNTRAINED, "num_classes": num_classes}
        loaded = open_source(model, **options)  # type: ignore[arg-type]
    outputs = loaded.num_classes or count_outputs(loaded.model)
    if outputs is not None and outputs != num_classes:
        raise InputError(f"{model} tells {outputs} classes apart, the data have {num_classes}")
    return loaded.model.train()


def description(model: str) -> dict[str, str]:
    """What the metadata of its trained weights must say, so that the file can be loaded again."""
    if not is_file(model):
        return {"name": split_seed(model)[0]}
    from scs_eval.models.loading.state_dict import metadata_of

    metadata = metadata_of(Path(model))
    return {key: metadata[key] for key in ("name", "converted") if key in metadata}


def image_size(model: str) -> int | None:
    """The side of the images that a network is made for; None takes them as they are."""
    from scs_eval.models.loading.sources import input_size_of

    return input_size_of(description(model).get("name", "") if is_file(model) else model)
