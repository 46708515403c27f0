"""What is left of an adversarial image when it is saved as a picture of 8 bits a channel?"""

import torch
from torch import Tensor, nn

from scs_eval.analyses.core.inference import predict_logits

LEVELS = 255


def rounded(images: Tensor) -> Tensor:
    """Images in [0, 1] as a file would keep them."""
    return (images * LEVELS).round() / LEVELS


def min_eps_rounded(
    model: nn.Module,
    images: Tensor,
    labels: Tensor,
    adversarial: Tensor,
    *,
    min_eps: Tensor,
    eps: Tensor,
    norm: str,
    classes: int,
) -> Tensor:
    """(N,) the smallest of eps (E,) at which an image still fools the model once it is rounded to 8 bits, else inf.

    A perturbation of less than half a level is rounded away, so a small ε leaves nothing. The perturbation that was
    found at the smallest ε is stretched to each larger ε, rounded and shown to the model; an attack that knew of the
    rounding could do better, so the accuracy that follows is an upper bound.
    """
    result = torch.where(min_eps == 0, 0.0, float("inf")).to(min_eps)
    change = adversarial - images
    sizes = size_of(change, norm).clamp(min=1e-12).view(-1, 1, 1, 1)
    for radius in eps.tolist():
        rows = ((min_eps > 0) & (min_eps <= radius * (1 + 1e-9)) & result.isinf()).nonzero()[:, 0]
        if len(rows):
            stretched = (images[rows] + change[rows] / sizes[rows] * radius).clamp(0, 1)
            predictions = predict_logits(model, rounded(stretched), classes=classes).argmax(1)
            result[rows[predictions != labels[rows]]] = radius
    return result


def size_of(change: Tensor, norm: str) -> Tensor:
    """(N,) the length of each perturbation (N, 3, H, W)."""
    flat = change.flatten(1)
    return flat.abs().amax(1) if norm == "linf" else flat.norm(dim=1)
