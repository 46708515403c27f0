"""What a model says of many images."""

import torch
from torch import Tensor, nn

from scs_eval.analyses.core.batching import chunks, map_with_backoff
from scs_eval.analyses.core.parallel import shared_map
from scs_eval.analyses.core.validation import logits_of
from scs_eval.progress import Progress

BATCH = 250


def predict_logits(
    model: nn.Module,
    images: Tensor,
    *,
    classes: int,
    batch_size: int | None = None,
    progress: Progress | None = None,
) -> Tensor:
    """(n, classes) logits of images (n, 3, H, W), on the CPU. The model's mode is the caller's affair (`evaluating`).

    batch_size: images at once, half of it when memory runs out; by default the chunks of attacks, all of one size. An
    adversarial image may be wrong by the last bit, and the last bit depends on the size of a batch: asked in the
    attack's own chunks, the model answers as the attack saw it. progress: told how many more images are done.
    """
    parts: list[Tensor] = []
    with torch.no_grad():
        if batch_size is None:
            parts = shared_map(lambda part: logits_of(model, part, classes=classes).cpu(), chunks(images))
        else:
            batches = map_with_backoff(
                len(images), batch_size, lambda part: logits_of(model, images[part], classes=classes).cpu()
            )
            for part, logits in batches:
                parts.append(logits)
                if progress is not None:
                    progress(part.stop - part.start)
    return torch.cat(parts)[: len(images)]
