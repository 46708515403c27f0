"""What a model says of many images."""

import torch
from torch import Tensor, nn

from scs_eval.analyses.core.batching import chunk_size, filled, images_at_once, map_images, map_images_with_backoff
from scs_eval.analyses.core.validation import logits_of
from scs_eval.images import Images
from scs_eval.progress import Progress

BATCH = 250


def predict_logits(
    model: nn.Module,
    images: Images,
    *,
    classes: int,
    batch_size: int | None = None,
    progress: Progress | None = None,
) -> Tensor:
    """(n, classes) logits of images (n, 3, H, W), on the CPU. The model's mode is the caller's affair (`evaluating`).

    batch_size: images at once, fewer of large ones, and half as many when memory runs out; by default the chunks of
    attacks, all of one size. An adversarial image may be wrong by the last bit, and the last bit depends on the size of
    a batch: asked in the attack's own chunks, the model answers as the attack saw it. progress: told how many more
    images are done.
    """
    parts: list[Tensor] = []
    with torch.no_grad():
        if batch_size is None:
            size = chunk_size(images)

            def answer(batch: Tensor, _part: slice) -> Tensor:
                return logits_of(model, filled(batch, size), classes=classes)[: len(batch)].cpu()

            parts = map_images(answer, images, size=size, progress=progress)
        else:
            batches = map_images_with_backoff(
                lambda batch: logits_of(model, batch, classes=classes).cpu(),
                images,
                size=images_at_once(images, batch_size),
            )
            for part, logits in batches:
                parts.append(logits)
                if progress is not None:
                    progress(part.stop - part.start)
    return torch.cat(parts)
