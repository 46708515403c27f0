"""Jobs on a cluster through submitit: SLURM, or processes of this machine."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scs_eval.errors import InputError
from scs_eval.training.job import Job


@dataclass(frozen=True)
class ClusterTask:
    """What a node runs; submitit calls `checkpoint` when the time is up or the job is preempted."""

    job: Job

    def __call__(self) -> None:
        """Train, or go on where an earlier attempt was cut off."""
        from scs_eval.training.run import train

        train(self.job, resume=True)

    def checkpoint(self) -> Any:
        """Queue the same task again; its directory knows how far it got."""
        from submitit.helpers import DelayedSubmission

        return DelayedSubmission(self)


def submit(jobs: list[Job], *, cluster: str, logs: Path, parameters: dict[str, Any]) -> list[str]:
    """Submit one job a model and return their ids; parameters are submitit's, such as slurm_partition."""
    try:
        from submitit import AutoExecutor
    except ImportError as error:
        raise InputError("--cluster needs submitit: pip install 'scs-eval[cluster]'") from error
    executor = AutoExecutor(folder=logs, cluster=cluster)
    try:
        executor.update_parameters(name="scs-eval", **parameters)
    except (NameError, TypeError, AssertionError) as error:
        raise InputError(f"submitit refuses the cluster options: {error}") from error
    return [executor.submit(ClusterTask(job)).job_id for job in jobs]
