"""Which images make which grid of the pointing game, and the grids themselves.

Source: B-cos v2, C.2.1: images sorted by confidence for each class, a random set of classes for each grid, of each
class the most confident image that has not been used. Here an image must be right for every model that plays.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from scs_eval.errors import InputError

PUBLISHED_SEED = 42
COLUMNS = ("grid", "row", "column", "index", "class")


@dataclass(frozen=True, eq=False, kw_only=True)
class Grids:
    """Grids of n × n images, cells row by row.

    indices: (G, n²) whole numbers, positions of the images in the original set. targets: (G, n²) their classes.
    asked: how many grids were wanted. pool: images there were to choose from; usable: those that every model has right,
        None if the grids were chosen elsewhere.
    """

    side: int
    indices: np.ndarray
    targets: np.ndarray
    asked: int
    pool: int
    usable: int | None

    def __len__(self) -> int:
        return len(self.indices)


def choose_grids(
    logits: Sequence[Tensor], labels: Tensor, indices: Tensor, *, side: int = 3, count: int = 500, seed: int = 0
) -> Grids:
    """Grids of images that all models have right, the most confidently classified first, no image twice.

    logits: (N, classes) of each model; labels, indices: (N,). Models are confident on different scales, so the order
    within a class is by the mean of an image's ranks. Fewer than `count` if the images run out.
    """
    _check(side, count)
    usable = torch.stack([each.argmax(1) == labels for each in logits]).all(0)
    queues = _queues(logits, labels, usable)
    random = np.random.default_rng(seed)
    chosen: list[list[int]] = []
    while len(chosen) < count and len(left := [c for c, queue in queues.items() if queue]) >= side**2:
        chosen.append([queues[c].pop() for c in random.choice(left, side**2, replace=False)])
    return _grids(chosen, labels, indices, side=side, asked=count, usable=int(usable.sum()))


def _queues(logits: Sequence[Tensor], labels: Tensor, usable: Tensor) -> dict[int, list[int]]:
    """For each class the places of its usable images, the most confident last."""
    queues = {}
    for label in labels[usable].unique().tolist():
        here = (usable & (labels == label)).nonzero()[:, 0]
        ranks = [(-each[here].double().log_softmax(1)[:, label]).argsort(stable=True).argsort() for each in logits]
        order = torch.stack(ranks).double().mean(0).argsort(stable=True)
        queues[label] = here[order].flip(0).tolist()
    return queues


def published_grids(logits: Tensor, labels: Tensor, indices: Tensor, *, side: int = 3, count: int = 500) -> Grids:
    """The grids of the B-cos authors' code, its quirks included.

    Its seed is fixed; images count while the sigmoid of their logit is above ½; it stops when no more than n² classes
    have any; one image is skipped after every grid, after which a class may come twice and is passed over; cells are
    filled column by column.
    """
    _check(side, count)
    right = logits.argmax(1) == labels
    order = _published_order(logits.amax(1), labels, right, logits.shape[1], side**2)
    cells: list[list[int]] = []
    start = 0
    while len(cells) < count:
        taken: list[int] = []
        while len(taken) < side**2 and start < len(order):
            if int(labels[order[start]]) not in [int(labels[place]) for place in taken]:
                taken.append(order[start])
            start += 1
        if len(taken) < side**2:
            break  # there the code would die
        cells.append(np.array(taken).reshape(side, side).T.ravel().tolist())
        start += 1
    return _grids(cells, labels, indices, side=side, asked=count, usable=int(right.sum()))


def _published_order(best: Tensor, labels: Tensor, right: Tensor, classes: int, cells: int) -> list[int]:
    """Places of images in blocks of n² classes."""
    queues = []
    for label in range(classes):
        here = (right & (labels == label)).nonzero()[:, 0]
        here = here[best[here].argsort(descending=True, stable=True)]
        queues.append(here[best[here].float().sigmoid() > 0.5].tolist())
    used, random, order = [0] * classes, np.random.RandomState(PUBLISHED_SEED), []
    while len(left := [c for c in range(classes) if used[c] < len(queues[c])]) > cells:
        for label in random.choice(left, cells, replace=False):
            order.append(queues[label][used[label]])
            used[label] += 1
    return order


def compose(images: Tensor, places: Tensor, *, side: int) -> Tensor:
    """Images (N, 3, h, w) at `places` (G, n²), row by row, as grids (G, 3, n·h, n·w)."""
    cells = images[places].unflatten(1, (side, side))
    return cells.permute(0, 3, 1, 4, 2, 5).flatten(4).flatten(2, 3)


def places_of(grids: Grids, indices: Tensor) -> Tensor:
    """Where the images of the grids stand among those with `indices`: (G, n²)."""
    where = {int(index): place for place, index in enumerate(indices)}
    if missing := [int(index) for index in grids.indices.flat if int(index) not in where]:
        raise InputError(f"no image with index {missing[0]} here; replay the grids on the images they were made of")
    return torch.tensor([[where[int(index)] for index in row] for row in grids.indices])


def grid_table(side: int, indices: np.ndarray, names: np.ndarray) -> pd.DataFrame:
    """One row per cell: grid, row, column, index, class, from indices and classes (G, n²); for `read_grids`."""
    count, cells = indices.shape
    place = np.tile(np.arange(cells), count)
    columns = {"grid": np.repeat(np.arange(count), cells), "row": place // side, "column": place % side}
    return pd.DataFrame({**columns, "index": indices.ravel(), "class": names.ravel()})


def read_grids(
    path: str | Path, labels: Tensor, indices: Tensor, *, classes: Sequence[str], model: str, count: int | None = None
) -> Grids:
    """The grids of a saved list (grids.csv), checked against the images at hand; the model's own if it has several.

    count: only the first so many; fewer if there are not as many.
    """
    try:
        table = pd.read_csv(path)
    except (OSError, ValueError) as error:
        raise InputError(f"expected a list of grids (grids.csv of an earlier result) in {path}: {error}") from error
    if missing := [name for name in COLUMNS if name not in table]:
        raise InputError(f"expected a column {missing[0]!r} in {path}; replay grids.csv of an earlier result")
    if "model" in table and table["model"].nunique() > 1:
        table = table[table["model"] == model]
    table = table.sort_values(["grid", "row", "column"], kind="stable")
    side = int(table["row"].max()) + 1 if len(table) else 0
    listed = table["grid"].nunique()
    if not listed or len(table) != listed * side**2 or (table.groupby(["grid", "row", "column"]).size() != 1).any():
        raise InputError(f"expected whole n × n grids of {model} in {path}, got {len(table)} cells in {listed} grids")
    asked = count or listed
    return _replayed(table[: asked * side**2], labels, indices, classes=classes, side=side, asked=asked)


def _replayed(
    table: pd.DataFrame, labels: Tensor, indices: Tensor, *, classes: Sequence[str], side: int, asked: int
) -> Grids:
    known: Mapping[int, int] = {int(index): int(label) for index, label in zip(indices, labels, strict=True)}
    for index, name in zip(table["index"], table["class"], strict=True):
        if int(index) not in known or classes[known[int(index)]] != name:
            found = f"a {classes[known[int(index)]]}" if int(index) in known else "missing"
            raise InputError(f"expected image {index} to be a {name}, here it is {found}; are these the same images?")
    chosen = table["index"].to_numpy(dtype=np.int64).reshape(-1, side**2)
    targets = np.vectorize(known.__getitem__)(chosen)
    return Grids(side=side, indices=chosen, targets=targets, asked=asked, pool=len(labels), usable=None)


def _check(side: int, count: int) -> None:
    if side not in (2, 3):
        raise InputError(f"expected grids of 2 × 2 or 3 × 3, got {side} × {side}")
    if count < 1:
        raise InputError(f"expected at least one grid, got {count}")


def _grids(cells: list[list[int]], labels: Tensor, indices: Tensor, *, side: int, asked: int, usable: int) -> Grids:
    """From places among the images to their indices; not even one grid raises."""
    if not cells:
        raise InputError(
            f"{usable} of {len(labels)} images can be used, too few for one grid of {side**2} different classes; "
            "take more images, fewer models or smaller grids"
        )
    places = torch.tensor(cells)
    chosen, targets = indices[places].numpy(), labels[places].numpy()
    return Grids(side=side, indices=chosen, targets=targets, asked=asked, pool=len(labels), usable=usable)
