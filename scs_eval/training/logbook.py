"""Fills the tables of a run from its trainer."""

import csv
import statistics
from pathlib import Path

from torch import Tensor

from scs_eval.training.evaluate import Evaluation
from scs_eval.training.layer_state import describe, find_layers, norms
from scs_eval.training.records import LAYERS, NORMS, RECORDS, Table
from scs_eval.training.trainer import Trainer


class Logbook:
    """`records.csv` per epoch, `layers.csv` per epoch and layer, and on request `norms.csv` per batch and layer.

    Epoch 0 of layers.csv and step 0 of norms.csv are the initial weights. A gradient norm is the mean over the
    batches of the epoch.
    """

    def __init__(self, directory: Path, trainer: Trainer, *, norms_per_batch: bool) -> None:
        self.trainer = trainer
        self.layers = find_layers(trainer.model)
        self.records = Table(directory / "records.csv", RECORDS)
        self.layer_table = Table(directory / "layers.csv", LAYERS)
        self.norms = Table(directory / "norms.csv", NORMS) if norms_per_batch else None
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
            self.layer_table.append((0, *row) for row in describe(self.layers))
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

    def write_epoch(self, *, loss: float, accuracy: float, test: Evaluation, eval_seconds: float) -> None:
        """Write the rows of the epoch that the trainer has just completed; lr is that of its last batch."""
        epoch, tally = self.trainer.epoch, self.trainer.tally
        self.layer_table.append((epoch, *row) for row in (*describe(self.layers), *self._gradients()))
        seconds = round(tally.seconds, 3), round(eval_seconds, 3)
        self.records.append([(epoch, tally.lr, loss, accuracy, test.loss, test.accuracy, *seconds)])

    def median_seconds(self) -> tuple[float, float]:
        """Seconds for training and for evaluation in the median epoch, which a busy moment does not move."""
        with self.records.path.open(newline="") as file:
            rows = list(csv.DictReader(file))
        train, test = ([float(row[column]) for row in rows] for column in ("train_seconds", "eval_seconds"))
        return statistics.median(train), statistics.median(test)

    def _gradients(self) -> list[tuple[str, str, str, float]]:
        means = (self.trainer.tally.gradients / self.trainer.tally.batches).tolist()
        by_parameter = dict(zip(map(id, self.trainer.parameters.values()), means, strict=True))
        return [(layer.name, "grad_norm", "", by_parameter.get(id(layer.weight), 0.0)) for layer in self.layers]
