"""Training many models one after another."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from scs_eval.training.job import Job
from scs_eval.training.run import train


@dataclass(frozen=True)
class Result:
    """What became of one job."""

    job: Job
    status: str
    failed: bool = False
    stopped_by: int = 0


def train_all(jobs: Iterable[Job]) -> Iterator[Result]:
    """Train one job after another, continuing interrupted ones.

    A job that fails does not keep the others from running; a signal ends the series.
    """
    for job in jobs:
        try:
            outcome = train(job, resume=True)
        except Exception as error:
            yield Result(job, f"failed: {' '.join(str(error).split())}", failed=True)
            continue
        yield Result(job, "stopped" if outcome.stopped_by else "trained", stopped_by=outcome.stopped_by)
        if outcome.stopped_by:
            return
