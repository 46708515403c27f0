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

from scs_eval.analyses.contributions.neurons.directions import Directions, choose_directions, no_directions
from scs_eval.analyses.contributions.neurons.peaks import Peaks, find_peaks, output_channels
from scs_eval.analyses.contributions.neurons.result import NeuronsComparison as NeuronsComparison
from scs_eval.analyses.contributions.neurons.result import NeuronsResult as NeuronsResult
from scs_eval.analyses.core.batching import images_at_once
from scs_eval.analyses.core.inference import predict_logits
from scs_eval.analyses.core.inputs import ArrayLike, ImagesLike, ModelLike, as_examples, as_labels, as_model
from scs_eval.analyses.core.model_state import device_of, evaluating
from scs_eval.analyses.core.parallel import shared_map
from scs_eval.analyses.core.validation import check_answer, check_images, check_labels, check_request
from scs_eval.analyses.plotting import colour
from scs_eval.errors import InputError, check_one_of, check_text, check_whole, several
from scs_eval.images import Images
from scs_eval.models.explain.activations import at_positions, find_layer
from scs_eval.models.explain.decomposition import Decomposition, decompose

TOP = 7  # images for each feature, as in Fig. 12
BATCH = 50


def neurons(
    model: ModelLike,
    images: ImagesLike,
    targets: ArrayLike | None = None,
    *,
    layer: str,
    channels: Sequence[int] = (),
    directions: int = 0,
    labels: ArrayLike | None = None,
    classes: Sequence[str] | None = None,
    indices: ArrayLike | None = None,
    label: str = "model",
    picture: str = "paper",
    top: int = TOP,
    batch_size: int | None = None,
) -> NeuronsResult:
    """Explain channels of a layer, and its most contributing directions, by the images (n, 3, H, W) they answer to.

    layer: the name of a module. channels: which neurons. directions: how many, of those that contribute most to the
    logits of targets (n,), by default the predicted classes. top: images for each, at their strongest position.
    images: arrays, or data that bring labels, classes and indices. batch_size: by default 50, fewer of large images.

    >>> import scs_eval
    >>> model, data = scs_eval.load_model("rohrer25k_scs"), scs_eval.load_data("sample", n=10)
    >>> layer = next(name for name, module in model.named_modules() if "SCS" in type(module).__name__)
    >>> scs_eval.neurons(model, data, layer=layer, channels=[0, 1], top=2).layer == layer
    True
    """
    check_request(label=label, batch_size=batch_size)
    check_text(layer=layer)
    _check_choices(channels, directions, top, picture)
    model, data = as_model(model), as_examples(images, labels, classes=classes, indices=indices)
    pictures, numbers = data.images, data.indices
    check_images(pictures)
    batch_size = images_at_once(pictures, BATCH) if batch_size is None else batch_size
    wanted, truth = (
        None if targets is None else as_labels(targets, what="targets"),
        None if labels is None else data.labels,
    )
    with torch.inference_mode(False), evaluating(model):
        kind = type(find_layer(model, layer)).__name__
        names = data.class_names(model)
        check_answer(model, pictures, classes=len(names))
        for what, given in (("targets", wanted), ("labels", truth)):
            if given is not None:
                check_labels(given, images=pictures, classes=names, what=what)
        chosen = _directions(model, pictures, wanted, layer, directions, len(names), batch_size)
        vectors = _vectors(model, pictures, channels, chosen, layer)
        peaks = find_peaks(model, pictures, vectors, layer=layer, top=top, batch_size=batch_size)
        decompositions = _explain(model, pictures, vectors, peaks, layer, batch_size)
    known = data.labels.long().cpu()
    return NeuronsResult(
        label=label,
        settings={**data.settings, "device": str(device_of(model)), "batch_size": batch_size},
        layer=layer,
        kind=kind,
        searched=len(pictures),
        classes=names,
        features=_feature_names(channels, chosen),
        vectors=vectors.numpy(),
        **_sources(chosen, peaks, numbers, before=len(channels)),
        indices=numbers[peaks.images].numpy(),
        labels=known[peaks.images].numpy(),
        positions=peaks.positions(peaks.offsets).numpy(),
        images=pictures[peaks.images].cpu().numpy(),
        picture=picture,
        **_arrays(decompositions, peaks),
    )


def _vectors(model: nn.Module, images: Images, channels: Sequence[int], chosen: Directions, layer: str) -> Tensor:
    """(K, C) unit vectors: the neurons, then the directions."""
    width = output_channels(model, images[:1], layer=layer)
    if wrong := [channel for channel in channels if not 0 <= channel < width]:
        raise InputError(f"expected a neuron of {layer} from 0 to {width - 1}, got {wrong[0]}")
    vectors = torch.cat([torch.eye(width).to(chosen.vectors)[list(channels)], chosen.vectors])
    if not len(vectors):
        raise InputError(f"no direction in {layer} adds to the logits that were asked for; name neurons")
    return vectors


def _feature_names(channels: Sequence[int], chosen: Directions) -> tuple[str, ...]:
    directions = (f"direction {number}" for number in range(1, len(chosen.vectors) + 1))
    return (*(f"neuron {channel}" for channel in channels), *directions)


def _check_choices(channels: Sequence[int], directions: int, top: int, picture: str) -> None:
    check_one_of(colour.STYLES, picture=picture)
    check_whole(1, top=top)
    check_whole(0, directions=directions)
    chosen = several(channels=channels)
    for channel in chosen:
        check_whole(0, channels=channel)
    if not (directions or chosen):
        raise InputError(f"expected channels, or directions of at least 1, got {chosen} and {directions}")
    if len(set(chosen)) < len(chosen):
        raise InputError(f"expected each neuron once, got {', '.join(map(str, chosen))}")


def _directions(
    model: nn.Module, images: Images, targets: Tensor | None, layer: str, count: int, classes: int, batch_size: int
) -> Directions:
    """The directions asked for, for the predicted classes unless others are given."""
    if not count:
        return no_directions(output_channels(model, images[:1], layer=layer))
    if targets is None:
        targets = predict_logits(model, images, classes=classes, batch_size=batch_size).argmax(1)
    targets = targets.long().to(device_of(model))
    return choose_directions(model, images, targets, layer=layer, count=count, batch_size=batch_size)


def _explain(
    model: nn.Module, images: Images, vectors: Tensor, peaks: Peaks, layer: str, batch_size: int
) -> list[Decomposition]:
    """The activations at all peaks taken apart, feature by feature, several images at a time."""
    which, positions = peaks.images.flatten(), peaks.offsets.flatten()
    chosen = vectors.repeat_interleave(peaks.images.shape[1], 0)

    def explain(part: Tensor) -> Decomposition:
        batch = images[which[part].to(images.device)].to(device_of(model))
        mixtures = at_positions(chosen[part], positions[part], batch.new_zeros(len(part), *peaks.shape))
        return decompose(model, batch, mixtures[:, None], layer=layer)

    return shared_map(explain, torch.arange(len(which)).split(batch_size))


def _arrays(decompositions: Sequence[Decomposition], peaks: Peaks) -> dict[str, Any]:
    """What the decompositions say, as (K, T, …)."""

    def joined(parts: Sequence[Tensor]) -> np.ndarray:
        together = torch.cat(list(parts)).cpu()
        return together.view(*peaks.images.shape, *together.shape[1:]).numpy()

    zero = [torch.zeros_like(item.logits[:, 0]) for item in decompositions]
    biases = [
        torch.stack([none, *(bias[:, 0] for bias in item.biases.values())], -1)[:, 1:]
        for item, none in zip(decompositions, zero, strict=True)
    ]
    return {
        "activations": joined([item.logits[:, 0] for item in decompositions]).astype(float),
        "inputs": joined([item.inputs for item in decompositions]),
        "rows": joined([item.weights[:, 0] for item in decompositions]),
        "biases": joined(biases).astype(float),
        "layers": tuple(decompositions[0].biases),
    }


def _sources(chosen: Directions, peaks: Peaks, numbers: Tensor, *, before: int) -> dict[str, Any]:
    """Where each direction comes from; -1 and NaN for the neurons before them."""

    def padded(values: Tensor, fill: float) -> np.ndarray:
        return np.concatenate([np.full((before, *values.shape[1:]), fill, dtype=values.numpy().dtype), values.numpy()])

    return {
        "sources": padded(numbers[chosen.sources], -1),
        "source_positions": padded(peaks.positions(chosen.offsets), -1),
        "source_classes": padded(chosen.targets, -1),
        "source_contributions": padded(chosen.contributions.double(), np.nan),
        "source_logits": padded(chosen.logits.double(), np.nan),
    }
