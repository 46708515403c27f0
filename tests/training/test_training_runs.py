"""Whole training runs on tiny data: what they write, and that nothing is lost when they are cut off."""

import csv
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from image_folders import training_folder
from safetensors import safe_open
from safetensors.torch import load_file
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from torch import nn

import scs_eval.data.cifar10 as cifar10
from scs_eval.cli.main import cli
from scs_eval.data import load_data
from scs_eval.errors import InputError
from scs_eval.images import indices_digest
from scs_eval.models.layers import SCS2d
from scs_eval.models.zoo import registry
from scs_eval.training.folder import FolderSource, repeated_order
from scs_eval.training.job import plan_job
from scs_eval.training.metrics import DivergedError
from scs_eval.training.processes import World
from scs_eval.training.recipe import Recipe
from scs_eval.training.run import ClusterTask, train, train_all
from scs_eval.training.sources import training_images
from scs_eval.training.trainer import Trainer

STEPS = 5  # batches of 8 from 40 images


class Blowing(nn.Module):
    """The identity, until its gradient becomes infinite in the eighth backward pass."""

    passes = 0

    def forward(self, x):
        return x.clone() if not x.requires_grad else self._watched(x)

    def _watched(self, x):
        y = x.clone()
        y.register_hook(self._spoil)
        return y

    def _spoil(self, gradient):
        self.passes += 1
        return gradient * float("inf") if self.passes == 8 else gradient


def tiny_scs(num_classes):
    return nn.Sequential(SCS2d(3, 4, 5, stride=4), nn.Flatten(), nn.Linear(4 * 49, num_classes))


def tiny_blowing(num_classes):
    first, second = nn.Conv2d(3, 4, 5, stride=4), nn.Conv2d(4, 4, 1)
    return nn.Sequential(first, nn.ReLU(), second, Blowing(), nn.Flatten(), nn.Linear(4 * 49, num_classes))


def tiny_broken(num_classes):
    raise RuntimeError("this network cannot be built")


def tiny_images(data_dir=None, *, train):
    rng = np.random.default_rng(int(train))
    count = 43 if train else 30
    images = rng.integers(0, 256, (count, 3, 32, 32), dtype=np.uint8)
    return images, (images[:, 0].mean((1, 2)) * 7 % 10).astype(np.int64)


def install(read=tiny_images):
    """Tiny networks and images for this process; also called by the scripts that tests run."""
    torch.set_num_threads(1)
    cifar10.read_cifar10 = read
    for builder in (tiny_scs, tiny_blowing, tiny_broken):
        if builder.__name__ not in registry.list_models():
            registry.register_model(builder)


SCRIPT = f"""
import os, sys, time
sys.path[:0] = [{str(Path(__file__).parent)!r}, {str(Path(__file__).parents[1] / "helpers")!r}]
import test_training_runs
from scs_eval.training.trainer import Trainer
test_training_runs.install()
step = Trainer.train_step
def slow_step(self, images, labels):
    step(self, images, labels)
    time.sleep(float(os.environ.get("STEP_SECONDS", "0")))
Trainer.train_step = slow_step
from scs_eval.cli.main import main
main()
"""


@pytest.fixture(scope="module", autouse=True)
def _images_as_before():
    """Before `whole`, which installs others for the module."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cifar10, "read_cifar10", cifar10.read_cifar10)  # restores it afterwards
        yield


@pytest.fixture(autouse=True)
def _tiny():
    install()
    original = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background ignores it
    yield
    signal.signal(signal.SIGINT, original)


def options(out, *more):
    return ["train", "--model", "tiny_scs", "--out", str(out), "--epochs", "4", "--batch-size", "8", *more]


def run(arguments):
    return CliRunner().invoke(cli, arguments, catch_exceptions=False)


def job(out, model="tiny_scs", resume=False, settings=None, **overrides):
    numbers = {"epochs": 4, "batch_size": 8, **overrides}
    return plan_job(model=model, out=out, recipe_name=None, settings=settings or {}, overrides=numbers, resume=resume)


def rows(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def without_seconds(path):
    return [{k: v for k, v in row.items() if not k.endswith("seconds")} for row in rows(path)]


def assert_same_run(one, other):
    """The same weights to the last bit and the same tables, but for the seconds."""
    ours, theirs = (load_file(next(directory.glob("*.safetensors"))) for directory in (one, other))
    assert ours.keys() == theirs.keys()
    for name, value in ours.items():
        assert torch.equal(value, theirs[name]), name
    assert without_seconds(one / "records.csv") == without_seconds(other / "records.csv")
    for name in ("layers.csv", "norms.csv"):
        if (one / name).exists():
            assert (one / name).read_text() == (other / name).read_text(), name


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A run that nothing interrupted."""
    install()
    out = tmp_path_factory.mktemp("whole")
    done = run(options(out / "run", "--norms-per-batch"))
    assert done.exit_code == 0, done.output
    return out / "run", done


# --- what a run writes


def test_a_run_writes_weights_tables_and_how_it_was_made(whole):
    out, done = whole
    assert sorted(path.name for path in out.iterdir()) == [
        "layers.csv",
        "norms.csv",
        "records.csv",
        "run.json",
        "tiny_scs.safetensors",
    ]
    assert done.output.splitlines()[-1] == str(out / "tiny_scs.safetensors")
    about = json.loads((out / "run.json").read_text())
    assert (about["model"], about["epochs"], about["seed"], about["finished"]) == ("tiny_scs", 4, 0, True)
    assert about["recipe"]["batch_size"] == 8
    assert about["versions"]["torch"] == torch.__version__
    with safe_open(out / "tiny_scs.safetensors", "pt") as file:
        metadata = file.metadata()
    assert metadata["name"] == "tiny_scs"
    assert metadata["num_classes"] == "10"
    assert json.loads(metadata["recipe"]) == about["recipe"]
    assert int(metadata["test_correct"]) / int(metadata["test_images"]) == float(metadata["test_accuracy"])
    assert float(metadata["train_seconds_per_epoch"]) > 0


def test_a_run_writes_events_for_tensorboard(whole, tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    done = run(options(tmp_path / "run", "--log", "tensorboard"))
    assert done.exit_code == 0, done.output
    events = EventAccumulator(str(tmp_path / "run" / "tensorboard"))
    events.Reload()
    losses = [float(row["test_loss"]) for row in rows(tmp_path / "run" / "records.csv")]
    assert [each.value for each in events.Scalars("test_loss")] == pytest.approx(losses, rel=1e-6)  # float32 events


def test_the_records_agree_with_the_weights(whole):
    out, _ = whole
    records = rows(out / "records.csv")
    assert list(records[0]) == [
        *("epoch", "lr", "train_loss", "train_accuracy", "test_loss", "test_accuracy"),
        *("train_seconds", "eval_seconds"),
    ]
    assert [row["epoch"] for row in records] == ["1", "2", "3", "4"]
    model = tiny_scs(10)
    model.load_state_dict(load_file(out / "tiny_scs.safetensors"))
    images, labels = tiny_images(train=False)
    logits = model.eval()(torch.from_numpy(images) / 255)
    loss = nn.functional.cross_entropy(logits, torch.from_numpy(labels)).item()
    assert float(records[-1]["test_loss"]) == pytest.approx(loss, rel=1e-5)  # float32 sums in another order
    accuracy = (logits.argmax(1).numpy() == labels).mean()
    assert float(records[-1]["test_accuracy"]) == pytest.approx(accuracy)

    found = {
        (row["epoch"], row["layer"], row["quantity"], row["index"]): float(row["value"])
        for row in rows(out / "layers.csv")
    }
    assert list(rows(out / "layers.csv")[0]) == ["epoch", "layer", "quantity", "index", "value"]
    for k, p in enumerate(model[0].p.flatten().tolist()):
        assert found["4", "0", "p", str(k)] == pytest.approx(p)
    assert found["4", "0", "q", ""] == pytest.approx(model[0].log_q.exp().item())
    assert found["4", "2", "weight_norm", ""] == pytest.approx(model[2].weight.norm().item())
    assert found["1", "2", "grad_norm", ""] > 0
    assert ("0", "2", "grad_norm", "") not in found
    norms = rows(out / "norms.csv")
    assert [row["step"] for row in norms if row["layer"] == "2"] == [str(k) for k in range(4 * STEPS + 1)]
    assert float(norms[-1]["weight_norm"]) == pytest.approx(model[2].weight.norm().item())
    assert float(norms[0]["weight_norm"]) == pytest.approx(found["0", "0", "weight_norm", ""])


def test_the_training_numbers_are_means_over_the_batches(tmp_path):
    seen = []

    class Recorder(Trainer):
        def _observe(self, loss, logits, targets):
            super()._observe(loss, logits, targets)
            norm = self.model[2].weight.grad.norm().item()
            seen.append((loss.item(), (logits.argmax(1) == targets).float().mean().item(), norm))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("scs_eval.training.run.Trainer", Recorder)
        train(job(tmp_path / "run", epochs=1))
    loss, accuracy, norm = np.mean(seen, axis=0)
    record = rows(tmp_path / "run" / "records.csv")[0]
    assert len(seen) == STEPS
    assert float(record["train_loss"]) == pytest.approx(loss, rel=1e-5)
    assert float(record["train_accuracy"]) == pytest.approx(accuracy)
    found = [
        row for row in rows(tmp_path / "run" / "layers.csv") if (row["layer"], row["quantity"]) == ("2", "grad_norm")
    ]
    assert float(found[0]["value"]) == pytest.approx(norm, rel=1e-5)


def test_evaluation_does_not_count_as_training_time(tmp_path, monkeypatch):
    from scs_eval.training import loop

    def slow(*arguments, **options):
        time.sleep(0.6)
        return plain_evaluate(*arguments, **options)

    plain_evaluate = loop.evaluate
    monkeypatch.setattr(loop, "evaluate", slow)
    train(job(tmp_path / "run", epochs=3, settings={"checkpoint_every": 2}))
    for row in rows(tmp_path / "run" / "records.csv"):
        assert 0 < float(row["train_seconds"]) < 0.6 <= float(row["eval_seconds"])


def test_one_line_per_epoch_where_there_is_no_terminal(whole):
    _, done = whole
    lines = done.output.splitlines()
    assert len(lines) == 5
    assert lines[3].startswith("tiny_scs epoch 4/4  train ")


def test_other_seeds_and_recipes_give_other_weights(whole, tmp_path):
    expected = load_file(next(whole[0].glob("*.safetensors")))["2.weight"]
    for name, more in {"same": [], "seed": ["--seed", "1"], "flip": ["--no-flip"], "mixup": ["--mixup", "1"]}.items():
        assert run(options(tmp_path / name, *more)).exit_code == 0
        found = load_file(next((tmp_path / name).glob("*.safetensors")))["2.weight"]
        assert torch.equal(found, expected) == (name == "same"), name


# --- nothing is lost


def start(out, *more, step_seconds=0.2):
    """A run in a process of its own, slow enough to be cut off."""
    environment = {**os.environ, "STEP_SECONDS": str(step_seconds)}
    arguments = options(out, "--norms-per-batch", "--checkpoint-every", "2", *more)
    return subprocess.Popen(
        [sys.executable, "-c", SCRIPT, *arguments],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def wait_for(condition, process, seconds=180):
    end = time.monotonic() + seconds
    while not condition():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < end
        time.sleep(0.01)


@pytest.mark.parametrize("number", [signal.SIGKILL, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)])
def test_a_run_that_was_cut_off_and_resumed_is_the_uninterrupted_one(whole, tmp_path, number):
    out = tmp_path / "run"
    process = start(out)
    records = out / "records.csv"
    wait_for(lambda: records.exists() and records.read_text().count("\n") >= 3, process)
    time.sleep(0.3)  # into the third epoch, which takes a second
    process.send_signal(number)
    _, errors = process.communicate(timeout=60)
    assert not (out / "tiny_scs.safetensors").exists()
    if number == signal.SIGTERM:
        assert process.returncode == 128 + number
        assert errors == f"Stopped; go on with: scs-eval train --resume --out {out}\n"
        assert torch.load(out / "checkpoint.pt", weights_only=True)["epoch"] >= 3
    else:
        assert process.returncode == -number
    with records.open("a") as file:
        file.write("3,0.00")  # half a row, as a full disk would leave it
    done = run(["train", "--resume", "--out", str(out)])
    assert done.exit_code == 0, done.output
    assert_same_run(out, whole[0])


def test_a_signal_in_any_epoch_loses_nothing(whole, tmp_path, monkeypatch):
    step = Trainer.train_step

    def interrupted(self, images, labels):
        step(self, images, labels)
        if self.step in (3, STEPS, 2 * STEPS + 1):  # in the middle, at the end and at the beginning of an epoch
            os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(Trainer, "train_step", interrupted)
    codes = [run(options(tmp_path / "run", "--norms-per-batch", "--resume")).exit_code for _ in range(4)]
    assert codes == [130, 130, 130, 0]
    assert_same_run(tmp_path / "run", whole[0])


@pytest.mark.parametrize(
    "numbers",
    [
        ("--ema-decay", "0.9", "--ema-every", "3", "--mixup", "0.5", "--schedule", "cosine", "--agc", "0.1"),
        ("--recipe", "fast", "--exponent-lr", "3"),
        ("--pgd-eps", "0.03", "--schedule", "constant"),
    ],
)
def test_other_recipes_resume_as_exactly(tmp_path, monkeypatch, numbers):
    assert run(options(tmp_path / "whole", *numbers)).exit_code == 0
    step = Trainer.train_step

    def interrupted(self, images, labels):
        step(self, images, labels)
        if self.step == 7:
            os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(Trainer, "train_step", interrupted)
    assert [run(options(tmp_path / "cut", "--resume", *numbers)).exit_code for _ in range(2)] == [130, 0]
    assert_same_run(tmp_path / "cut", tmp_path / "whole")


def test_a_run_killed_before_its_weights_were_written_finishes(whole, tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr("scs_eval.training.loop.write_weights", lambda *_: (_ for _ in ()).throw(OSError("killed")))
        with pytest.raises(OSError, match="killed"):
            run(options(tmp_path / "run", "--norms-per-batch"))
    assert run(["train", "--resume", "--out", str(tmp_path / "run")]).exit_code == 0
    assert_same_run(tmp_path / "run", whole[0])


def test_a_gradient_that_blows_up_stops_the_run_and_is_named(tmp_path):
    # The eighth pass is batch 3 of epoch 2. The gradient is infinite below `Blowing`: in layers 2 and 0, not in 5.
    with pytest.raises(DivergedError, match=r"epoch 2, batch 3: .* of layer 2 \(bias\) diverged first") as error:
        train(job(tmp_path / "run", model="tiny_blowing"))
    assert f"{tmp_path / 'run' / 'checkpoint.pt'} (epoch 2, batch 0)" in str(error.value)
    assert json.loads((tmp_path / "run" / "run.json").read_text())["diverged"].startswith("in epoch 2, batch 3: ")
    state = torch.load(tmp_path / "run" / "checkpoint.pt", weights_only=True)
    assert state["epoch"] == 2
    assert all(value.isfinite().all() for value in state["model"].values())


def test_a_signal_to_the_readers_of_a_folder_loses_nothing(folder, tmp_path):
    """A scheduler signals the whole group of processes, also those that read images."""
    out = tmp_path / "run"
    sizes = ("--image-size", "32", "--eval-resize", "36", "--eval-size", "32", "--workers", "2")
    arguments = options(out, "--data", str(folder), "--epochs", "40", *sizes)
    process = subprocess.Popen(
        [sys.executable, "-c", SCRIPT, *arguments],
        env={**os.environ, "STEP_SECONDS": "0.3"}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        start_new_session=True,
    )  # fmt: skip
    wait_for(lambda: (out / "records.csv").exists() and (out / "records.csv").read_text().count("\n") >= 2, process)
    time.sleep(0.5)
    os.killpg(process.pid, signal.SIGTERM)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 143
    assert errors.endswith(f"Stopped; go on with: scs-eval train --resume --out {out}\n")
    state = torch.load(out / "checkpoint.pt", weights_only=True)
    assert (state["epoch"], state["batch"]) >= (2, 1)


def test_a_run_killed_while_it_evaluates_keeps_its_epoch(whole, tmp_path, monkeypatch):
    def killed(*_arguments, **_options):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("scs_eval.training.loop.evaluate", killed)
        with pytest.raises(KeyboardInterrupt):
            train(job(tmp_path / "run", settings={"norms_per_batch": True}))
    state = torch.load(tmp_path / "run" / "checkpoint.pt", weights_only=True)
    assert (state["epoch"], state["batch"]) == (1, STEPS)
    assert run(["train", "--resume", "--out", str(tmp_path / "run")]).exit_code == 0
    assert_same_run(tmp_path / "run", whole[0])


# --- what is refused before the first epoch


def test_only_one_process_trains_in_a_directory(tmp_path):
    out = tmp_path / "run"
    process = start(out)
    wait_for(lambda: (out / "records.csv").exists(), process)
    before = (out / "run.json").read_bytes()
    for more in ("--resume", "--overwrite"):
        with pytest.raises(InputError, match="another process is training in"):
            run(options(out, "--norms-per-batch", more))
    assert (out / "run.json").read_bytes() == before
    process.kill()
    process.communicate()
    assert run(options(out, "--norms-per-batch", "--resume")).exit_code == 0  # a dead process holds nothing


def test_a_request_that_cannot_be_met_leaves_the_old_run_alone(whole, folder, tmp_path):
    out = tmp_path / "run"
    shutil.copytree(whole[0], out)
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    weights = out / "tiny_scs.safetensors"
    for more, message in (
        (["--data", "cifar11"], "expected cifar10 or a folder"),
        (["--init-from", str(tmp_path / "none.safetensors")], "no such file"),
        (["--init-from", str(weights)], "lies in --out"),
        (["--data", str(folder)], "tiny_scs cannot take 224×224 pixels; set --image-size"),
        (["--seed", "-1"], "seed: expected 0 or more"),
    ):
        with pytest.raises(InputError, match=message):
            run(options(out, "--overwrite", *more))
        assert {path.name: path.read_bytes() for path in out.iterdir()} == before


def test_a_finished_run_is_not_taken_for_another(whole, tmp_path):
    out = tmp_path / "tiny_scs"
    shutil.copytree(whole[0], out)
    with pytest.raises(InputError, match="begun with epochs=4, not 50"):
        run(options(out, "--resume", "--epochs", "50"))
    with pytest.raises(InputError, match="begun with model=tiny_scs, not tiny_blowing"):
        run(["train", "--model", "tiny_blowing", "--resume", "--out", str(out)])
    command = ["zoo", "train", "tiny_scs", "--out", str(tmp_path), "--batch-size", "8", "--epochs"]
    assert run([*command, "4"]).output == "1 models match, 1 of them are finished.\n"
    assert "tiny_scs was finished with epochs=4, not 50; another --out trains it so" in run([*command, "50"]).output
    (out / "tiny_scs.safetensors").rename(tmp_path / "moved")
    with pytest.raises(InputError, match="a finished run but not its weights"):
        run(options(out, "--resume"))
    assert len(rows(out / "records.csv")) == 4


@pytest.mark.parametrize("name", ["tiny_scs.safetensors", "records.csv", "layers.csv", "checkpoint.pt", "run.json"])
@pytest.mark.parametrize("more", [[], ["--overwrite"], ["--resume"]], ids=str)
def test_a_strangers_file_is_neither_a_run_nor_overwritten(tmp_path, name, more):
    """Only what the run's own manifest names is ours."""
    (tmp_path / name).write_text('{"files": "of somebody else"}')
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(InputError, match=f"holds {name}, which no run wrote there|holds no run to resume"):
        run(options(tmp_path, *more))
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_other_files_in_the_folder_stay(whole, tmp_path):
    out = tmp_path / "run"
    shutil.copytree(whole[0], out)
    (out / "base.safetensors").write_text("mine")
    (out / "notes.txt").write_text("mine")
    assert run(options(out, "--overwrite")).exit_code == 0
    assert (out / "base.safetensors").read_text() == (out / "notes.txt").read_text() == "mine"


def test_a_run_of_0_1_is_known_without_a_manifest(whole, tmp_path):
    out = tmp_path / "run"
    shutil.copytree(whole[0], out)
    about = json.loads((out / "run.json").read_text())
    assert about.pop("files") == ["checkpoint.pt", "run.json", "records.csv", "layers.csv", "norms.csv",
                                  "tiny_scs.safetensors"]  # fmt: skip
    (out / "run.json").write_text(json.dumps(about))
    with pytest.raises(InputError, match="holds a finished run"):
        run(options(out))
    assert run(options(out, "--overwrite")).exit_code == 0


def test_an_occupied_directory_is_not_overwritten(whole, tmp_path):
    out = tmp_path / "run"
    shutil.copytree(whole[0], out)
    before = (out / "tiny_scs.safetensors").read_bytes()
    with pytest.raises(InputError, match="holds a finished run"):
        run(options(out))
    done = run(options(out, "--resume"))
    assert (done.exit_code, done.output) == (0, f"{out / 'tiny_scs.safetensors'}\n")
    assert (out / "tiny_scs.safetensors").read_bytes() == before
    (out / "tiny_scs.safetensors").unlink()
    (out / "checkpoint.pt").touch()  # as if it had been cut off
    with pytest.raises(InputError, match="unfinished run; --resume goes on"):
        run(options(out))
    with pytest.raises(InputError, match=r"begun with lr=0\.01, not 0\.5"):
        run(options(out, "--resume", "--lr", "0.5"))
    with pytest.raises(InputError, match="begun with epochs=4, not 100"):
        run(["train", "--resume", "--out", str(out), "--recipe", "bcos-cifar", "--batch-size", "8"])
    with pytest.raises(InputError, match="begun with seed=0, not 7"):
        run(["train", "--resume", "--out", str(out), "--seed", "7"])
    (out / "mine.txt").touch()
    assert run(options(out, "--overwrite", "--seed", "7", "--epochs", "1")).exit_code == 0
    assert (out / "mine.txt").exists()
    assert len(rows(out / "records.csv")) == 1
    assert not (out / "norms.csv").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["train"], "which model"),
        (["train", "--resume", "--out", "nowhere"], "no run to resume"),
        (["train", "--model", "rohrer100k_scz"], "did you mean rohrer100k_scs"),
        (["train", "--model", "tiny_scs", "--amp"], "--amp needs a CUDA device, this run is on cpu"),
        (["train", "--model", "tiny_scs", "--data", "cifar11"], "expected cifar10 or a folder"),
        (["train", "--model", "tiny_scs", "--resume", "--overwrite"], "contradict"),
        (["zoo", "train", "nothing*"], "no model matches"),
        (["zoo", "train", "tiny_scs", "--cluster-option", "timeout_min=3"], "needs --cluster"),
        (["zoo", "train", "tiny_scs", "--cluster", "local", "--cluster-option", "gpus"], "expected KEY=VALUE"),
    ],
)
def test_wrong_requests_are_refused(tmp_path, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=message):
        run(arguments)


def test_a_full_disk_or_an_unwritable_directory_is_found_before_the_first_epoch(tmp_path, monkeypatch):
    monkeypatch.setattr(Trainer, "train_step", lambda *_: pytest.fail("trained"))
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="cannot be written"):
        run(options(tmp_path / "file" / "run"))
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=10_000))
    with pytest.raises(InputError, match="MB free"):
        run(options(tmp_path / "run"))


# --- several processes


def test_two_processes_train_what_one_does_at_the_same_global_batch(tmp_path):
    """Also after a signal to torchrun, which hands it to both, and a resumption."""
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    # Plain SGD: Adam divides by the root of the gradient's square and would magnify rounding without bound.
    more = ("--optimizer", "sgd", "--lr", "0.05", "--device", "cpu")
    launch = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    command = [sys.executable, *launch, str(script), *options(tmp_path / "two", *more)]
    slow = {**os.environ, "OMP_NUM_THREADS": "1", "STEP_SECONDS": "0.2"}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    cut = subprocess.Popen(command, env=slow, **pipes)
    records = tmp_path / "two" / "records.csv"
    wait_for(lambda: records.exists() and records.read_text().count("\n") >= 2, cut)
    time.sleep(0.3)  # into the second epoch, which takes a second
    cut.terminate()
    said, errors = cut.communicate(timeout=60)
    assert f"Stopped; go on with: scs-eval train --resume --out {tmp_path / 'two'}" in errors
    assert 2 <= torch.load(tmp_path / "two" / "checkpoint.pt", weights_only=True)["epoch"] < 4
    done = subprocess.run([*command, "--resume"], env={**slow, "STEP_SECONDS": "0"}, timeout=120, check=False, **pipes)
    assert done.returncode == 0, done.stderr
    assert len((said + done.stdout).splitlines()) == 5  # only one process talks
    assert run(options(tmp_path / "one", *more)).exit_code == 0
    two, one = (load_file(tmp_path / name / "tiny_scs.safetensors") for name in ("two", "one"))
    for name, value in one.items():
        # The mean over a batch is summed in another order, a relative 1e-7 in each of 20 steps.
        torch.testing.assert_close(two[name], value, rtol=1e-4, atol=1e-5)
    for row, expected in zip(*(without_seconds(tmp_path / n / "records.csv") for n in ("two", "one")), strict=True):
        assert [float(x) for x in row.values()] == pytest.approx([float(x) for x in expected.values()], rel=1e-4)
    assert json.loads((tmp_path / "two" / "run.json").read_text())["processes"] == 2


# --- folders


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return training_folder(tmp_path_factory.mktemp("folder"), train=12, val=3, size=(40, 48))


FOLDER = Recipe(batch_size=8, image_size=32, eval_resize=36, eval_size=32, augment="trivial", erasing=0.5, repeats=2)


def folder_source(root, *, workers=0, rank=0, size=1, recipe=FOLDER, choose=np.arange):
    world = World(rank=rank, size=size, device=torch.device("cpu"))
    return FolderSource(root, recipe=recipe, seed=0, workers=workers, world=world, choose=choose)


def test_a_folder_gives_the_same_batches_whoever_loads_them(folder):
    source = folder_source(folder)
    whole = list(source.train_batches(1, start=0))
    assert (source.num_classes, source.steps, len(whole)) == (2, 3, 3)
    assert whole[0][0].shape == (8, 3, 32, 32)
    assert min(x.min() for x, _ in whole) >= 0
    assert max(x.max() for x, _ in whole) <= 1
    resumed = list(folder_source(folder, workers=1).train_batches(1, start=2))
    assert torch.equal(resumed[0][0], whole[2][0])
    second = next(folder_source(folder, rank=1, size=2).train_batches(1, start=0))
    assert torch.equal(second[0], whole[0][0][1::2])
    assert not torch.equal(next(source.train_batches(2, start=0))[0], whole[0][0])
    assert sorted(torch.cat([labels for _, labels in source.test_batches()]).tolist()) == [0, 0, 0, 1, 1, 1]


def test_a_folder_counts_its_training_images_as_the_analyses_do(folder):
    """So what is held out here can be asked for there, by the same numbers."""
    source = folder_source(folder, choose=lambda count: np.arange(count)[1::2])
    files = load_data(folder / "train", size=32).images.reader
    assert [path for path, _ in source.train.samples] == [files.name(index) for index in range(24)][1::2]
    assert source.steps == 1


def test_repeated_augmentation_shows_fewer_images_more_often(folder):
    order = repeated_order(10, repeats=3, stream=torch.Generator().manual_seed(0)).tolist()
    assert len(order) == 10
    assert order[0] == order[1] == order[2] != order[3]
    assert len(set(order)) == 4
    images, _ = next(folder_source(folder).train_batches(1, start=0))
    assert not torch.equal(images[0], images[1])  # two augmentations of one image


def test_a_folder_trains_a_network_for_its_classes(folder, tmp_path):
    sizes = ("--image-size", "32", "--eval-resize", "36", "--eval-size", "32", "--workers", "0")
    done = run(options(tmp_path / "run", "--data", str(folder), *sizes))
    assert done.exit_code == 0
    assert load_file(tmp_path / "run" / "tiny_scs.safetensors")["2.weight"].shape == (2, 196)
    (tmp_path / "half" / "train" / "cat").mkdir(parents=True)
    with pytest.raises(InputError, match="expected class folders with images"):
        run(options(tmp_path / "other", "--data", str(tmp_path / "half")))


# --- weights of a twin


def test_a_run_begins_with_inherited_weights(whole, tmp_path):
    weights = whole[0] / "tiny_scs.safetensors"
    done = run(options(tmp_path / "run", "--norms-per-batch", "--init-from", str(weights)))
    assert done.exit_code == 0
    assert done.output.startswith(f"carried 5 tensors from {weights}")
    first = rows(tmp_path / "run" / "norms.csv")[0]
    assert float(first["weight_norm"]) == pytest.approx(load_file(weights)["0.weight"].norm().item())


# --- many models


def test_the_zoo_skips_what_is_finished_continues_and_outlives_a_failure(tmp_path):
    command = ["zoo", "train", "tiny_*", "--out", str(tmp_path), "--epochs", "1", "--batch-size", "8"]
    done = run(command)
    assert done.exit_code == 1
    assert "tiny_broken: failed: this network cannot be built" in done.output
    assert {path.parent.name for path in tmp_path.rglob("*.safetensors")} == {"tiny_scs", "tiny_blowing"}
    stamp = (tmp_path / "tiny_scs" / "tiny_scs.safetensors").stat().st_mtime_ns
    shutil.rmtree(tmp_path / "tiny_blowing")
    again = run(["zoo", "train", "tiny_scs,tiny_blow*", *command[3:]])
    assert again.exit_code == 0
    assert again.output.startswith("2 models match, 1 of them are finished.")
    assert (tmp_path / "tiny_scs" / "tiny_scs.safetensors").stat().st_mtime_ns == stamp
    assert (tmp_path / "tiny_blowing" / "tiny_blowing.safetensors").exists()


def test_each_seed_is_a_run_of_its_own(tmp_path):
    command = ["zoo", "train", "tiny_scs", "--out", str(tmp_path), "--epochs", "1", "--batch-size", "8"]
    logged = run([*command, "--seeds", "0:2", "--log", "tensorboard"])
    assert logged.output.startswith("2 models match, 0 of them are finished.")
    for name in ("tiny_scs", "tiny_scs@1"):
        events = EventAccumulator(str(tmp_path / name / "tensorboard")).Reload()
        (event,) = events.Scalars("train_loss")
        assert event.value == pytest.approx(float(rows(tmp_path / name / "records.csv")[0]["train_loss"]))
    assert run([*command, "--seeds", "0,3"]).output.startswith("2 models match, 1 of them are finished.")
    files = {path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*.safetensors")}
    assert files == {f"{name}/{name}.safetensors" for name in ("tiny_scs", "tiny_scs@1", "tiny_scs@3")}
    assert json.loads((tmp_path / "tiny_scs@3" / "run.json").read_text())["seed"] == 3
    with safe_open(tmp_path / "tiny_scs@3" / "tiny_scs@3.safetensors", framework="pt") as file:
        assert (file.metadata()["name"], file.metadata()["seed"]) == ("tiny_scs", "3")
    assert plan_job(
        model="tiny_scs@3", out=None, recipe_name=None, settings={}, overrides={}, resume=False
    ).out == Path("results/train/tiny_scs@3")
    with pytest.raises(InputError, match="give one of them"):
        run(["train", "--model", "tiny_scs@3", "--seed", "4", "--out", str(tmp_path / "x")])
    with pytest.raises(InputError, match="contradict"):
        run([*command, "--seeds", "0:2", "--seed", "1"])
    assert "expected LO:HI" in run([*command, "--seeds", "5:2"]).output


def test_a_hardened_network_learns_from_attacked_images_unless_told_otherwise(tmp_path):
    assert job(tmp_path, "rohrer100k_scs_hardened").recipe.pgd_eps == pytest.approx(4 / 255, rel=0.002)
    assert job(tmp_path, "rohrer100k_scs").recipe.pgd_eps == 0
    assert job(tmp_path, "rohrer100k_scs_hardened", pgd_eps=0.1).recipe.pgd_eps == 0.1


def test_a_run_with_held_out_images_says_so(tmp_path):
    done = run(options(tmp_path / "run", "--validation", "16", "--train-images", "16", "--epochs", "1"))
    assert done.exit_code == 0
    about = json.loads((tmp_path / "run" / "run.json").read_text())
    assert (about["validation"], about["train_images"], about["test_images"]) == (16, 16, 16)
    assert len(rows(tmp_path / "run" / "records.csv")) == 1


def test_images_that_were_held_out_are_not_trained_on(tmp_path):
    """A run without images 0 … 9 is that of a training set that never had them, and goes on as it was begun."""
    held = tmp_path / "held.csv"
    held.write_text("index,class\n" + "".join(f"{index},cat\n" for index in range(10)))
    out = tmp_path / "run"
    assert run(options(out, "--exclude", str(held), "--epochs", "1")).exit_code == 0
    seen = training_images(plan_job(model=None, out=out, recipe_name=None, settings={}, overrides={}, resume=True), 43)
    assert seen.tolist() == list(range(10, 43))
    install(lambda data_dir=None, *, train: [part[10 * train :] for part in tiny_images(train=train)])
    try:
        assert run(options(tmp_path / "other", "--epochs", "1")).exit_code == 0
    finally:
        install()
    trained, expected = (load_file(folder / "tiny_scs.safetensors") for folder in (out, tmp_path / "other"))
    assert all(torch.equal(trained[name], value) for name, value in expected.items())
    with safe_open(out / "tiny_scs.safetensors", "pt") as file:
        assert file.metadata()["exclude"] == indices_digest(range(10))
    with pytest.raises(InputError, match="begun with exclude=10 images, not 1 images"):
        run(options(out, "--resume", "--epochs", "1", "--exclude", "3"))
    with pytest.raises(InputError, match="no image with index 43 in cifar10"):
        run(options(tmp_path / "beyond", "--indices", "3,43"))


def test_a_run_of_an_older_version_can_be_continued(whole, tmp_path):
    recorded = json.loads((whole[0] / "run.json").read_text())
    for name in ("kernel_lr", "label_smoothing", "alternating_flip"):
        del recorded["recipe"][name]
    del recorded["validation"]
    assert job(tmp_path).difference(recorded) == ""
    assert "label_smoothing=0.0, not 0.1" in job(tmp_path, label_smoothing=0.1).difference(recorded)


def test_a_converted_file_is_trained_and_loads_again(tmp_path):
    from scs_eval.models.conversion.convert import conversion
    from scs_eval.models.conversion.files import save_converted
    from scs_eval.models.conversion.target import ConversionSpec
    from scs_eval.models.loading.load import load_model, open_source

    origin = open_source("rohrer25k_conv", weights="none")
    spec = ConversionSpec(layer="scs")
    save_converted(conversion(origin.model, spec).model, tmp_path / "mine.safetensors", origin=origin, spec=spec)
    before = load_model(tmp_path / "mine.safetensors").state_dict()
    arguments = ["train", "--model", str(tmp_path / "mine.safetensors"), "--out", str(tmp_path / "run")]
    done = run([*arguments, "--epochs", "1", "--batch-size", "8"])
    assert done.exit_code == 0
    assert Path(done.output.splitlines()[-1]) == tmp_path / "run" / "mine.safetensors"
    after = load_model(tmp_path / "run" / "mine.safetensors").state_dict()
    assert before.keys() == after.keys()
    assert any(not torch.equal(before[name], after[name]) for name in before)


@pytest.mark.parametrize("name", ["torchvision:squeezenet1_1", "timm:mobilenetv3_small_050"])
def test_networks_of_packages_are_trained_and_load_again(tmp_path, name):
    from scs_eval.models.loading.load import open_source

    pytest.importorskip(name.partition(":")[0])
    arguments = ["train", "--model", name, "--out", str(tmp_path / "run")]
    done = run([*arguments, "--epochs", "1", "--batch-size", "8", "--train-images", "8", "--validation", "8"])
    assert done.exit_code == 0
    loaded = open_source(tmp_path / "run" / f"{name.replace(':', '_')}.safetensors")
    assert loaded.architecture == name
    assert loaded.model(torch.rand(1, 3, 224, 224)).shape == (1, 10)


def test_a_file_with_other_classes_is_refused(tmp_path):
    from safetensors.torch import save_file

    weights = registry.create_model("rohrer25k_conv", num_classes=7).state_dict()
    save_file(weights, tmp_path / "seven.safetensors", metadata={"name": "rohrer25k_conv", "num_classes": "7"})
    with pytest.raises(InputError, match="tells 7 classes apart, the data have 10"):
        run(
            ["train", "--model", str(tmp_path / "seven.safetensors"), "--out", str(tmp_path / "x"), "--batch-size", "8"]
        )


def test_a_signal_ends_the_zoo(tmp_path, monkeypatch):
    step = Trainer.train_step

    def interrupted(self, images, labels):
        step(self, images, labels)
        os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(Trainer, "train_step", interrupted)
    done = run(["zoo", "train", "tiny_*", "--out", str(tmp_path), "--epochs", "1", "--batch-size", "8"])
    assert done.exit_code == 130
    assert [path.name for path in tmp_path.iterdir()] == ["tiny_scs"]
    series = train_all([job(tmp_path / name, epochs=1) for name in ("one", "two")])
    assert [(result.status, result.stopped_by) for result in series] == [("stopped", signal.SIGINT)]


def test_without_submitit_the_cluster_says_how_to_get_it(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "submitit", None)
    with pytest.raises(InputError, match=r"pip install 'scs-eval\[cluster\]'"):
        run(["zoo", "train", "tiny_scs", "--out", str(tmp_path), "--cluster", "local"])


def test_a_cluster_gets_one_job_a_model(tmp_path, monkeypatch):
    submitted = []

    class Executor:
        def __init__(self, folder, cluster, slurm_max_num_timeout):
            assert (folder, cluster, slurm_max_num_timeout) == (tmp_path / "submitit", "slurm", 1000)

        def update_parameters(self, **parameters):
            chosen = {"slurm_partition": "gpu", "timeout_min": 90}
            assert parameters == {"name": "scs-eval", "slurm_signal_delay_s": 300, **chosen}

        def batch(self):
            return nullcontext()  # one array

        def submit(self, task):
            submitted.append(task)
            return type("Job", (), {"job_id": str(len(submitted))})

    monkeypatch.setattr("submitit.AutoExecutor", Executor)
    monkeypatch.setattr("scs_eval.cluster.as_process_group", lambda: None)
    chosen = ("--cluster-option", "slurm_partition=gpu", "--cluster-option", "timeout_min=90")
    numbers = ("--epochs", "1", "--batch-size", "8")
    done = run(["zoo", "train", "tiny_*", "--out", str(tmp_path), "--cluster", "slurm", *chosen, *numbers])
    assert "tiny_blowing: job 2" in done.output
    assert [task.job.model for task in submitted] == ["tiny_scs", "tiny_blowing", "tiny_broken"]
    submitted[0]()
    submitted[0]()  # as after a preemption
    assert (tmp_path / "tiny_scs" / "tiny_scs.safetensors").exists()
    assert submitted[0].checkpoint().function is submitted[0]


def test_a_job_whose_time_is_up_saves_and_hands_the_signal_on(tmp_path, monkeypatch):
    """submitit waits for SIGUSR2 and queues the job again; a signal that only ends it makes it a failure."""
    handed, step = [], Trainer.train_step
    previous = signal.signal(signal.SIGUSR2, lambda number, _: handed.append(number))

    def interrupted(self, images, labels):
        step(self, images, labels)
        if self.step == 3:
            os.kill(os.getpid(), stop_by)

    monkeypatch.setattr(Trainer, "train_step", interrupted)
    try:
        stop_by = signal.SIGUSR2
        task = ClusterTask(job(tmp_path / "run"))
        task()
        assert handed == [signal.SIGUSR2]
        state = torch.load(tmp_path / "run" / "checkpoint.pt", weights_only=True)
        assert (state["epoch"], state["batch"]) == (1, 3)
        task()
        assert (tmp_path / "run" / "tiny_scs.safetensors").exists()
        stop_by = signal.SIGTERM
        monkeypatch.setattr("scs_eval.training.run.GRACE_SECONDS", 0)
        with pytest.raises(InterruptedError, match="SIGTERM stopped the training of tiny_scs"):
            ClusterTask(job(tmp_path / "other"))()
    finally:
        signal.signal(signal.SIGUSR2, previous)


@pytest.mark.slow
def test_submitit_trains_on_this_machine(folder, tmp_path):
    """The package itself, with processes of this machine instead of SLURM."""
    sizes = ("--image-size", "32", "--eval-resize", "36", "--eval-size", "32", "--workers", "0")
    numbers = ("--data", str(folder), "--batch-size", "8", "--epochs", "2", *sizes)
    done = run(["zoo", "train", "rohrer25k_conv", "--out", str(tmp_path), "--cluster", "local", *numbers])
    assert done.exit_code == 0, done.output
    assert done.output.splitlines()[-1] == str(tmp_path / "submitit")
    weights = tmp_path / "rohrer25k_conv" / "rohrer25k_conv.safetensors"
    end = time.monotonic() + 180
    while not weights.exists():
        assert time.monotonic() < end, "\n".join(log.read_text() for log in (tmp_path / "submitit").glob("*_log.*"))
        time.sleep(0.1)
    assert len(rows(tmp_path / "rohrer25k_conv" / "records.csv")) == 2
