"""Which pixels speak for a class? Every method behind one signature.

The model comes out as it went in, and a method that cannot serve it raises `NotApplicableError`, which says why.
"""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from scs_eval.analyses.attribution.encoding import EncodedInput, encode, encodes
from scs_eval.analyses.attribution.methods import MapOptions, Method, find_method
from scs_eval.analyses.attribution.own_methods import MethodLike, method_name
from scs_eval.analyses.core.batching import images_at_once, map_images
from scs_eval.analyses.core.inputs import ArrayLike, ImagesLike, ModelLike, as_examples, as_images, as_labels, as_model
from scs_eval.analyses.core.model_state import device_of, evaluating
from scs_eval.analyses.core.validation import check_images
from scs_eval.errors import InputError, NotApplicableError
from scs_eval.images import Images

IMAGES_AT_ONCE, FEW_AT_ONCE = 50, 10  # by what an image costs


def attribute(
    model: ModelLike,
    images: ImagesLike,
    targets: ArrayLike,
    *,
    method: MethodLike = "grad",
    seed: int = 0,
    channels: int = 3,
    references: ArrayLike | None = None,
) -> Tensor:
    """Signed attributions (N, 3, H, W) of the logits `targets` (N,) to images (N, 3, H, W) in [0, 1].

    method: a name of `scs-eval methods`, captum:NAME, a class of captum.attr, a function of (model, images, targets).
    A method that speaks of whole pixels (gradcam, lime, occlusion, rise, normgrad) gives every channel the same value.
    Random choices depend on `seed` alone, so that a map does not depend on the images beside it.
    channels: 6 to explain what enters a network that encodes [x, 1−x], the two channels of a colour added.
    references: images that expected gradients start from, such as some of the training set.

    >>> import scs_eval
    >>> data = scs_eval.load_data("sample", n=2)
    >>> scs_eval.attribute(scs_eval.load_model("rohrer25k_scs"), data.images, data.labels, method="ixg").shape
    torch.Size([2, 3, 32, 32])
    """
    chosen, model = find_method(method_name(method)), as_model(model)
    pictures, given = as_examples(images).images, as_labels(targets, what="targets")
    check_images(pictures)
    if channels not in (3, 6):
        raise InputError(f"expected 3 or 6 channels, got {channels}")
    options = MapOptions(seed=seed, references=_checked_references(references, chosen))
    size = images_at_once(pictures, IMAGES_AT_ONCE if chosen.cheap else FEW_AT_ONCE)
    with _explaining(model):
        check_logits(model, pictures, given, chosen)

        def some(batch: Tensor, part: slice) -> Tensor:
            x, classes = _moved(model, batch, given[part])
            return _maps(model, x, classes[:, None], chosen, options, channels=channels)[:, 0]

        maps = torch.cat(map_images(some, pictures, size=size))
    return maps.unflatten(1, (-1, 3)).sum(1).to(pictures.device)


def _checked_references(references: ArrayLike | None, method: Method) -> Tensor | None:
    if references is None:
        return None
    if "references" not in method.reads:
        raise InputError(f"references are for expected gradients (expgrad), got some for {method.name}")
    images = as_images(references)
    check_images(images)
    return images


def pixel_maps(
    model: nn.Module,
    images: Tensor,
    targets: Tensor,
    *,
    method: str,
    options: MapOptions | None = None,
    channels: int = 3,
) -> Tensor:
    """Signed attributions, summed over channels (N, K, H, W), of K logits `targets` (N, K) of each image."""
    with _explaining(model):
        x, classes = _moved(model, images, targets)
        return _maps(model, x, classes, find_method(method), options or MapOptions(), channels=channels).sum(2)


def _maps(
    model: nn.Module, images: Tensor, targets: Tensor, method: Method, options: MapOptions, *, channels: int
) -> Tensor:
    """(N, K, C, H, W), finite."""
    if channels == 6 and encodes(model) and not method.at_encoding:
        model, images = EncodedInput(model), encode(model, images)
    maps = method.maps(model, images, targets, options).detach()
    wanted = (*targets.shape, *images.shape[1:])
    if maps.ndim != 5 or (*maps.shape[:2], *maps.shape[3:]) != (*wanted[:2], *wanted[3:]):
        raise InputError(f"the method {method.name!r} gave shape {tuple(maps.shape)}, expected {wanted}")
    if not maps.isfinite().all():
        raise NotApplicableError(f"{method.name} gives NaN or infinity on this network")
    return maps


def check_logits(model: nn.Module, images: Images, targets: Tensor, method: Method) -> None:
    """Raise unless the model gives finite logits for such images, `targets` are among them and gradients exist."""
    if targets.shape != images.shape[:1] or targets.is_floating_point() or targets.dtype == torch.bool:
        raise InputError(f"expected {len(images)} targets as whole numbers, got {targets.dtype} {tuple(targets.shape)}")
    logits = _logits_of_first(model, images)
    if method.on == "probability" and logits.shape[1] == 1:
        raise NotApplicableError(f"{method.name} explains a probability, and that of an only class is always 1")
    first, last = int(targets.min()), int(targets.max())
    if first < 0 or last >= logits.shape[1]:
        raise InputError(f"expected targets from 0 to {logits.shape[1] - 1}, got {first} to {last}")
    if method.needs_gradient and not logits.requires_grad:
        raise NotApplicableError(
            f"{method.name} needs a gradient, and the model is not differentiable; try occlusion, rise or lime"
        )


def _logits_of_first(model: nn.Module, images: Images) -> Tensor:
    first = images[:1]
    like = next(model.parameters(), first)
    first = first.detach().to(like.device, like.dtype, copy=True).requires_grad_()
    try:
        logits = model(first)
    except torch.OutOfMemoryError:
        raise
    except RuntimeError as error:
        size = "×".join(map(str, images.shape[1:]))
        raise InputError(f"the model cannot take images of {size}: {error}") from error
    if not isinstance(logits, Tensor) or logits.ndim != 2 or len(logits) != 1 or not logits.isfinite().all():
        raise InputError("expected finite logits (n, classes) from the model")
    return logits


def _moved(model: nn.Module, images: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Both where the model is, the images in its precision."""
    like = next(model.parameters(), images)
    return images.detach().to(like.device, like.dtype), targets.detach().long().to(device_of(model))


@contextmanager
def _explaining(model: nn.Module) -> Iterator[None]:
    """Gradients on, the model as in evaluation, and no warnings of captum's about hooks that it puts back itself."""
    with torch.inference_mode(False), evaluating(model), torch.enable_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        yield
