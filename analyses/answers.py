"""What a model says of many images, in the batches that attacks use."""

import torch
from torch import Tensor, nn

from scs_eval.analyses.attacks.problem import chunks
from scs_eval.analyses.inputs import logits_of
from scs_eval.analyses.shards import shared_map
from scs_eval.analyses.state import device_of


def logits_in_chunks(model: nn.Module, images: Tensor, *, classes: int) -> Tensor:
    """(n, classes) logits, on the CPU.

    An adversarial image may be wrong by the last bit, and the last bit depends on the size of a batch: asked in the
    attack's own chunks, the model answers as the attack heard it.
    """
    device = device_of(model)
    with torch.no_grad():
        parts = shared_map(lambda part: logits_of(model, part.to(device), classes=classes).cpu(), chunks(images))
    return torch.cat(parts)[: len(images)]
