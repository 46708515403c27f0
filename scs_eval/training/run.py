"""`train(job)`: one model from its initial weights to its final ones, whatever happens in between; and many of them."""

import os
import platform
import shlex
import signal
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from torch import nn

from scs_eval import __version__
from scs_eval import cluster as cluster_jobs
from scs_eval.errors import InputError
from scs_eval.files import real_path
from scs_eval.models.loading.limits import check_file
from scs_eval.models.loading.load import is_file
from scs_eval.training.job import Job
from scs_eval.training.loop import AfterEpoch, TrainingLoop, TrainingOutcome
from scs_eval.training.network import build_network
from scs_eval.training.processes import REQUEUE, World, join_world
from scs_eval.training.records import find_layers
from scs_eval.training.run_directory import CHECKPOINT, RunDirectory, StateCheckpoint, files_of, read_run
from scs_eval.training.sources import open_data
from scs_eval.training.trackers import after_epoch_for
from scs_eval.training.trainer import Trainer
from scs_eval.training.weights import initialise_from


def train(
    job: Job, *, resume: bool = False, overwrite: bool = False, after_epoch: AfterEpoch | None = None
) -> TrainingOutcome:
    """Train the job's model into its directory; with `resume`, go on where an earlier run of the same job stopped.

    after_epoch: called with every epoch's number and evaluation; what it raises ends the run, which can be resumed.
    """
    with join_world(job.device) as world:
        _refuse_impossible(job, world)
        directory = RunDirectory(job.out)
        recorded = read_run(job.out) if directory.begun and not overwrite else {}
        if resume and recorded:
            job.refuse_unless_same(recorded)
        if resume and directory.finished:
            return TrainingOutcome(job.weights, None)
        with (
            directory.held(weights=job.weights.name, resume=resume, overwrite=overwrite)
            if world.is_main
            else nullcontext()
        ):
            world.any(False)  # nobody reads the directory before it is ready
            state = None if overwrite else StateCheckpoint(job.out / CHECKPOINT, job.label, own=True).load() or None
            trainer = _make_trainer(job, world, fresh=state is None)
            directory.check_space(needed=bytes_needed(trainer, norms_per_batch=job.norms_per_batch))
            if overwrite and world.is_main:  # not before all that can be refused has been checked
                directory.clear()
            about = _describe(job, world, command=recorded.get("command"))
            return TrainingLoop(job, trainer, about=about, after_epoch=after_epoch).complete(state)


def _make_trainer(job: Job, world: World, *, fresh: bool) -> Trainer:
    source = open_data(job, world)
    model = build_network(job.model, num_classes=source.num_classes, seed=job.seed)
    for size in source.sizes:
        _refuse_size(model, size, name=job.model)
    if job.init_from and fresh:
        initialisation = initialise_from(model, job.init_from)
        if world.is_main:
            print(initialisation, flush=True)
    return Trainer(model, source, recipe=job.recipe, seed=job.seed, world=world, amp=job.amp, compiled=job.compile)


def _refuse_size(model: nn.Module, size: int, *, name: str) -> None:
    """Raise unless the model can take images of size × size pixels."""
    model.eval()
    try:
        with torch.inference_mode():
            model(torch.full((1, 3, size, size), 0.5))
    except torch.OutOfMemoryError:
        raise
    except RuntimeError as error:
        raise InputError(f"{name} cannot take {size}×{size} pixels; set --image-size and --eval-size") from error
    finally:
        model.train()


def _refuse_impossible(job: Job, world: World) -> None:
    if job.amp and world.device.type != "cuda":
        raise InputError(f"--amp needs a CUDA device, this run is on {world.device}; leave it out")
    if job.amp and not torch.cuda.is_bf16_supported():
        raise InputError(f"--amp computes in bfloat16, which {torch.cuda.get_device_name()} cannot; leave it out")
    if job.compile and job.recipe.ramp_epochs:
        raise InputError("--compile would compile anew at every step of a ramp; leave it or --ramp-epochs out")
    if job.recipe.batch_size % world.size:
        raise InputError(f"batch_size: expected a multiple of {world.size} processes, got {job.recipe.batch_size}")
    if job.init_from and is_file(job.init_from):
        check_file(job.init_from)  # now, not after the images are read or downloaded
    if job.init_from and real_path(job.init_from).parent == real_path(job.out):
        raise InputError(f"--init-from {job.init_from} lies in --out, which is for the run's own files; choose another")


def _describe(job: Job, world: World, *, command: str | None) -> dict[str, Any]:
    """What run.json says about a run besides its results; `command` is the one that began it, if not this."""
    return {
        **job.identity(),
        "epochs": job.recipe.epochs,
        "device": str(world.device),
        "device_name": torch.cuda.get_device_name(world.device) if world.device.type == "cuda" else "",
        "processes": world.size,
        "threads": torch.get_num_threads(),
        **job.settings(),
        "command": command or shlex.join(["scs-eval", *sys.argv[1:]]),
        "versions": versions(),
        "files": files_of(job.weights.name, job.kept_epochs),
    }


ROW_BYTES = 60  # a generous row of layers.csv or norms.csv
COPIES = 3  # of the weights in a checkpoint: themselves and Adam's two moments


def bytes_needed(trainer: Trainer, *, norms_per_batch: bool) -> int:
    """An upper estimate: two checkpoints (one is written before the other goes), the final weights and the tables."""
    weights = sum(value.numel() * value.element_size() for value in trainer.model.state_dict().values())
    copies = 2 * (COPIES + (trainer.average is not None)) + 1
    layers = find_layers(trainer.model)
    per_epoch = sum(3 + (layer.p.numel() if layer.p is not None else 0) for layer in layers)
    per_epoch += norms_per_batch * trainer.source.steps * len(layers)
    return copies * weights + (1 + trainer.recipe.epochs) * per_epoch * ROW_BYTES


def versions() -> dict[str, str]:
    """Version by package name."""
    ours = {"scs_eval": __version__, "python": platform.python_version()}
    return {**ours, "torch": torch.__version__, "torchvision": version("torchvision"), "numpy": version("numpy")}


GRACE_SECONDS = 600  # SLURM queues a preempted job again if that is still there when its grace is over


@dataclass(frozen=True)
class ClusterTask:
    """What a node runs; submitit calls `checkpoint` when the time is up. log: see `after_epoch_for`."""

    job: Job
    log: str | None = None

    def __call__(self) -> None:
        """Train, or go on where an earlier attempt was cut off.

        When the time is up, `train` finishes the batch, saves and returns; the signal then goes on to submitit.
        """
        cluster_jobs.as_process_group()
        stopped_by = train(self.job, resume=True, after_epoch=after_epoch_for(self.log, self.job.out)).stopped_by
        if stopped_by in REQUEUE:
            os.kill(os.getpid(), stopped_by)
        elif stopped_by:
            time.sleep(GRACE_SECONDS if stopped_by == signal.SIGTERM else 0)
            name = signal.Signals(stopped_by).name
            raise InterruptedError(f"{name} stopped the training of {self.job.label}; the same command goes on")

    def checkpoint(self) -> Any:
        """Queue the same task again; its directory knows how far it got."""
        from submitit.helpers import DelayedSubmission

        return DelayedSubmission(self)


def submit_jobs(
    jobs: list[Job], *, cluster: str, logs: Path, parameters: dict[str, Any], log: str | None = None
) -> dict[str, str]:
    """Submit one job a model, unless it is on its way already; the numbers of the jobs by the models' labels."""
    return cluster_jobs.submit(
        {job.label: ClusterTask(job, log) for job in jobs}, cluster=cluster, logs=logs, parameters=parameters
    )


@dataclass(frozen=True)
class JobResult:
    """What became of one job."""

    job: Job
    status: str
    failed: bool = False
    refused: bool = False
    stopped_by: int = 0


def train_all(jobs: Iterable[Job], *, log: str | None = None) -> Iterator[JobResult]:
    """Train one job after another, continuing interrupted ones. log: see `after_epoch_for`.

    A job that fails does not keep the others from running; a signal ends the series.
    """
    for job in jobs:
        try:
            outcome = train(job, resume=True, after_epoch=after_epoch_for(log, job.out))
        except Exception as error:
            wrong = isinstance(error, InputError)
            yield JobResult(job, f"failed: {' '.join(str(error).split())}", failed=True, refused=wrong)
            continue
        yield JobResult(job, "stopped" if outcome.stopped_by else "trained", stopped_by=outcome.stopped_by)
        if outcome.stopped_by:
            return
