"""What does each pixel add to the logit? W(x)⊙x for every dynamic-linear network, and how much it leaves out.

f(x) = Σ W(x)⊙x + b(x) + residual: the map, the layers that add constants, and what neither explains. A map is only
worth looking at beside the other two, so they are in every table and figure. Source: B-cos v2, Eq. 16, Figs. 11-14.
"""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn

from scs_eval.analyses import colour
from scs_eval.analyses.contributions_result import ContributionsComparison as ContributionsComparison
from scs_eval.analyses.contributions_result import ContributionsResult as ContributionsResult
from scs_eval.analyses.inputs import check_images, check_labels, count_logits, logits_of
from scs_eval.analyses.shards import shared_map
from scs_eval.analyses.state import device_of, evaluating
from scs_eval.errors import InputError
from scs_eval.models.decomposition import Decomposition, decompose

EXTRAS = ("audit", "delta", "mean-corrected")


def contributions(
    model: nn.Module,
    images: Tensor,
    targets: Tensor | None = None,
    *,
    labels: Tensor | None = None,
    classes: Sequence[str] | None = None,
    indices: Tensor | None = None,
    label: str = "model",
    picture: str = "paper",
    extras: Sequence[str] = (),
    batch_size: int = 50,
) -> ContributionsResult:
    """Take apart the logit of a class for each image (n, 3, H, W) in [0, 1], on the device that the model is on.

    targets: (n,) classes to explain, by default the predicted ones. classes: names, by default 0, 1, 2 and so on.
    indices: (n,) where the images come from, for the captions. picture: paper or bcos-v2. extras: any of EXTRAS.
    """
    check_images(images)
    _check_choices(picture, extras, batch_size)
    with evaluating(model):
        names = tuple(classes or map(str, range(count_logits(model, images[:1]))))
        for given in (each for each in (targets, labels) if each is not None):
            check_labels(given, images=images, classes=names)

        def explain(part: slice) -> tuple[Tensor, Tensor, Decomposition]:
            return _explain(model, images[part], None if targets is None else targets[part], len(names))

        starts = range(0, len(images), batch_size)
        parts = shared_map(explain, [slice(start, start + batch_size) for start in starts])
        kinds = tuple(type(model.get_submodule(layer)).__name__ for layer in parts[0][2].biases)
    chosen, pairs, found = zip(*parts, strict=True)
    layers = tuple(found[0].biases)
    return ContributionsResult(
        label=label,
        settings={"device": str(device_of(model)), "batch_size": batch_size},
        classes=names,
        images=images.cpu().numpy(),
        inputs=_joined([each.inputs for each in found]),
        labels=np.full(len(images), -1) if labels is None else labels.long().cpu().numpy(),
        indices=np.arange(len(images)) if indices is None else indices.cpu().numpy(),
        targets=_joined(chosen),
        pair=_joined(pairs),
        rows=_joined([each.weights for each in found]),
        logits=_joined([each.logits for each in found]).astype(float),
        biases=_joined([_stacked(each) for each in found]).astype(float),
        layers=layers,
        kinds=kinds,
        picture=picture,
        extras=tuple(extras),
    )


def _explain(
    model: nn.Module, images: Tensor, targets: Tensor | None, classes: int
) -> tuple[Tensor, Tensor, Decomposition]:
    """The explained classes (b,), the two most likely (b, 2), and the four decomposed logits of a batch."""
    with torch.no_grad():
        logits = logits_of(model, images, classes=classes)
    pair = logits.topk(2).indices
    chosen = pair[:, 0] if targets is None else targets.long().to(pair.device)
    rows = nn.functional.one_hot(torch.cat([chosen[:, None], pair], 1), classes).to(logits)
    mean = torch.full_like(rows[:, :1], 1 / classes)
    return chosen, pair, decompose(model, images.to(logits.device), torch.cat([rows, mean], 1))


def _check_choices(picture: str, extras: Sequence[str], batch_size: int) -> None:
    if picture not in colour.STYLES:
        raise InputError(f"expected a style of {', '.join(colour.STYLES)}, got {picture!r}")
    if unknown := set(extras) - set(EXTRAS):
        raise InputError(f"expected extras of {', '.join(EXTRAS)}, got {min(unknown)!r}")
    if batch_size < 1:
        raise InputError(f"expected a batch size of at least 1, got {batch_size}")


def _stacked(found: Decomposition) -> Tensor:
    """(b, 4, L), what each biased layer adds; L may be 0."""
    return torch.stack([torch.zeros_like(found.logits), *found.biases.values()], -1)[..., 1:]


def _joined(parts: Sequence[Tensor]) -> np.ndarray:
    return torch.cat(list(parts)).cpu().numpy()
