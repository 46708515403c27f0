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

from scs_eval.analyses.catalogue import compared
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
# As a part of a comparison, whatever is in the catalogue: as few images as make two batches, where that is many.
MANY = {"accuracy": 260, "calibration": 260, "detect": 140, "corruptions": 52, "saliency": 52, "contributions": 52,
        "faithfulness": 12, "certify": 5, "localisation": 4}  # fmt: skip
CATALOGUE = {
    name: ["compare", "rohrer25k_conv", "rohrer25k_scs", "-n", "260", "--analyses", name, "--eps", "0.004,0.02"]
    + [f"--images={sized}={MANY.get(sized, 34)}" for sized in {name: 0, "localisation": 0} if compared()[sized].size]
    for name in compared()
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
    printed = [node.communicate(timeout=6000) for node in nodes]
    code = next((node.returncode for node in nodes if node.returncode), 0)
    return subprocess.CompletedProcess(launch, code, printed[0][0], printed[0][1] + printed[1][1])


def run_both(commands, tmp_path_factory):
    """The folders of one process and of two, what each of the two did, and what the two printed."""
    one, two = tmp_path_factory.mktemp("one"), tmp_path_factory.mktemp("two")
    (two / "commands.json").write_text(json.dumps(commands))
    printed = two_nodes(Path(__file__).parents[1] / "helpers" / "run_commands.py", two / "commands.json", two)
    assert printed.returncode == 0, printed.stderr
    assert run_commands.run(commands, one) == dict.fromkeys(commands, 0)
    return one, two, [json.loads((two / f"{rank}.json").read_text()) for rank in (0, 1)], printed


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    """Of the commands."""
    return run_both(COMMANDS, tmp_path_factory)


@pytest.fixture(scope="module")
def whole_catalogue(tmp_path_factory):
    """Of every analysis that the catalogue lists."""
    return run_both(CATALOGUE, tmp_path_factory)


@pytest.mark.parametrize("name", COMMANDS)
def test_the_same_to_the_bit(both, name):
    assert_same_to_the_bit(both, name)


@pytest.mark.slow
@pytest.mark.parametrize("name", CATALOGUE)
def test_every_analysis_of_the_catalogue_is_the_same_to_the_bit(whole_catalogue, name):
    """Under torchrun --nnodes 2 --nproc-per-node 1, both nodes this machine."""
    assert_same_to_the_bit(whole_catalogue, name)


def assert_same_to_the_bit(folders, name):
    one, two, done, _ = folders
    assert all(part[name] for part in done), "one of the processes had nothing to do"
    tables = sorted(path.relative_to(one / name) for path in (one / name).rglob("*.csv"))  # also of compare's parts
    assert Path("table.csv") in tables
    for table in tables:
        alone, shared = (pd.read_csv(folder / name / table) for folder in (one, two))
        timed = [column for column in alone if "seconds" in column]
        pd.testing.assert_frame_equal(alone.drop(columns=timed), shared.drop(columns=timed), check_exact=True)
    for arrays in sorted(path.relative_to(one / name) for path in (one / name).rglob("arrays.npz")):
        with np.load(one / name / arrays) as alone, np.load(two / name / arrays) as shared:
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
