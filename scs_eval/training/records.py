"""The files that tell how a run went; the tables grow by whole rows, whatever kills the run."""

import json
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

RECORDS = ["epoch", "lr", "train_loss", "train_accuracy", "test_loss", "test_accuracy", "train_seconds", "eval_seconds"]
LAYERS = ["epoch", "layer", "quantity", "index", "value"]
NORMS = ["step", "layer", "weight_norm"]


class Table:
    """A CSV file whose first column counts epochs or steps."""

    def __init__(self, path: Path, columns: Sequence[str]) -> None:
        self.path, self.columns = path, columns

    def begin(self, *, keep_until: int) -> None:
        """Start the file, or continue it after the given epoch or step: later rows belong to lost work and go."""
        lines = self.path.read_text().splitlines(keepends=True)[1:] if self.path.exists() else []
        kept = [line for line in lines if line.endswith("\n") and int(line.split(",", 1)[0]) <= keep_until]
        write_atomically(self.path, "".join([",".join(self.columns) + "\n", *kept]).encode())

    def append(self, rows: Iterable[Sequence[object]]) -> None:
        """Add rows in a single write, which a killed process has made either whole or not at all."""
        block = "".join(",".join(_cell(value) for value in row) + "\n" for row in rows)
        file = os.open(self.path, os.O_WRONLY | os.O_APPEND)
        try:
            if os.write(file, block.encode()) < len(block.encode()):
                raise OSError(f"the disk is full: {self.path} could not be continued")
        finally:
            os.close(file)


def _cell(value: object) -> str:
    return f"{value:.8g}" if isinstance(value, float) else str(value)


def write_atomically(path: Path, content: bytes) -> None:
    """Write beside and rename: a reader sees the old file or the new one, also after a crash of the machine."""
    beside = path.with_name(path.name + ".part")
    with beside.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    beside.replace(path)


def write_json(path: Path, content: dict[str, Any]) -> None:
    """A readable JSON file, replaced whole."""
    write_atomically(path, (json.dumps(content, indent=2) + "\n").encode())
