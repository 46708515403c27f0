"""`--cluster local`: real jobs of submitit, whose shares and merge give what one process gives."""

import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from scs_eval import load_result
from scs_eval.analyses.study.result import StudyResult

PLAN = """
title = "A small study"
eps = "0.002,0.01"
part = [{ name = "rohrer25k", models = ["rohrer25k_conv", "rohrer25k_scs"], sizes = { accuracy = 40, saliency = 8, pgd = 4 }, options = { pgd = { scorecard = "none" } } }]
claim = [{ source = "here", text = "SCS is sparser.", metric = "sparseness", of = { layer = "scs", activation = "linear", pooling = "maxabspool" }, against = { layer = "conv", activation = "relu", pooling = "maxpool" } }]
"""  # noqa: E501
PATIENCE = 300  # seconds: four processes start, one after the other on a busy machine


def study(folder: Path, out: str, *more: str) -> str:
    words = ["study", str(folder / "mine.toml"), "--out", str(folder / out / "result"), *more]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-m", "scs_eval", *words],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_local_jobs_give_what_one_process_gives(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(PLAN)
    said = study(tmp_path, "jobs", "--cluster", "local", "--jobs", "2", "--cluster-option", "timeout_min=10")
    assert [line.partition(":")[0] for line in said.splitlines()[:3]] == ["1/2", "2/2", "merge"]
    page, end = tmp_path / "jobs" / "result" / "report.html", time.monotonic() + PATIENCE
    while not page.exists() and time.monotonic() < end:
        time.sleep(1)
    logs = "\n".join(path.read_text() for path in (tmp_path / "jobs").rglob("*.err"))
    assert page.exists(), logs
    study(tmp_path, "alone")
    shared, alone = (load_result(tmp_path / out / "result") for out in ("jobs", "alone"))
    assert isinstance(shared, StudyResult)
    assert isinstance(alone, StudyResult)
    assert set(shared.results) == {f"rohrer25k/{analysis}" for analysis in ("accuracy", "saliency", "pgd")}
    pd.testing.assert_frame_equal(shared.table(), alone.table())
    for key, part in alone.results.items():
        for name, array in part.arrays().items():
            np.testing.assert_array_equal(shared.results[key].arrays()[name], array, err_msg=f"{key} {name}")
    assert len(pd.read_csv(tmp_path / "jobs" / "result" / "table.csv")) == 1
