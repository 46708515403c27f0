"""Which feature directions in a layer contribute most to a class? (B-cos v2, section 5.2, Figs. 10 and 12)

With a(u) the feature vector that the layer gives at a position u, and W_{l→L}(x) the rest of the network as a linear
map (Eq. 14), a logit is Σ_u [W_{l→L}(x)]_u · a(u) plus the biases behind the layer. The paper's directions are the
a(u)/‖a(u)‖ whose terms are largest.

Where the paper is silent: terms are compared across images as they are, in units of the logit; only positive ones
count; an image offers its 16 largest; and since neighbouring positions give nearly the same vector, one that
has a cosine of more than 0.8 with a direction chosen before it is passed over.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from scs_eval.analyses.core.batching import map_images
from scs_eval.errors import InputError
from scs_eval.images import Images
from scs_eval.models.explain.activations import capture_output, features
from scs_eval.models.explain.dynamic_linear import explanation_mode

OFFERED = 16  # positions of an image that compete
SAME = 0.8  # the cosine above which two directions count as one


@dataclass(frozen=True)
class Directions:
    """The k most contributing directions, the largest contribution first; fewer where there are not so many."""

    vectors: Tensor  # (k, C), of unit length
    sources: Tensor  # (k,), which of the images each was taken from
    offsets: Tensor  # (k,), at which position of the layer's map, counted row by row
    targets: Tensor  # (k,), the class whose logit it adds to
    contributions: Tensor  # (k,), how much it adds there
    logits: Tensor  # (k,), of what


def no_directions(channels: int) -> Directions:
    """None of them."""
    numbers, none = torch.zeros(0, dtype=torch.long), torch.zeros(0)
    return Directions(torch.zeros(0, channels), numbers, numbers, numbers, none, none)


def choose_directions(
    model: nn.Module, images: Images, targets: Tensor, *, layer: str, count: int, batch_size: int = 50
) -> Directions:
    """The `count` directions in `layer` that contribute most to the logits of `targets` (n,) for images (n, 3, H, W).

    The model must be in evaluation mode, and targets where it is.
    """
    if count < 1:
        raise InputError(f"expected at least 1 direction, got {count}")

    def offers_of(batch: Tensor, part: slice) -> tuple[Tensor, ...]:
        return _offers(model, batch.to(targets.device), targets[part], layer)

    offers = map_images(offers_of, images, size=batch_size)
    vectors, positions, contributions, logits = (torch.cat(parts) for parts in zip(*offers, strict=True))
    per_image = len(positions) // len(images)
    order = contributions.argsort(dim=0, descending=True, stable=True)
    chosen = torch.tensor(list(_different(vectors, order[contributions[order] > 0].tolist(), count)), dtype=torch.long)
    sources = chosen // per_image
    return Directions(
        vectors[chosen], sources, positions[chosen], targets.cpu()[sources], contributions[chosen], logits[chosen]
    )


def _offers(model: nn.Module, images: Tensor, targets: Tensor, layer: str) -> tuple[Tensor, ...]:
    """The most contributing positions of each image: unit vectors (m, C), places, contributions and logits (m,)."""
    activations, slopes, logits = linearised(model, images, targets, layer=layer)
    terms = (activations * slopes).sum(1)  # (b, P)
    largest = terms.topk(min(OFFERED, terms.shape[1]))
    where = largest.indices[:, None].expand(-1, activations.shape[1], -1)
    vectors = activations.gather(2, where).transpose(1, 2).flatten(0, 1)
    repeated = logits[:, None].expand_as(largest.values).flatten()
    parts = (nn.functional.normalize(vectors, dim=1), largest.indices.flatten(), largest.values.flatten(), repeated)
    return tuple(part.cpu() for part in parts)


def linearised(model: nn.Module, images: Tensor, targets: Tensor, *, layer: str) -> tuple[Tensor, Tensor, Tensor]:
    """a and the row of W_{l→L}(x) of the target, both (N, C, P) at the layer's P positions, and the logit (N,)."""
    with torch.enable_grad(), explanation_mode():
        with capture_output(model, layer) as activation:
            logits = model(images.detach().clone().requires_grad_())
        chosen, slope = logits.gather(1, targets[:, None])[:, 0], None
        if chosen.requires_grad and activation.output.requires_grad:
            (slope,) = torch.autograd.grad(chosen.sum(), activation.output, allow_unused=True)
    if slope is None:
        raise InputError(f"the logits do not depend on the output of {layer}; name another layer")
    return features(activation.output.detach()), features(slope), chosen.detach()


def _different(vectors: Tensor, order: list[int], count: int) -> Iterator[int]:
    """The first of the order, then each that differs from all before it, until there are enough."""
    taken = vectors[:0]
    for position in order:
        if len(taken) == count:
            return
        if not (taken @ vectors[position] > SAME).any():
            taken = torch.cat([taken, vectors[position : position + 1]])
            yield position
