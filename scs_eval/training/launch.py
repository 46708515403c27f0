"""Training many models: one after another here, or as jobs on a cluster through submitit."""

import os
import signal
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scs_eval import cluster as cluster_jobs
from scs_eval.training.job import Job
from scs_eval.training.processes import REQUEUE
from scs_eval.training.run import train
from scs_eval.training.trackers import after_epoch_for

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
        from scs_eval.training.run import train

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


def submit(
    jobs: list[Job], *, cluster: str, logs: Path, parameters: dict[str, Any], log: str | None = None
) -> dict[str, str]:
    """Submit one job a model, unless it is on its way already; the numbers of the jobs by the models' labels."""
    return cluster_jobs.submit(
        {job.label: ClusterTask(job, log) for job in jobs}, cluster=cluster, logs=logs, parameters=parameters
    )


@dataclass(frozen=True)
class Result:
    """What became of one job."""

    job: Job
    status: str
    failed: bool = False
    stopped_by: int = 0


def train_all(jobs: Iterable[Job], *, log: str | None = None) -> Iterator[Result]:
    """Train one job after another, continuing interrupted ones. log: see `after_epoch_for`.

    A job that fails does not keep the others from running; a signal ends the series.
    """
    for job in jobs:
        try:
            outcome = train(job, resume=True, after_epoch=after_epoch_for(log, job.out))
        except Exception as error:
            yield Result(job, f"failed: {' '.join(str(error).split())}", failed=True)
            continue
        yield Result(job, "stopped" if outcome.stopped_by else "trained", stopped_by=outcome.stopped_by)
        if outcome.stopped_by:
            return
