"""What does each pixel add to the logit? W(x)⊙x for every dynamic-linear network, and how much it leaves out.

f(x) = Σ W(x)⊙x + b(x) + residual: the map, the layers that add constants, and what neither explains. A map is only
worth looking at beside the other two, so they are in every table and figure. Source: B-cos v2, Eq. 16, Figs. 11-14.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from scs_eval.analyses.contributions.result import ContributionsComparison as ContributionsComparison
from scs_eval.analyses.contributions.result import ContributionsResult as ContributionsResult
from scs_eval.analyses.core.inputs import ArrayLike, as_images, as_labels, as_model
from scs_eval.analyses.core.model_state import device_of, evaluating
from scs_eval.analyses.core.parallel import shared_map
from scs_eval.analyses.core.validation import check_images, check_labels, count_logits, logits_of
from scs_eval.analyses.plotting import colour
from scs_eval.errors import InputError
from scs_eval.models.explain.decomposition import Decomposition, decompose

EXTRAS = ("audit", "delta", "mean-corrected")


def contributions(
    model: nn.Module,
    images: ArrayLike,
    targets: ArrayLike | None = None,
    *,
    labels: ArrayLike | None = None,
    classes: Sequence[str] | None = None,
    indices: ArrayLike | None = None,
    label: str = "model",
    picture: str = "paper",
    extras: Sequence[str] = (),
    batch_size: int = 50,
) -> ContributionsResult:
    """Take apart the logit of a class for each image (n, 3, H, W) in [0, 1], on the device that the model is on.

    targets: (n,) classes to explain, by default the predicted ones. classes: names, by default 0, 1, 2 and so on.
    indices: (n,) where the images come from, for the captions. picture: paper or bcos-v2. extras: any of EXTRAS.
    """
    model, pictures = as_model(model), as_images(images)
    check_images(pictures)
    _check_choices(picture, extras, batch_size)
    wanted, truth = (None if given is None else as_labels(given) for given in (targets, labels))
    with torch.inference_mode(False), evaluating(model):
        names = tuple(classes or map(str, range(count_logits(model, pictures[:1]))))
        for given in (wanted, truth):
            if given is not None:
                check_labels(given, images=pictures, classes=names)
        parts = _explain_batches(model, pictures, wanted, len(names), batch_size)
        kinds = tuple(type(model.get_submodule(layer)).__name__ for layer in parts[0][2].biases)
    return ContributionsResult(
        label=label,
        settings={"device": str(device_of(model)), "batch_size": batch_size},
        classes=names,
        images=pictures.cpu().numpy(),
        labels=np.full(len(pictures), -1) if truth is None else truth.long().cpu().numpy(),
        indices=np.arange(len(pictures)) if indices is None else as_labels(indices, what="indices").cpu().numpy(),
        kinds=kinds,
        picture=picture,
        extras=tuple(extras),
        **_arrays(parts),
    )


Part = tuple[Tensor, Tensor, Decomposition]  # the explained classes (b,), the two most likely (b, 2), four logits


def _explain_batches(
    model: nn.Module, images: Tensor, targets: Tensor | None, classes: int, batch_size: int
) -> list[Part]:
    def explain(part: slice) -> Part:
        return _explain(model, images[part], None if targets is None else targets[part], classes)

    return shared_map(explain, [slice(start, start + batch_size) for start in range(0, len(images), batch_size)])


def _arrays(parts: Sequence[Part]) -> dict[str, Any]:
    """The batches' decompositions as fields of the result."""
    chosen, pairs, decompositions = zip(*parts, strict=True)
    return {
        "inputs": _joined([batch.inputs for batch in decompositions]),
        "targets": _joined(chosen),
        "pair": _joined(pairs),
        "rows": _joined([batch.weights for batch in decompositions]),
        "logits": _joined([batch.logits for batch in decompositions]).astype(float),
        "biases": _joined([_stacked(batch) for batch in decompositions]).astype(float),
        "layers": tuple(decompositions[0].biases),
    }


def _explain(model: nn.Module, images: Tensor, targets: Tensor | None, classes: int) -> Part:
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


def _stacked(batch: Decomposition) -> Tensor:
    """(b, 4, L), what each biased layer adds; L may be 0."""
    return torch.stack([torch.zeros_like(batch.logits), *batch.biases.values()], -1)[..., 1:]


def _joined(parts: Sequence[Tensor]) -> np.ndarray:
    return torch.cat(list(parts)).cpu().numpy()
