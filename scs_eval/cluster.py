"""Work on a cluster through submitit: a job array, a job that follows it, and no job that is already on its way.

A job of several tasks (`tasks_per_node`, `nodes`) is one process group: its processes share the work as torchrun's do.
"""

import json
import os
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from scs_eval.errors import InputError
from scs_eval.files import write_atomically

CLUSTERS = ("slurm", "local")
DEFAULTS = {"name": "scs-eval", "timeout_min": 24 * 60}  # submitit's own limit is five minutes
REQUEUES = 1000  # when the time runs out: every attempt goes on where the one before stopped
NOTICE_SECONDS = 300  # before the time is up: an evaluation, which does not look for signals, may take a while
JOBS = "jobs.json"  # label → job, beside submitit's logs
POLL_SECONDS = 1.0

Work = Callable[[], Any]


def submit(
    work: Mapping[str, Work],
    *,
    cluster: str,
    logs: Path,
    parameters: dict[str, Any],
    then: tuple[str, Work] | None = None,
) -> dict[str, str]:
    """Submit what is not on its way already, by label, as one array; `then` follows when all of it has succeeded.

    The numbers of all jobs by label, also of those from before. parameters: submitit's, such as slurm_partition. Jobs
    of this machine all start at once and see all its GPUs, unless the parameters say otherwise.
    """
    known = _active(cluster, _recorded(logs))
    new = {label: piece for label, piece in work.items() if label not in known}
    executor = _executor(cluster, logs, parameters)
    with executor.batch():
        jobs = {label: executor.submit(piece) for label, piece in new.items()}
    numbers = {**known, **{label: str(job.job_id) for label, job in jobs.items()}}
    if then is not None and (new or then[0] not in known):
        others = [number for label, number in numbers.items() if label != then[0]]
        numbers[then[0]] = _submit_after(others, then[1], cluster=cluster, logs=logs, parameters=parameters)
    logs.mkdir(parents=True, exist_ok=True)
    write_atomically(logs / JOBS, json.dumps(numbers, indent=1).encode())
    return numbers


def _submit_after(numbers: list[str], work: Work, *, cluster: str, logs: Path, parameters: dict[str, Any]) -> str:
    """A job of one process, once those have succeeded; on this machine it waits for them itself."""
    alone = {**parameters, "tasks_per_node": 1, "nodes": 1}
    if cluster == "slurm":
        more = {"dependency": f"afterok:{':'.join(numbers)}", "kill_on_invalid_dep": "yes"}
        given = dict(alone.pop("slurm_additional_parameters", {}))
        executor = _executor(cluster, logs, {**alone, "slurm_additional_parameters": {**given, **more}})
        return str(executor.submit(work).job_id)
    return str(_executor(cluster, logs, alone).submit(After(numbers, logs, work)).job_id)


class After:
    """Work that waits until jobs of this machine have ended."""

    def __init__(self, numbers: Iterable[str], logs: Path, work: Work) -> None:
        self.numbers, self.logs, self.work = list(numbers), logs, work

    def __call__(self) -> Any:
        """Wait, then work."""
        while any(not self._ended(number) for number in self.numbers):
            time.sleep(POLL_SECONDS)
        return self.work()

    def _ended(self, number: str) -> bool:
        return bool(list(self.logs.glob(f"{number}_*_result.pkl"))) or not _is_running(number)


def as_process_group() -> None:
    """Inside a job: say to torch what the scheduler says of its tasks, so that they share the work."""
    from submitit import JobEnvironment
    from submitit.helpers import TorchDistributedEnvironment

    try:
        job = JobEnvironment()
        tasks, nodes = job.num_tasks, job.num_nodes
    except RuntimeError:  # in no job of submitit's
        return
    if tasks > 1:
        TorchDistributedEnvironment().export(set_cuda_visible_devices=False, overwrite=True)
    if tasks > 1 and nodes == 1:
        os.environ["MASTER_ADDR"] = "127.0.0.1"  # SLURM's name of a node need not be one that a resolver knows


def notice_seconds(timeout_minutes: float) -> int:
    """How long before the limit a job hears of it: five minutes, and at most half of its time."""
    return int(min(NOTICE_SECONDS, 60 * timeout_minutes / 2))


def _executor(cluster: str, logs: Path, parameters: dict[str, Any]) -> Any:
    try:
        from submitit import AutoExecutor
    except ImportError as error:
        raise InputError("--cluster needs submitit: pip install 'scs-eval[cluster]'") from error
    executor = AutoExecutor(folder=logs, cluster=cluster, **{f"{cluster}_max_num_timeout": REQUEUES})
    chosen = {**DEFAULTS, **parameters}
    try:
        executor.update_parameters(**{**_usual(cluster, float(chosen["timeout_min"])), **chosen})
    except (NameError, TypeError, ValueError, AssertionError) as error:
        raise InputError(f"submitit refuses the cluster options: {error}") from error
    return executor


def _usual(cluster: str, timeout_minutes: float) -> dict[str, int]:
    """On this machine all GPUs, which submitit would hide from its jobs; under SLURM time enough to stop."""
    if cluster == "slurm":
        return {"slurm_signal_delay_s": notice_seconds(timeout_minutes)}
    import torch

    return {"gpus_per_node": torch.cuda.device_count()}


def _recorded(logs: Path) -> dict[str, str]:
    with suppress(OSError, ValueError):
        return dict(json.loads((logs / JOBS).read_text(encoding="utf-8")))
    return {}


def _active(cluster: str, numbers: Mapping[str, str]) -> dict[str, str]:
    """Those jobs that wait or run."""
    if not numbers:
        return {}
    if cluster == "local":
        return {label: number for label, number in numbers.items() if _is_running(number)}
    # Job by job: squeue refuses a whole list of which one is forgotten already.
    return {label: number for label, number in numbers.items() if _is_queued(number)}


def _is_queued(number: str) -> bool:
    try:
        listed = subprocess.run(
            ["squeue", "--noheader", "--array", "--format=%i", f"--jobs={number}"], capture_output=True, text=True
        )
    except OSError as error:
        raise InputError(f"--cluster slurm needs SLURM's squeue on this machine: {error}") from error
    return listed.returncode == 0 and bool(listed.stdout.strip())


def _is_running(number: str) -> bool:
    """Whether a process of this machine is there, and not as the mere record of one that ended."""
    try:
        os.kill(int(number), 0)
        return "\nState:\tZ" not in Path(f"/proc/{int(number)}/status").read_text()
    except PermissionError:
        return True
    except (OSError, ValueError):
        return False


def parse_parameters(options: Iterable[str]) -> dict[str, Any]:
    """KEY=VALUE as submitit's parameters; whole numbers as such."""
    pairs = [option.partition("=") for option in options]
    for key, equals, _ in pairs:
        if not (key and equals):
            raise InputError(f"--cluster-option: expected KEY=VALUE, got {key!r}")
    return {key: int(value) if value.isdigit() else value for key, _, value in pairs}
