"""The files that a training run leaves in its directory, read and checked.

`records.csv` has one row per epoch, `layers.csv` one per epoch, layer and quantity (and kernel, for p); epoch 0 is
before training. `norms.csv`, where weight norms were logged at every mini-batch, has one per step and layer.
`run.json` says which model was trained and how.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from scs_eval.errors import InputError

RECORDS = ("epoch", "lr", "train_loss", "train_accuracy", "test_loss", "test_accuracy", "train_seconds", "eval_seconds")
LAYERS = ("epoch", "layer", "quantity", "index", "value")
NORMS = ("step", "layer", "weight_norm")

_TEXT = ("layer", "quantity")
_COUNTS = ("epoch", "step")


def read_description(directory: Path) -> dict[str, Any]:
    """What run.json says."""
    path = directory / "run.json"
    try:
        description = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise InputError(f"no training run in {directory}: run.json is missing") from error
    except (OSError, ValueError) as error:
        raise InputError(f"{path} is damaged: {error}") from error
    if not isinstance(description, dict) or not isinstance(description.get("model"), str):
        raise InputError(f"{path} is damaged: expected an object that names its model")
    return description


def read_table(path: Path, columns: tuple[str, ...]) -> np.ndarray:
    """A CSV file as a structured array of these columns: whole numbers, text and (NaN where empty) floats."""
    try:
        frame = pd.read_csv(path, dtype=dict.fromkeys(_TEXT, str), keep_default_na=False, na_values=["", "nan"])
    except FileNotFoundError as error:
        raise InputError(f"no training run in {path.parent}: {path.name} is missing") from error
    except (OSError, ValueError) as error:  # what pandas raises for broken lines, bytes and quotes are ValueErrors
        raise InputError(f"{path} is damaged: {error}") from error
    if missing := [name for name in columns if name not in frame]:
        raise InputError(f"{path} is damaged: expected the columns {', '.join(columns)}; {missing[0]} is missing")
    return structured({name: _column(path, frame[name]) for name in columns})


def structured(columns: dict[str, np.ndarray]) -> np.ndarray:
    """Columns of one length as one array with named fields, which npz keeps without pickle."""
    table = np.empty(
        len(next(iter(columns.values()))), dtype=[(name, column.dtype) for name, column in columns.items()]
    )
    for name, column in columns.items():
        table[name] = column
    return table


def _column(path: Path, column: "pd.Series[Any]") -> np.ndarray:
    name = str(column.name)
    try:
        if name in _TEXT:
            return column.to_numpy(dtype=str)
        values = column.to_numpy(dtype=float, na_value=np.nan)
        return _whole(values) if name in _COUNTS else values
    except (ValueError, TypeError) as error:
        raise InputError(f"{path} is damaged: column {name}: {error}") from error


def _whole(values: np.ndarray) -> np.ndarray:
    if not (np.isfinite(values).all() and (values == values.round()).all()):
        raise ValueError("expected whole numbers")
    return values.astype(np.int64)
