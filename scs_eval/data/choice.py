"""Which n images to take: random, seeded, and as even over the classes as the data allow."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from scs_eval.errors import InputError


def choose(
    labels: NDArray[np.int64], *, n: int | None, seed: int, usable: NDArray[np.bool_] | None = None
) -> NDArray[np.int64]:
    """Positions of n images in rising order (all of them if n is None), none where `usable` (N,) is false.

    They are dealt as `deal` says. So no class has two images more than another unless the other is used up; with the
    same seed a smaller choice lies inside every larger one; and making an image unusable replaces that image alone.
    """
    return np.sort(deal(labels, n=n, seed=seed, usable=usable))


def deal(
    labels: NDArray[np.int64], *, n: int | None, seed: int, usable: NDArray[np.bool_] | None = None
) -> NDArray[np.int64]:
    """Positions of n images, shuffled by `seed` and dealt in rounds, one of each class that has any left, by class.

    With the same seed a smaller choice is the beginning of every larger one, as long as rounds are whole.
    """
    order = np.random.default_rng(seed).permutation(len(labels))
    if usable is not None:
        order = order[usable[order]]
    if n is not None and n > len(order):
        raise InputError(f"expected n of at most {len(order)}, as many images as there are, got {n}; ask for fewer")
    rounds = _round(labels[order])
    dealt = np.argsort(rounds, kind="stable")[:n]
    return order[dealt[np.lexsort((labels[order][dealt], rounds[dealt]))]]


def _round(labels: NDArray[np.int64]) -> NDArray[np.int64]:
    """How many earlier entries have the same label, for each entry: (N,)."""
    by_class = np.argsort(labels, kind="stable")
    start_of_class = np.searchsorted(labels[by_class], labels[by_class])
    rounds = np.empty(len(labels), dtype=np.int64)
    rounds[by_class] = np.arange(len(labels)) - start_of_class
    return rounds


def usable_images(
    indices: NDArray[np.int64], *, only: Sequence[int] | None, exclude: Sequence[int] | None, source: str
) -> NDArray[np.bool_]:
    """(N,) which of the images may be chosen: those whose index in the original set is in `only`, not in `exclude`."""
    usable = np.ones(len(indices), dtype=np.bool_)
    for numbers, keep in ((only, True), (exclude, False)):
        if numbers is not None:
            given = np.asarray(numbers, dtype=np.int64)
            missing = given[~np.isin(given, indices)]
            if keep and len(missing):
                raise _no_such_index(int(missing[0]), indices, source)
            usable &= np.isin(indices, given) == keep
    if not usable.any():
        raise InputError(f"none of the {len(usable)} images of {source} is left to choose from")
    return usable


def _no_such_index(index: int, indices: NDArray[np.int64], source: str) -> InputError:
    near = sorted(indices[np.abs(indices - index).argsort(kind="stable")[:3]].tolist())
    return InputError(f"no image with index {index} in {source}; the nearest are {', '.join(map(str, near))}")
