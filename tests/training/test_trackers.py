"""Training's numbers in TensorBoard's events, read back by TensorBoard itself."""

import json
import re
import sys
from contextlib import nullcontext
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from scs_eval.training.trackers import after_epoch_for, last_record, tracked

DOCS = Path(__file__).parents[2] / "docs" / "training.md"
HEAD = "epoch,lr,train_loss,test_accuracy\n"


def test_every_number_of_every_epoch_is_an_event(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    assert after_epoch_for(None, tmp_path) is None
    after_epoch = after_epoch_for("tensorboard", tmp_path)
    rows = ["1,0.1,2.5,0.25\n", "2,0.05,1.5,0.5\n"]
    for epoch in (1, 2):
        (tmp_path / "records.csv").write_text(HEAD + "".join(rows[:epoch]))
        after_epoch(epoch, None)
    events = EventAccumulator(str(tmp_path / "tensorboard"))
    events.Reload()
    assert sorted(events.Tags()["scalars"]) == ["lr", "test_accuracy", "train_loss"]
    assert [(each.step, each.value) for each in events.Scalars("train_loss")] == [(1, 2.5), (2, 1.5)]


def test_only_the_main_process_tells(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "records.csv").write_text(HEAD + "1,0.1,2.5,0.25\n")
    told: list[int] = []
    after_epoch = tracked(lambda epoch, numbers: told.append(epoch), tmp_path)
    after_epoch(1, None)
    monkeypatch.setenv("RANK", "1")
    after_epoch(2, None)
    assert told == [1]
    assert last_record(tmp_path) == {"lr": 0.1, "train_loss": 2.5, "test_accuracy": 0.25}


def test_the_documented_lines_for_wandb_and_mlflow_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The snippet of docs/training.md as it stands there, with modules that note what they are told."""
    told: list[tuple[object, ...]] = []
    wandb, mlflow = ModuleType("wandb"), ModuleType("mlflow")
    wandb.init = lambda *, project, config: told.append(("init", json.dumps(config) != "{}"))
    wandb.log = lambda numbers, *, step: told.append(("wandb", step, numbers["train_loss"]))
    mlflow.start_run = lambda: nullcontext()
    mlflow.log_metrics = lambda numbers, *, step: told.append(("mlflow", step, numbers["train_loss"]))
    monkeypatch.setitem(sys.modules, "wandb", wandb)
    monkeypatch.setitem(sys.modules, "mlflow", mlflow)
    monkeypatch.chdir(tmp_path)

    def train(job: Any, *, after_epoch: Any) -> None:  # as the real one calls it, without the work
        job.out.mkdir(parents=True, exist_ok=True)
        (job.out / "records.csv").write_text(HEAD + "1,0.1,2.5,0.25\n")
        after_epoch(1, None)

    monkeypatch.setattr("scs_eval.training.run.train", train)
    (snippet,) = re.findall(r"```python\n(.*?import wandb.*?)```", DOCS.read_text(encoding="utf-8"), re.DOTALL)
    exec(snippet, {})
    assert told == [("init", True), ("wandb", 1, 2.5), ("mlflow", 1, 2.5)]
