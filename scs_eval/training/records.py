"""The tables that tell how a run went; they grow by whole rows, whatever kills the run."""

import csv
import os
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor, nn

from scs_eval.files import write_atomically
from scs_eval.training.metrics import ModelEvaluation, norms
from scs_eval.training.trainer import Trainer

RECORDS = ["epoch", "lr", "train_loss", "train_accuracy", "test_loss", "test_accuracy", "train_seconds", "eval_seconds"]
LAYERS = ["epoch", "layer", "quantity", "index", "value"]
NORMS = ["step", "layer", "weight_norm"]


class CsvTable:
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


@dataclass(frozen=True)
class Layer:
    """A module with a weight of at least two dimensions: convolution, linear, SCS, B-cos."""

    name: str
    weight: nn.Parameter
    p: nn.Parameter | None
    log_q: nn.Parameter | None
    b: nn.Parameter | None


def find_layers(model: nn.Module) -> list[Layer]:
    """The layers in order of definition; a B-cos layer goes by its own name, not by that of the linear part in it."""
    layers = []
    for name, module in model.named_modules():
        learned = dict(module.named_parameters(recurse=False))  # a fixed p is a buffer and not worth a record
        if "weight" in learned and learned["weight"].ndim >= 2:
            name = name.removesuffix(".linear")
            exponents = (learned.get(key) for key in ("p", "log_q", "learned_b"))
            layers.append(Layer(name, learned["weight"], *exponents))
    return layers


def parameter_rows(layers: list[Layer]) -> list[tuple[str, str, str, float]]:
    """Rows (layer, quantity, index, value) of the weights, p, q and learned B as they are now."""
    lengths = norms([layer.weight.detach() for layer in layers]).tolist()
    rows = [(layer.name, "weight_norm", "", length) for layer, length in zip(layers, lengths, strict=True)]
    for layer in layers:
        if layer.log_q is not None:
            rows.append((layer.name, "q", "", layer.log_q.detach().exp().item()))
        if layer.b is not None:
            rows.append((layer.name, "b", "", layer.b.item()))
        if layer.p is not None:
            rows += [(layer.name, "p", str(k), value) for k, value in enumerate(layer.p.detach().flatten().tolist())]
    return rows


class RunRecords:
    """`records.csv` per epoch, `layers.csv` per epoch and layer, and on request `norms.csv` per batch and layer.

    Epoch 0 of layers.csv and step 0 of norms.csv are the initial weights. A gradient norm is the mean over the
    batches of the epoch.
    """

    def __init__(self, directory: Path, trainer: Trainer, *, norms_per_batch: bool) -> None:
        self.trainer = trainer
        self.layers = find_layers(trainer.model)
        self.records = CsvTable(directory / "records.csv", RECORDS)
        self.layer_table = CsvTable(directory / "layers.csv", LAYERS)
        self.norms = CsvTable(directory / "norms.csv", NORMS) if norms_per_batch else None
        self.pending: list[tuple[int, Tensor]] = []

    def begin(self) -> None:
        """Start the tables, or continue them where the trainer stands."""
        done = self.trainer.epoch - 1
        fresh = self.trainer.step == 0
        self.records.begin(keep_until=done)
        self.layer_table.begin(keep_until=-1 if fresh else done)
        if self.norms is not None:
            self.norms.begin(keep_until=-1 if fresh else self.trainer.step)
        if fresh:
            self.layer_table.append((0, *row) for row in parameter_rows(self.layers))
            self.note_norms()
            self.flush()

    def note_norms(self) -> None:
        """Remember the weight norms after a batch; they are written with the next checkpoint."""
        if self.norms is not None:
            self.pending.append((self.trainer.step, norms([layer.weight.detach() for layer in self.layers])))

    def flush(self) -> None:
        """Write the norms that were remembered."""
        if self.norms is not None and self.pending:
            self.norms.append(
                (step, layer.name, value)
                for step, lengths in self.pending
                for layer, value in zip(self.layers, lengths.tolist(), strict=True)
            )
        self.pending.clear()

    def write_epoch(self, *, loss: float, accuracy: float, test: ModelEvaluation, eval_seconds: float) -> None:
        """Write the rows of the epoch that the trainer has just completed; lr is that of its last batch."""
        epoch, metrics = self.trainer.epoch, self.trainer.metrics
        self.layer_table.append((epoch, *row) for row in (*parameter_rows(self.layers), *self._gradients()))
        seconds = round(metrics.seconds, 3), round(eval_seconds, 3)
        self.records.append([(epoch, metrics.lr, loss, accuracy, test.loss, test.accuracy, *seconds)])

    def median_seconds(self) -> tuple[float, float]:
        """Seconds for training and for evaluation in the median epoch, which a busy moment does not move."""
        with self.records.path.open(newline="") as file:
            rows = list(csv.DictReader(file))
        train, test = ([float(row[column]) for row in rows] for column in ("train_seconds", "eval_seconds"))
        return statistics.median(train), statistics.median(test)

    def _gradients(self) -> list[tuple[str, str, str, float]]:
        means = (self.trainer.metrics.gradients / self.trainer.metrics.batches).tolist()
        by_parameter = dict(zip(map(id, self.trainer.parameters.values()), means, strict=True))
        return [(layer.name, "grad_norm", "", by_parameter.get(id(layer.weight), 0.0)) for layer in self.layers]
