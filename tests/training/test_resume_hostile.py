"""`train --resume` with a checkpoint that is none: exit code 2 and one line, and never torch's advice."""

import os
import shutil
import sys

import numpy as np
import pytest
import torch
from torch import nn

import scs_eval.data.cifar10 as cifar10
from scs_eval.cli.main import main
from scs_eval.training.trainer import Trainer


class Trap:
    """Unpickling this would run a command."""

    def __reduce__(self):
        return (os.system, ("true",))


def tiny_images(data_dir=None, *, train):
    images = np.random.default_rng(0).integers(0, 256, (40, 3, 32, 32), dtype=np.uint8)
    return images, np.arange(40) % 10


def arguments(out) -> list[str]:
    numbers = ["--epochs", "2", "--batch-size", "20", "--device", "cpu"]
    return ["scs-eval", "train", "--model", "rohrer25k_conv", "--out", str(out), *numbers]


def stop(self, images, labels):
    raise RuntimeError("stopped")


@pytest.fixture(scope="module")
def stopped(tmp_path_factory):
    """The folder of a run that came no further than its first checkpoint."""
    out = tmp_path_factory.mktemp("runs") / "run"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cifar10, "read_cifar10", tiny_images)
        patch.setattr(Trainer, "train_step", stop)
        patch.setattr(sys, "argv", arguments(out))
        with pytest.raises(SystemExit) as exit_:
            main()
    assert exit_.value.code == 1
    assert (out / "checkpoint.pt").exists()
    return out


def spoil(path, kind: str) -> None:
    good = path.read_bytes()
    state = torch.load(path, weights_only=True)
    contents = {"empty": b"", "truncated": good[: len(good) // 2], "text": b"no checkpoint"}
    objects = {
        "malicious": {**state, "more": Trap()},
        "of weights": state["model"],
        "a list": [1, 2],
        "a module": nn.Linear(2, 2),
        "of another network": {**state, "model": {"a": torch.zeros(2)}},
        "of another optimizer": {**state, "optimizer": {}},
        "without an epoch": {**state, "epoch": None},
    }
    path.write_bytes(contents[kind]) if kind in contents else torch.save(objects[kind], path)


KINDS = ["empty", "truncated", "text", "malicious", "of weights", "a list", "a module"]
MISFITS = ["of another network", "of another optimizer", "without an epoch"]


@pytest.mark.parametrize("kind", [*KINDS, *MISFITS])
def test_a_checkpoint_that_is_none_is_refused(stopped, tmp_path, monkeypatch, capsys, kind: str) -> None:
    out = tmp_path / "run"
    shutil.copytree(stopped, out)
    spoil(out / "checkpoint.pt", kind)
    monkeypatch.setattr(cifar10, "read_cifar10", tiny_images)
    monkeypatch.setattr(sys, "argv", [*arguments(out), "--resume"])
    with pytest.raises(SystemExit) as exit_:
        main()
    lines = capsys.readouterr().err.splitlines()
    assert exit_.value.code == 2, lines
    assert len(lines) == 1
    assert lines[0].startswith("Error: ")
    assert "weights_only" not in lines[0]
