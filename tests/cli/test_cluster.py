"""Commands as jobs: what is submitted, what is not submitted twice, and that the merged result is one machine's."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from same_results import assert_same

from scs_eval import cluster
from scs_eval.cli.cluster_request import CommandTask, _without_cluster
from scs_eval.cli.main import cli
from scs_eval.errors import InputError

MODELS = ["rohrer25k_conv", "rohrer25k_scs"]
COMMANDS = {
    "accuracy": ["accuracy", *MODELS, "-n", "20"],
    "saliency": ["saliency", *MODELS, "-n", "8", "--method", "grad", "--method", "ixg", "--reference", MODELS[0]],
    "contributions": ["contributions", *MODELS, "-n", "4", "--audit"],
    "localisation": ["localisation", *MODELS, "--images", "120", "--grid", "2", "-n", "2"],
    "pgd": ["pgd", *MODELS, "--eps", "0.01,0.03", "-n", "10", "--steps", "2", "--no-scorecard"],
    "compare": ["compare", *MODELS, "-n", "20", "--analyses", "accuracy,saliency", "--images", "saliency=4"],
}


@pytest.mark.parametrize("name", COMMANDS)
def test_parts_merge_to_what_one_machine_writes(name, tmp_path, monkeypatch):
    """The jobs one after another, without a scheduler."""
    monkeypatch.setattr("scs_eval.report.write._write_figures", lambda *_: None)  # drawn from what is compared
    monkeypatch.chdir(tmp_path)
    words = [*COMMANDS[name], "--device", "cpu"]
    cli.main([*words, "--out", "one/result"], standalone_mode=False)
    monkeypatch.setattr("scs_eval.cluster.as_process_group", lambda: None)
    job = (*words, "--out", "many/result")
    argv = sys.argv
    try:
        for label in MODELS:
            CommandTask(job, ("--parts", "many/parts", "--only", label))()
            assert not Path("many/result").exists()
        CommandTask(job, ("--parts", "many/parts"))()
    finally:
        sys.argv = argv
    assert_same(Path("one/result"), Path("many/result"))
    assert not list(Path("many/parts").glob("*/result.json"))


def test_a_part_that_is_there_is_not_computed_again(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = ["accuracy", MODELS[0], "-n", "10", "--parts", "parts", "--only", MODELS[0]]
    cli.main(words, standalone_mode=False)
    monkeypatch.setattr("scs_eval.analyses.accuracy.accuracy", lambda *_, **__: pytest.fail("computed again"))
    cli.main(words, standalone_mode=False)


class Executor:
    """Notes what is submitted."""

    log: list = []  # noqa: RUF012

    def __init__(self, folder, cluster, **_options):
        self.parameters, self.number = {}, 100 * (1 + len(self.log))

    def update_parameters(self, **parameters):
        self.parameters = parameters

    def batch(self):
        import contextlib

        return contextlib.nullcontext()

    def submit(self, work):
        self.log.append((work, self.parameters))
        return type("Job", (), {"job_id": str(len(self.log))})


@pytest.fixture
def executor(monkeypatch):
    monkeypatch.setattr("submitit.AutoExecutor", Executor)
    monkeypatch.setattr(Executor, "log", [])
    return Executor


def test_a_merge_depends_on_the_array_and_pending_jobs_are_not_submitted_twice(executor, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    queued = {"1"}
    monkeypatch.setattr(cluster, "_is_queued", lambda number: number in queued)
    words = [*COMMANDS["accuracy"], "--cluster", "slurm", "--cluster-option=timeout_min=4"]
    monkeypatch.setattr(sys, "argv", ["scs-eval", *words])
    cli.main(words, standalone_mode=False)
    assert [work.part[-1] for work, _ in executor.log[:2]] == MODELS
    assert executor.log[0][0].words == tuple(COMMANDS["accuracy"])
    assert executor.log[0][1]["slurm_signal_delay_s"] == 120  # half of four minutes
    merge, parameters = executor.log[2]
    assert merge.part[-2] == "--parts"
    assert parameters["slurm_additional_parameters"]["dependency"] == "afterok:1:2"
    cli.main(words, standalone_mode=False)  # the second has ended, the first still waits
    assert [work.part[-1] for work, _ in executor.log[3:4]] == MODELS[1:]
    assert executor.log[4][1]["slurm_additional_parameters"]["dependency"] == "afterok:1:4"
    queued |= {"4", "5"}
    cli.main(words, standalone_mode=False)
    assert len(executor.log) == 5


def test_the_notice_is_at_most_half_of_the_time():
    assert [cluster.notice_seconds(minutes) for minutes in (1, 4, 10, 1440)] == [30, 120, 300, 300]


def test_the_command_for_one_machine():
    words = ["pgd", "--cluster", "slurm", "-n", "3", "--cluster-option", "a=1", "--cluster-option=b=2", "--model", "x"]
    assert _without_cluster(words) == ("pgd", "-n", "3", "--model", "x")


def test_wrong_requests():
    with pytest.raises(InputError, match="needs --cluster"):
        cli.main(["accuracy", MODELS[0], "--cluster-option", "a=1"], standalone_mode=False)
    with pytest.raises(InputError, match="expected KEY=VALUE"):
        cluster.parse_parameters(["gpus"])


def test_processes_of_this_machine(tmp_path):
    """The real thing: two jobs, each of two processes that share the images, and the one that merges."""
    words = [*COMMANDS["accuracy"], "--device", "cpu", "--batch-size", "8"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    run = [sys.executable, "-m", "scs_eval"]
    subprocess.run([*run, *words, "--out", "one"], cwd=tmp_path, env=environment, check=True, capture_output=True)
    options = ["--cluster", "local", "--cluster-option", "tasks_per_node=2", "--cluster-option", "timeout_min=5"]
    submitted = subprocess.run(
        [*run, *words, "--out", "many", *options], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    assert submitted.returncode == 0, submitted.stderr
    (logs,) = tmp_path.glob(".many.parts-*/submitit")
    assert set(json.loads((logs / "jobs.json").read_text())) == {*MODELS, "merge"}
    for _ in range(600):
        if (tmp_path / "many" / "run.json").exists():
            break
        time.sleep(0.5)
    else:
        pytest.fail("\n".join(path.read_text()[-1500:] for path in logs.glob("*log.err")))
    assert_same(tmp_path / "one", tmp_path / "many")
    assert "--cluster" not in json.loads((tmp_path / "many" / "run.json").read_text())["command"]
