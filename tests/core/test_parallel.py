"""Two nodes of a process each share the images of every analysis: tables and arrays are those of one, to the bit."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import run_commands

from scs_eval.analyses.core import parallel as shards
from scs_eval.errors import InputError

# As few images as make two batches.
COMMANDS = {
    "accuracy": ["accuracy", "rohrer100k_conv", "-n", "40", "--batch-size", "25"],
    "calibration": ["calibration", "rohrer100k_conv", "-n", "40", "--bins", "4", "--batch-size", "25"],
    "corruptions": ["corruptions", "rohrer100k_scs", "-n", "6", "--corruption", "shot_noise", "--batch-size", "3"],
    "detect": ["detect", "rohrer100k_scs", "-n", "24", "--eps", "0.02", "--batch-size", "5"],
    "certify": ["certify", "rohrer100k_scs", "-n", "6", "--samples", "20", "--guesses", "5", "--draws", "1"],
    "saliency": ["saliency", "--model", "rohrer100k_scs", "-n", "60"],
    "costly": ["saliency", "--model", "rohrer100k_conv", "-n", "12", "--method", "smoothgrad"],
    "contributions": ["contributions", "--model", "rohrer100k_scs", "-n", "60", "--audit"],
    "neurons": ["contributions", "--model", "rohrer100k_conv", "-n", "60", "--layer", "stages.1", "--directions", "2"],
    "faithfulness": ["faithfulness", "--model", "rohrer100k_conv", "-n", "60", "--method", "grad", "--steps", "4"],
    "localisation": ["localisation", "--model", "rohrer100k_conv", "--grid", "2", "-n", "3", "--batch-size", "1"],
    "pgd": ["pgd", "--model", "rohrer100k_conv", "--eps", "0.004,0.02", "-n", "34"],
    "compare": [
        "compare",
        "rohrer100k_conv",
        "rohrer100k_ssdp",
        "-n",
        "60",
        "--analyses",
        "accuracy,saliency",
        "--images",
        "saliency=52",
    ],
}


def torchrun(*words: object) -> "subprocess.CompletedProcess[str]":
    launch = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--standalone"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}  # as in this process: sums depend on the number of threads
    return subprocess.run([*launch, *map(str, words)], capture_output=True, text=True, env=environment, timeout=600)


def two_nodes(*words: object) -> "subprocess.CompletedProcess[str]":
    """torchrun once for each of two nodes, both of which are this machine; what the first of them printed."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    launch = [sys.executable, "-m", "torch.distributed.run", "--nnodes", "2", "--nproc-per-node", "1"]
    launch += ["--master-addr", "127.0.0.1", "--master-port", str(port)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    nodes = [
        subprocess.Popen(
            [*launch, "--node-rank", str(rank), *map(str, words)],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment,
        )
        for rank in (0, 1)
    ]  # fmt: skip
    printed = [node.communicate(timeout=600) for node in nodes]
    code = next((node.returncode for node in nodes if node.returncode), 0)
    return subprocess.CompletedProcess(launch, code, printed[0][0], printed[0][1] + printed[1][1])


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    """The folders of one process and of two, what each of the two did, and what the two printed."""
    one, two = tmp_path_factory.mktemp("one"), tmp_path_factory.mktemp("two")
    (two / "commands.json").write_text(json.dumps(COMMANDS))
    printed = two_nodes(Path(__file__).parents[1] / "helpers" / "run_commands.py", two / "commands.json", two)
    assert printed.returncode == 0, printed.stderr
    assert run_commands.run(COMMANDS, one) == dict.fromkeys(COMMANDS, 0)
    return one, two, [json.loads((two / f"{rank}.json").read_text()) for rank in (0, 1)], printed


@pytest.mark.parametrize("name", COMMANDS)
def test_the_same_to_the_bit(both, name):
    one, two, done, _ = both
    assert all(part[name] for part in done), "one of the processes had nothing to do"
    tables = sorted(path.relative_to(one / name) for path in (one / name).rglob("*.csv"))  # also of compare's parts
    assert Path("table.csv") in tables
    for table in tables:
        alone, shared = (pd.read_csv(folder / name / table) for folder in (one, two))
        timed = [column for column in alone if "seconds" in column]
        pd.testing.assert_frame_equal(alone.drop(columns=timed), shared.drop(columns=timed), check_exact=True)
    with np.load(one / name / "arrays.npz") as alone, np.load(two / name / "arrays.npz") as shared:
        assert alone.files == shared.files
        for key in alone.files:
            np.testing.assert_array_equal(alone[key], shared[key], err_msg=key)


def test_only_the_first_process_talks(both):
    _, two, _, printed = both
    assert [line for line in printed.stdout.splitlines() if line == str(two / "accuracy")] == [str(two / "accuracy")]


def test_a_wrong_request_is_one_line():
    failed = torchrun("-m", "scs_eval", "accuracy", "rohrer100k_conv", "--device", "cuda:77")
    assert failed.returncode != 0
    assert failed.stderr.count("expected a device of this machine") == 1


def test_alone_it_is_a_plain_map():
    assert shards.shared_map(lambda x: x * x, [1, 2, 3]) == [1, 4, 9]
    assert shards.broadcast_from_main(lambda: "x") == "x"
    assert (shards.processes(), shards.is_main_process(), shards.share_size(100, 64, multiple=32)) == (1, True, 64)
    with pytest.raises(InputError, match="third"):
        shards.shared_map(lambda x: (_ for _ in ()).throw(InputError("third")) if x == 3 else x, [1, 2, 3])
