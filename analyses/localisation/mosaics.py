"""Mosaics: n × n images of different classes set side by side, and the list of them that can be saved and replayed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from scs_eval.analyses.core.labelled_images import LabelledImages
from scs_eval.errors import InputError
from scs_eval.images import Images

COLUMNS = ("grid", "row", "column", "index", "class")


@dataclass(frozen=True, eq=False, kw_only=True)
class Mosaics:
    """G mosaics of n × n images, cells row by row.

    indices: (G, n²) whole numbers, positions of the images in the original set. targets: (G, n²) their classes.
    requested: how many were wanted. pool: images there were to choose from; usable: those that every model has right,
        None if the mosaics were chosen elsewhere.
    """

    side: int
    indices: np.ndarray
    targets: np.ndarray
    requested: int
    pool: int
    usable: int | None

    def __len__(self) -> int:
        return len(self.indices)


def compose(images: Images, positions: Tensor, *, side: int) -> Tensor:
    """Images (N, 3, h, w) at `positions` (G, n²), row by row, as mosaics (G, 3, n·h, n·w)."""
    cells = images[positions].unflatten(1, (side, side))
    return cells.permute(0, 3, 1, 4, 2, 5).flatten(4).flatten(2, 3)


def positions_of(mosaics: Mosaics, indices: Tensor) -> Tensor:
    """Where the mosaics' images stand among those with `indices`: (G, n²)."""
    position = {int(index): i for i, index in enumerate(indices)}
    if missing := [int(index) for index in mosaics.indices.flat if int(index) not in position]:
        raise InputError(f"no image with index {missing[0]} here; replay the grids on the images they were made of")
    return torch.tensor([[position[int(index)] for index in row] for row in mosaics.indices])


def count_misclassified(mosaics: Mosaics, data: LabelledImages, predictions: Tensor) -> int:
    """How many of the mosaics' images a model has wrong: none, unless the mosaics were chosen elsewhere."""
    return int((predictions.cpu() != data.labels.cpu())[positions_of(mosaics, data.indices)].sum())


def mosaic_table(side: int, indices: np.ndarray, names: np.ndarray) -> pd.DataFrame:
    """One row per cell: grid, row, column, index, class, from indices and classes (G, n²); for `read_mosaics`."""
    count, cells = indices.shape
    cell = np.tile(np.arange(cells), count)
    columns = {"grid": np.repeat(np.arange(count), cells), "row": cell // side, "column": cell % side}
    return pd.DataFrame({**columns, "index": indices.ravel(), "class": names.ravel()})


def read_mosaics(path: str | Path, data: LabelledImages, *, model: str, count: int | None = None) -> Mosaics:
    """The mosaics of a saved list (grids.csv), checked against the images at hand; the model's own if it has several.

    count: only the first so many; fewer if there are not as many.
    """
    table = _read_list(path, model)
    side = int(table["row"].max()) + 1 if len(table) else 0
    listed = table["grid"].nunique()
    if not listed or len(table) != listed * side**2 or (table.groupby(["grid", "row", "column"]).size() != 1).any():
        raise InputError(f"expected whole n × n grids of {model} in {path}, got {len(table)} cells in {listed} grids")
    requested = count or listed
    chosen = table[: requested * side**2]
    label_of = _checked_labels(chosen, data)
    indices = chosen["index"].to_numpy(dtype=np.int64).reshape(-1, side**2)
    targets = np.vectorize(label_of.__getitem__)(indices)
    return Mosaics(side=side, indices=indices, targets=targets, requested=requested, pool=len(data.labels), usable=None)


def _read_list(path: str | Path, model: str) -> pd.DataFrame:
    """The rows of the list that are for this model, cells in order."""
    try:
        table = pd.read_csv(path)
    except (OSError, ValueError) as error:
        raise InputError(f"expected a list of grids (grids.csv of an earlier result) in {path}: {error}") from error
    if missing := [name for name in COLUMNS if name not in table]:
        raise InputError(f"expected a column {missing[0]!r} in {path}; replay grids.csv of an earlier result")
    if "model" in table and table["model"].nunique() > 1:
        table = table[table["model"] == model]
    return table.sort_values(["grid", "row", "column"], kind="stable")


def _checked_labels(table: pd.DataFrame, data: LabelledImages) -> Mapping[int, int]:
    """The label of every index; a class in the list that is another here raises."""
    labels = {int(index): int(label) for index, label in zip(data.indices, data.labels, strict=True)}
    for index, name in zip(table["index"], table["class"], strict=True):
        here = _class_name(labels.get(int(index)), data.classes)
        if here != name:
            what = f"a {here}" if here else "missing"
            raise InputError(f"expected image {index} to be a {name}, here it is {what}; are these the same images?")
    return labels


def _class_name(label: int | None, classes: Sequence[str]) -> str | None:
    return None if label is None else classes[label]
