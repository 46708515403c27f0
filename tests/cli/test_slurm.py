"""A real SLURM on this machine, where it is installed: submit, share, merge, requeue, preempt, resume."""

import json
import os
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from image_folders import training_folder
from safetensors.torch import load_file
from same_results import assert_same

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not shutil.which("slurmctld") or os.getuid() != 0, reason="needs slurmctld, slurmd and root"),
]
CONFIGURATION = """
ClusterName=scs-eval-test
AuthType=auth/munge
SlurmUser=root
SlurmdUser=root
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmdPort={ports[1]}
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
MpiDefault=none
JobRequeue=1
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
ReturnToService=2
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
NodeName=c1 NodeHostname={host} NodeAddr=127.0.0.1 CPUs=2 RealMemory=8000 State=UNKNOWN
PartitionName=low Nodes=c1 Default=YES PriorityTier=1 GraceTime=60 MaxTime=INFINITE State=UP
PartitionName=high Nodes=c1 PriorityTier=10 MaxTime=INFINITE State=UP
"""
MODELS = ["rohrer25k_conv", "rohrer25k_scs"]
RUN = [sys.executable, "-m", "scs_eval"]


def free_port() -> int:
    with socket.socket() as each:
        each.bind(("127.0.0.1", 0))
        return int(each.getsockname()[1])


def until(condition, *, what: str, seconds: float = 2400, logs: Path | None = None) -> None:
    """Wait for what may take long on a busy machine; if it never comes, say what the jobs printed."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return
        time.sleep(1)
    printed = [] if logs is None else sorted([*logs.rglob("*_log.out"), *logs.rglob("*_log.err")])
    tails = "\n".join(f"{path.name}: {path.read_text()[-1000:]}" for path in printed)
    pytest.fail(f"{what}: not within {seconds} s\n{output('squeue')}\n{tails}")


@pytest.fixture(scope="module", autouse=True)
def slurm(tmp_path_factory):
    """Both daemons, with a configuration of their own; ended by their process numbers."""
    folder = tmp_path_factory.mktemp("slurm")
    for name in ("state", "spool"):
        (folder / name).mkdir()
    if not Path("/run/munge/munge.socket.2").exists():
        Path("/run/munge").mkdir(exist_ok=True)
        shutil.chown("/run/munge", "munge", "munge")
        subprocess.run(["su", "-s", "/bin/sh", "munge", "-c", "/usr/sbin/munged"], check=True)
    text = CONFIGURATION.format(host=socket.gethostname(), ports=[free_port(), free_port()], folder=folder)
    (folder / "slurm.conf").write_text(text)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SLURM_CONF", str(folder / "slurm.conf"))
        patch.setenv("OMP_NUM_THREADS", "1")
        subprocess.run(["slurmctld", "-f", str(folder / "slurm.conf"), "-i"], check=True)
        subprocess.run(["slurmd", "-f", str(folder / "slurm.conf"), "-N", "c1"], check=True)
        until(lambda: "idle" in output("sinfo"), seconds=300, what="a node that is idle")
        yield
        for name in ("slurmd", "slurmctld"):
            os.kill(int((folder / f"{name}.pid").read_text()), 15)


@pytest.fixture(autouse=True)
def empty_queue(slurm):
    """No test waits for a job that another one left."""
    yield
    subprocess.run(["scancel", "--user", "root"], check=True)
    until(lambda: not output("squeue", "--noheader"), what="an empty queue")


def output(*words: str) -> str:
    return subprocess.run(words, capture_output=True, text=True).stdout


def submitted(folder: Path, *words: str, partition: str = "low", **options: object) -> dict[str, str]:
    """Submit a command from a folder; label → job."""
    parameters = {"slurm_partition": partition, "timeout_min": 60, "mem_gb": 3, **options}
    chosen = [part for key, value in parameters.items() for part in ("--cluster-option", f"{key}={value}")]
    done = subprocess.run([*RUN, *words, "--cluster", "slurm", *chosen], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return dict(line.split(": job ") for line in done.stdout.splitlines() if ": job " in line)


@pytest.mark.parametrize("tasks", [1, 2])
def test_an_array_and_its_merge_give_one_machines_result(tmp_path, tasks):
    words = ["accuracy", *MODELS, "-n", "40", "--device", "cpu", "--batch-size", "8"]
    subprocess.run([*RUN, *words, "--out", "one"], cwd=tmp_path, check=True, capture_output=True)
    jobs = submitted(tmp_path, *words, "--out", "many", tasks_per_node=tasks)
    assert len({number.split("_")[0] for label, number in jobs.items() if label in MODELS}) == 1  # one array
    assert submitted(tmp_path, *words, "--out", "many", tasks_per_node=tasks) == jobs  # and not a second time
    until((tmp_path / "many" / "run.json").exists, what="the merged result", logs=tmp_path)
    assert_same(tmp_path / "one", tmp_path / "many")
    if tasks == 2:
        (logs,) = tmp_path.glob(".many.parts-*/submitit")
        assert len(list(logs.glob(f"{jobs[MODELS[0]]}_*_log.out"))) == 2


@pytest.mark.parametrize("how", ["requeue", "preempt"])
def test_a_training_goes_on_where_it_was_stopped(tmp_path, how):
    """SLURM holds a requeued job for two minutes, so this takes several."""
    data = training_folder(tmp_path / "data", train=64, val=4, size=(40, 40))
    words = ["--data", str(data), "--epochs", "60", "--batch-size", "8", "--workers", "0", "--checkpoint-every", "1",
             "--image-size", "32", "--eval-size", "32", "--eval-resize", "36", "--device", "cpu"]  # fmt: skip
    subprocess.run(
        [*RUN, "zoo", "train", MODELS[0], *words, "--out", "alone"], cwd=tmp_path, check=True, capture_output=True
    )
    (number,) = submitted(tmp_path, "zoo", "train", MODELS[0], *words, "--out", "jobs").values()
    run = tmp_path / "jobs" / MODELS[0]
    until((run / "checkpoint.pt").exists, what="a first checkpoint", logs=tmp_path)
    if how == "requeue":
        subprocess.run(["scancel", "--signal=USR2", "--full", number], check=True)  # as when the time is up
    else:
        wait = ["sbatch", "--partition=high", "--cpus-per-task=2", "--mem=7000", "--wrap", "sleep 20"]
        subprocess.run(wait, check=True, cwd=tmp_path, capture_output=True)
    until(lambda: "PENDING" in output("squeue", "-h", "-o", "%T", "-j", number), what="it waits again")
    until((run / f"{MODELS[0]}.safetensors").exists, what="the end of the training", logs=tmp_path)
    alone, resumed = (
        load_file(folder / MODELS[0] / f"{MODELS[0]}.safetensors") for folder in (tmp_path / "alone", tmp_path / "jobs")
    )
    assert all(alone[name].equal(resumed[name]) for name in alone)
    assert json.loads((run / "run.json").read_text())["model"] == MODELS[0]
