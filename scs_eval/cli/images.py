"""Which images a command works on: of a class, by index, or a few evenly over the classes."""

from typing import TYPE_CHECKING, Any

from scs_eval.cli.options import load_images
from scs_eval.errors import InputError

if TYPE_CHECKING:
    from torch import Tensor

    from scs_eval.data import ImageData


def pick_images(
    source: str,
    *,
    class_: str | None = None,
    indices: list[int] | None = None,
    n: int | None,
    usual: int,
    **options: Any,
) -> "ImageData":
    """What `choose_images` chooses from a source; of a large folder no more is read than is needed."""
    some = class_ is None and indices is None
    found = load_some(source, n=n, usual=usual, **options) if some else load_images(source, n=None, **options)
    return choose_images(found, class_=class_, indices=indices, n=n, usual=usual, seed=options["seed"])


def load_some(source: str, *, n: int | None, usual: int, **options: Any) -> "ImageData":
    """n images, or as many as usual; without n all of a source that has fewer."""
    try:
        return load_images(source, n=n or usual, **options)
    except InputError:
        if n is not None:
            raise
        return load_images(source, n=None, **options)


def choose_images(
    data: "ImageData",
    *,
    class_: str | None = None,
    indices: list[int] | None = None,
    n: int | None,
    usual: int,
    seed: int,
) -> "ImageData":
    """The images with these indices, in this order; else n of the class or of all, by `seed`, dealt class by class.

    Without n there are as many as usual, or all where there are not so many.
    """
    import torch

    from scs_eval.analyses.saliency import class_position
    from scs_eval.data.choice import deal

    if class_ is not None:
        data = data.subset(data.labels == class_position(class_, data.classes))
    if not len(data):
        raise InputError(f"no image of the class {class_!r} in {data.source}")
    if indices is not None:
        return data.subset(torch.tensor(_positions(data, indices, class_)))
    taken = deal(data.labels.numpy(), n=min(usual, len(data)) if n is None else n, seed=seed)
    return data.subset(torch.from_numpy(taken))


def _positions(data: "ImageData", indices: list[int], class_: str | None) -> list[int]:
    places = {int(index): place for place, index in enumerate(data.indices)}
    if missing := [index for index in indices if index not in places]:
        near = ", ".join(map(str, sorted(sorted(places, key=lambda index: abs(index - missing[0]))[:3])))
        of = "" if class_ is None else f" of the class {class_}"
        raise InputError(f"no image{of} with index {missing[0]} in {data.source}; the nearest are {near}")
    return [places[index] for index in indices]


def targets_of(data: "ImageData", target: str) -> "Tensor | None":
    """The class to explain for each image; None for the predicted one."""
    import torch

    from scs_eval.analyses.saliency import class_position

    if target == "predicted":
        return None
    return data.labels if target == "label" else torch.full_like(data.labels, class_position(target, data.classes))
