"""A name for a piece of work: a digest of all that its outcome depends on."""

import hashlib

import torch
from torch import Tensor, nn

from scs_eval.images import Images


def fingerprint(model: nn.Module, tensors: tuple[Images, ...], settings: object) -> str:
    """A digest of everything that a result depends on: weights and structure, images, labels, settings.

    Images that are read when used are known by their files' names, lengths and times.
    """
    digest = hashlib.sha256(f"{model!r}\n{settings!r}".encode())
    for name, value in (*model.state_dict().items(), *((str(i), tensor) for i, tensor in enumerate(tensors))):
        digest.update(f"{name} {value.dtype} {tuple(value.shape)}".encode())
        if not isinstance(value, Tensor):
            digest.update(value.digest())
            continue
        for part in value if value.ndim == 4 else (value,):  # image by image: a pool of them is not to be there twice
            digest.update(_bytes(part))
    return digest.hexdigest()


def _bytes(tensor: Tensor) -> memoryview:
    """What a tensor holds, in place if it lies there in one piece."""
    return tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data
