"""What does each pixel add to the logit? W(x)⊙x for every dynamic-linear network, and how much it leaves out.

f(x) = Σ W(x)⊙x + b(x) + residual: the map, the layers that add constants, and what neither explains. A map is only
worth looking at beside the other two, so they are in every table and figure. Source: B-cos v2, Eq. 16, Figs. 11-14.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from scs_eval.analyses.contributions.result import ContributionsComparison as ContributionsComparison
from scs_eval.analyses.contributions.result import ContributionsResult as ContributionsResult
from scs_eval.analyses.contributions.result import map_sizes, map_sums
from scs_eval.analyses.core.batching import images_at_once, map_images
from scs_eval.analyses.core.inputs import ArrayLike, ImagesLike, ModelLike, as_examples, as_labels, as_model
from scs_eval.analyses.core.model_state import device_of, evaluating
from scs_eval.analyses.core.rows import Rows
from scs_eval.analyses.core.validation import check_images, check_labels, check_request, logits_of
from scs_eval.analyses.plotting import colour
from scs_eval.analyses.plotting.image_grid import SHOWN
from scs_eval.errors import InputError, check_one_of, check_whole, several
from scs_eval.models.explain.decomposition import Decomposition, decompose
from scs_eval.progress import Progress

EXTRAS = ("audit", "delta", "mean-corrected")
BATCH = 50
KEPT = 100  # images whose maps a result keeps: of 224 pixels they take 0.4 GB


def contributions(
    model: ModelLike,
    images: ImagesLike,
    targets: ArrayLike | None = None,
    *,
    labels: ArrayLike | None = None,
    classes: Sequence[str] | None = None,
    indices: ArrayLike | None = None,
    label: str = "model",
    picture: str = "paper",
    extras: Sequence[str] = (),
    kept: int = KEPT,
    shown: int = SHOWN,
    batch_size: int | None = None,
    progress: Progress | None = None,
) -> ContributionsResult:
    """Take apart the logit of a class for each image (n, 3, H, W) in [0, 1], on the device that the model is on.

    images: arrays, or data that bring labels, classes and indices. targets: (n,) classes to explain, by default the
    predicted ones. classes: names, by default 0, 1, 2 and so on. indices: (n,) where the images come from, for the
    captions. picture: paper or bcos-v2. extras: any of EXTRAS. kept: of so many images, the first, the result keeps the
    maps; of the others the numbers. shown: so many of them are in the figure. batch_size: images at once, by default
    50, fewer of large ones. progress: called with how many more images are done.

    >>> import scs_eval
    >>> model, data = scs_eval.load_model("rohrer25k_scs"), scs_eval.load_data("sample", n=3)
    >>> scs_eval.contributions(model, data).table()["complete"].tolist()
    [True, True, True]
    """
    check_request(label=label, batch_size=batch_size)
    model, data = as_model(model), as_examples(images, labels, classes=classes, indices=indices)
    check_images(data.images)
    _check_choices(picture, extras, kept, shown)
    wanted = None if targets is None else as_labels(targets, what="targets")
    size = images_at_once(data.images, BATCH) if batch_size is None else batch_size
    with torch.inference_mode(False), evaluating(model):
        names = data.class_names(model)
        for what, given in (("targets", wanted), ("labels", None if labels is None else data.labels)):
            if given is not None:
                check_labels(given, images=data.images, classes=names, what=what)

        numbers = Rows(len(data.images))

        def explain(batch: Tensor, part: slice) -> Maps:
            targets = None if wanted is None else wanted[part]
            maps, values = _explain(model, batch, targets, len(names), keep=max(0, kept - part.start))
            numbers.put(part, values)
            return maps

        parts = map_images(explain, data.images, size=size, progress=progress)
        kinds = tuple(type(model.get_submodule(layer)).__name__ for layer in parts[0].layers)
    return ContributionsResult(
        label=label,
        settings={**data.settings, "device": str(device_of(model)), "batch_size": size},
        classes=names,
        images=data.images[:kept].cpu().numpy(),
        labels=data.labels.long().cpu().numpy(),
        indices=data.indices.numpy(),
        kinds=kinds,
        picture=picture,
        extras=tuple(extras),
        shown=shown,
        layers=parts[0].layers,
        inputs=_joined([part.inputs for part in parts]),
        rows=_joined([part.rows for part in parts]),
        **{name: values.numpy() for name, values in numbers.joined().items()},
    )


class Maps(NamedTuple):
    """Of a batch: the names of the biased layers, and fields of `ContributionsResult` of the images that are kept."""

    layers: tuple[str, ...]
    inputs: Tensor
    rows: Tensor


def _explain(
    model: nn.Module, images: Tensor, targets: Tensor | None, classes: int, *, keep: int
) -> tuple[Maps, dict[str, Tensor]]:
    """The four decomposed logits of a batch: the explained class's, those of the two most likely, the mean of all.

    On the CPU: maps of the first `keep` images, numbers of all, by the names of their fields.
    """
    with torch.no_grad():
        logits = logits_of(model, images, classes=classes)
    pair = logits.topk(2).indices
    chosen = pair[:, 0] if targets is None else targets.long().to(pair.device)
    rows = nn.functional.one_hot(torch.cat([chosen[:, None], pair], 1), classes).to(logits)
    mean = torch.full_like(rows[:, :1], 1 / classes)
    parts = decompose(model, images.to(logits.device), torch.cat([rows, mean], 1))
    weights, inputs = parts.weights.cpu(), parts.inputs.cpu()
    numbers = {
        "targets": chosen,
        "pair": pair,
        "logits": parts.logits.cpu().double(),
        "biases": _stacked(parts).cpu().double(),
        "sums": torch.from_numpy(map_sums(weights.numpy(), inputs.numpy())),
        "sizes": torch.from_numpy(map_sizes(weights[:, 0].numpy(), inputs.numpy())),
    }
    # Copies, or the whole batch would stay in memory.
    return Maps(tuple(parts.biases), inputs[:keep].clone(), weights[:keep].clone()), numbers


def _check_choices(picture: str, extras: Sequence[str], kept: int, shown: int) -> None:
    check_one_of(colour.STYLES, picture=picture)
    check_whole(1, kept=kept, shown=shown)
    if unknown := [name for name in several(extras=extras) if name not in EXTRAS]:
        raise InputError(f"expected extras of {', '.join(EXTRAS)}, got {unknown[0]!r}")


def _stacked(batch: Decomposition) -> Tensor:
    """(b, 4, L), what each biased layer adds; L may be 0."""
    return torch.stack([torch.zeros_like(batch.logits), *batch.biases.values()], -1)[..., 1:]


def _joined(parts: Sequence[Tensor]) -> np.ndarray:
    return torch.cat(list(parts)).numpy()
