"""What is left of an adversarial image when it is saved as a picture of 8 bits a channel?"""

import torch
from torch import Tensor, nn

from scs_eval.analyses.answers import logits_in_chunks

LEVELS = 255


def rounded(images: Tensor) -> Tensor:
    """Images in [0, 1] as a file would keep them."""
    return (images * LEVELS).round() / LEVELS


def critical_rounded(
    model: nn.Module,
    images: Tensor,
    labels: Tensor,
    adversarial: Tensor,
    *,
    critical: Tensor,
    eps: Tensor,
    norm: str,
    classes: int,
) -> Tensor:
    """(N,) the smallest of eps (E,) at which an image still fools the model once it is rounded to 8 bits, else inf.

    A perturbation of less than half a level is rounded away, so a small ε leaves nothing. The perturbation that was
    found at the critical ε is stretched to each larger ε, rounded and shown to the model; an attack that knew of the
    rounding could do better, so the accuracy that follows is an upper bound.
    """
    found = torch.where(critical == 0, 0.0, float("inf")).to(critical)
    change = adversarial - images
    sizes = size_of(change, norm).clamp(min=1e-12).view(-1, 1, 1, 1)
    for radius in eps.tolist():
        places = ((critical > 0) & (critical <= radius * (1 + 1e-9)) & found.isinf()).nonzero()[:, 0]
        if len(places):
            stretched = (images[places] + change[places] / sizes[places] * radius).clamp(0, 1)
            answer = logits_in_chunks(model, rounded(stretched), classes=classes).argmax(1)
            found[places[answer != labels[places]]] = radius
    return found


def size_of(change: Tensor, norm: str) -> Tensor:
    """(N,) the length of each perturbation (N, 3, H, W)."""
    flat = change.flatten(1)
    return flat.abs().amax(1) if norm == "linf" else flat.norm(dim=1)
