"""Numbers for trackers: TensorBoard by name, any other by a function of (step, numbers).

Training tells it of every epoch, a study of every finished piece.
"""

import csv
import os
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path

from scs_eval.errors import InputError
from scs_eval.training.loop import AfterEpoch
from scs_eval.training.metrics import ModelEvaluation

RECORDS = "records.csv"
TENSORBOARD = "tensorboard"
LOGS = (TENSORBOARD,)  # what --log takes
Track = Callable[[int, Mapping[str, float]], None]  # told the epoch and its numbers by the names of records.csv


def after_epoch_for(log: str | None, out: Path) -> AfterEpoch | None:
    """The callback for `train` that --log asks for; events go to `tensorboard` in the run's directory."""
    return None if log is None else tracked(tensorboard(out / TENSORBOARD), out)


def tracked(track: Track, out: Path) -> AfterEpoch:
    """A callback for `train` that tells `track` what records.csv in `out` says of the epoch; the main process alone.

    With W&B: `tracked(lambda epoch, numbers: wandb.log(dict(numbers), step=epoch), job.out)`.
    """

    def after_epoch(epoch: int, evaluation: ModelEvaluation) -> None:
        if os.environ.get("RANK", "0") == "0":
            track(epoch, last_record(out))

    return after_epoch


def last_record(out: Path) -> dict[str, float]:
    """The numbers of the last epoch that is recorded in a run's directory."""
    with (out / RECORDS).open(newline="") as file:
        *_, row = csv.DictReader(file)
    return {key: float(value) for key, value in row.items() if key != "epoch"}


def tensorboard(folder: Path) -> Track:
    """Write all numbers as scalars to a folder of events."""
    try:
        from torch.utils.tensorboard.writer import SummaryWriter
    except ImportError as error:
        raise InputError("--log tensorboard needs the package tensorboard; pip install tensorboard") from error

    @cache
    def opened() -> SummaryWriter:  # not before the run has its directory
        return SummaryWriter(str(folder))

    def track(epoch: int, numbers: Mapping[str, float]) -> None:
        writer = opened()
        for name, value in numbers.items():
            writer.add_scalar(name, value, epoch)
        writer.flush()

    return track
