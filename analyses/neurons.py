"""What does a neuron inside the network answer to? The images that activate it most, and what their pixels add.

A neuron is a channel of a layer; a direction v is the neuron v·a that a unit of one more linear layer would be. Its
activation at a position is explained as a logit is: W_{1→l}(x) from the gradient, the biases up to the layer, and what
neither explains. Source: B-cos v2, Eq. 16, Figs. 10 and 12; which directions, see `directions`.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from scs_eval.analyses import colour
from scs_eval.analyses.directions import Directions, choose_directions, no_directions
from scs_eval.analyses.inputs import check_images, check_labels, count_logits, logits_of
from scs_eval.analyses.neurons_result import NeuronsComparison as NeuronsComparison
from scs_eval.analyses.neurons_result import NeuronsResult as NeuronsResult
from scs_eval.analyses.peaks import Peaks, find_peaks, output_channels
from scs_eval.analyses.shards import shared_map
from scs_eval.analyses.state import device_of, evaluating
from scs_eval.errors import InputError
from scs_eval.models.decomposition import Decomposition, decompose
from scs_eval.models.layer_output import at_positions, find_layer

TOP = 7  # images for each feature, as in Fig. 12


def neurons(
    model: nn.Module,
    images: Tensor,
    targets: Tensor | None = None,
    *,
    layer: str,
    channels: Sequence[int] = (),
    directions: int = 0,
    labels: Tensor | None = None,
    classes: Sequence[str] | None = None,
    indices: Tensor | None = None,
    label: str = "model",
    picture: str = "paper",
    top: int = TOP,
    batch_size: int = 50,
) -> NeuronsResult:
    """Explain channels of a layer, and its most contributing directions, by the images (n, 3, H, W) they answer to.

    layer: the name of a module. channels: which neurons. directions: how many, of those that contribute most to the
    logits of targets (n,), by default the predicted classes. top: images for each, at their strongest position.
    """
    check_images(images)
    _check_choices(channels, directions, top, picture, batch_size)
    with evaluating(model):
        kind = type(find_layer(model, layer)).__name__
        names = tuple(classes or map(str, range(count_logits(model, images[:1]))))
        for given in (each for each in (targets, labels) if each is not None):
            check_labels(given, images=images, classes=names)
        width = output_channels(model, images[:1], layer=layer)
        if wrong := [channel for channel in channels if not 0 <= channel < width]:
            raise InputError(f"expected a neuron of {layer} from 0 to {width - 1}, got {wrong[0]}")
        chosen = _directions(model, images, targets, layer, directions, len(names), batch_size)
        vectors = torch.cat([torch.eye(width).to(chosen.vectors)[list(channels)], chosen.vectors])
        if not len(vectors):
            raise InputError(f"no direction in {layer} adds to the logits that were asked for; name neurons")
        peaks = find_peaks(model, images, vectors, layer=layer, top=top, batch_size=batch_size)
        found = _explain(model, images, vectors, peaks, layer, batch_size)
    known = torch.full((len(images),), -1) if labels is None else labels.long().cpu()
    numbers = torch.arange(len(images)) if indices is None else indices.cpu()
    return NeuronsResult(
        label=label,
        settings={"device": str(device_of(model)), "batch_size": batch_size},
        layer=layer,
        kind=kind,
        searched=len(images),
        classes=names,
        features=(
            *(f"neuron {channel}" for channel in channels),
            *(f"direction {i + 1}" for i in range(len(chosen.vectors))),
        ),
        vectors=vectors.numpy(),
        **_sources(chosen, peaks, numbers, before=len(channels)),
        indices=numbers[peaks.images].numpy(),
        labels=known[peaks.images].numpy(),
        positions=peaks.positions(peaks.places).numpy(),
        images=images.cpu()[peaks.images].numpy(),
        picture=picture,
        **_arrays(found, peaks),
    )


def _check_choices(channels: Sequence[int], directions: int, top: int, picture: str, batch_size: int) -> None:
    if picture not in colour.STYLES:
        raise InputError(f"expected a style of {', '.join(colour.STYLES)}, got {picture!r}")
    if directions < 0 or not (directions or channels):
        raise InputError(f"expected channels, or directions of at least 1, got {list(channels)} and {directions}")
    if len(set(channels)) < len(channels):
        raise InputError(f"expected each neuron once, got {', '.join(map(str, channels))}")
    for what, number in (("images for each neuron", top), ("images at once", batch_size)):
        if number < 1:
            raise InputError(f"expected at least 1 of the {what}, got {number}")


def _directions(
    model: nn.Module, images: Tensor, targets: Tensor | None, layer: str, count: int, classes: int, batch_size: int
) -> Directions:
    """The directions asked for, for the predicted classes unless others are given."""
    if not count:
        return no_directions(output_channels(model, images[:1], layer=layer))
    images = images.to(device_of(model))
    if targets is None:
        with torch.no_grad():
            batches = images.split(batch_size)
            logits = shared_map(lambda batch: logits_of(model, batch, classes=classes), batches)
        targets = torch.cat(logits).argmax(1)
    targets = targets.long().to(images.device)
    return choose_directions(model, images, targets, layer=layer, count=count, batch_size=batch_size)


def _explain(
    model: nn.Module, images: Tensor, vectors: Tensor, peaks: Peaks, layer: str, batch_size: int
) -> list[Decomposition]:
    """The activations at all peaks taken apart, feature by feature, several images at a time."""
    which, places = peaks.images.flatten(), peaks.places.flatten()
    chosen = vectors.repeat_interleave(peaks.images.shape[1], 0)

    def explain(part: Tensor) -> Decomposition:
        batch = images[which[part].to(images.device)].to(device_of(model))
        mixtures = at_positions(chosen[part], places[part], batch.new_zeros(len(part), *peaks.shape))
        return decompose(model, batch, mixtures[:, None], layer=layer)

    return shared_map(explain, torch.arange(len(which)).split(batch_size))


def _arrays(found: Sequence[Decomposition], peaks: Peaks) -> dict[str, Any]:
    """What the decompositions say, as (K, T, …)."""

    def joined(parts: Sequence[Tensor]) -> np.ndarray:
        together = torch.cat(list(parts)).cpu()
        return together.view(*peaks.images.shape, *together.shape[1:]).numpy()

    zero = [torch.zeros_like(each.logits[:, 0]) for each in found]
    biases = [
        torch.stack([none, *(bias[:, 0] for bias in each.biases.values())], -1)[:, 1:]
        for each, none in zip(found, zero, strict=True)
    ]
    return {
        "activations": joined([each.logits[:, 0] for each in found]).astype(float),
        "inputs": joined([each.inputs for each in found]),
        "rows": joined([each.weights[:, 0] for each in found]),
        "biases": joined(biases).astype(float),
        "layers": tuple(found[0].biases),
    }


def _sources(chosen: Directions, peaks: Peaks, numbers: Tensor, *, before: int) -> dict[str, Any]:
    """Where each direction comes from; -1 and NaN for the neurons before them."""

    def padded(values: Tensor, fill: float) -> np.ndarray:
        return np.concatenate([np.full((before, *values.shape[1:]), fill, dtype=values.numpy().dtype), values.numpy()])

    return {
        "sources": padded(numbers[chosen.sources], -1),
        "source_positions": padded(peaks.positions(chosen.places), -1),
        "source_classes": padded(chosen.targets, -1),
        "source_contributions": padded(chosen.contributions.double(), np.nan),
        "source_logits": padded(chosen.logits.double(), np.nan),
    }
