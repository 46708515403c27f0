"""Which of the loaded images an analysis works on: of a class, by index, or a few evenly over the classes."""

from typing import TYPE_CHECKING

from scs_eval.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scs_eval.data.image_data import ImageData


def select_images(
    data: "ImageData",
    *,
    label: int | None = None,
    indices: "Sequence[int] | None" = None,
    n: int | None,
    default_n: int,
    seed: int,
) -> "ImageData":
    """The images with these indices, in this order; else n of one label or of all, by `seed`, dealt class by class.

    Without n there are `default_n`, or all where there are not so many.
    """
    import torch

    from scs_eval.data.choice import deal

    if label is not None:
        data = data.subset(data.labels == label)
        if not len(data):
            raise InputError(f"no image of that class in {data.source}")
    if indices is not None:
        return data.subset(torch.tensor(_positions(data, indices, one_class=label is not None)))
    chosen = deal(data.labels.numpy(), n=min(default_n, len(data)) if n is None else n, seed=seed)
    return data.subset(torch.from_numpy(chosen))


def _positions(data: "ImageData", indices: "Sequence[int]", *, one_class: bool) -> list[int]:
    positions = {int(index): position for position, index in enumerate(data.indices)}
    if missing := [index for index in indices if index not in positions]:
        near = ", ".join(map(str, sorted(sorted(positions, key=lambda index: abs(index - missing[0]))[:3])))
        of = " of that class" if one_class else ""
        raise InputError(f"no image{of} with index {missing[0]} in {data.source}; the nearest are {near}")
    return [positions[index] for index in indices]
