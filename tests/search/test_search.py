"""The search for p: trials on tiny data, resumed and shared; tables and figures from their numbers."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

import scs_eval.data.cifar10 as cifar10
from scs_eval import InputError, load_result
from scs_eval.cli.commands.zoo import _names, _with_values
from scs_eval.cli.main import cli
from scs_eval.search import SearchResult
from scs_eval.search.runner import SearchPlan, StoppedError, _described, run_search
from scs_eval.training import run as training
from scs_eval.training.job import plan_job
from scs_eval.training.loop import TrainingOutcome


def tiny_images(data_dir: object = None, *, train: bool) -> tuple[np.ndarray, np.ndarray]:
    """48 images of noise, whose brightness tells the class."""
    labels = np.arange(48) % 10
    noise = np.random.default_rng(int(train)).integers(0, 60, (48, 3, 32, 32))
    return (noise + 15 * labels[:, None, None, None]).astype(np.uint8), labels


@pytest.fixture(autouse=True)
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cifar10, "read_cifar10", tiny_images)


def plan(out: Path, *, trials: int = 3, lr: tuple[float, float] | None = (0.001, 0.03)) -> SearchPlan:
    settings = {"data": "cifar10", "validation": 8, "device": "cpu"}
    job = plan_job(
        model="rohrer25k_scs", out=out, recipe_name=None, settings=settings,
        overrides={"epochs": 2, "batch_size": 20}, resume=False,
    )  # fmt: skip
    return SearchPlan(job, (0.5, 4.0), lr, trials)


def test_a_search_goes_on_where_it_was_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[str] = []
    whole = training.train

    def stopped_once(job: training.Job, **options: object) -> TrainingOutcome:
        begun.append(job.out.name)
        return TrainingOutcome(None, None, stopped_by=2) if len(begun) == 2 else whole(job, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(training, "train", stopped_once)
    with pytest.raises(StoppedError):
        run_search(plan(tmp_path))
    finished = run_search(plan(tmp_path))
    assert len(finished) == 3
    assert begun[2] == begun[1], "the trial that was stopped is taken up"
    assert len(set(begun)) == 3, "and no other comes twice"
    assert all(0.5 <= trial.values[0] <= 4 and 0.001 <= trial.values[1] <= 0.03 for trial in finished)
    folders = {path.name for path in (tmp_path / "trials").iterdir()}
    assert folders == {f"p={p:g}_lr={lr:g}" for p, lr in (trial.values for trial in finished)}
    again = run_search(plan(tmp_path))
    assert again == finished, "nothing is left to do"
    assert len(begun) == 4
    with pytest.raises(InputError, match="another lr"):
        run_search(plan(tmp_path, lr=None))


def test_the_network_of_a_trial_has_its_p_and_its_rate(tmp_path: Path) -> None:
    job = plan(tmp_path).job_of(1.25, 0.02)
    assert (job.model, job.recipe.lr) == ("rohrer25k_scs_p=1.25", 0.02)
    fast = plan_job(model="rohrer25k_scs", out=tmp_path, recipe_name="fast", settings={}, overrides={}, resume=False)
    muon = SearchPlan(fast, (0.5, 4.0), (0.001, 0.1), 1).job_of(2, 2 * fast.recipe.lr).recipe
    assert muon.kernel_lr == pytest.approx(2 * fast.recipe.kernel_lr)


def test_the_command_writes_tables_and_figures(tmp_path: Path) -> None:
    arguments = ["search", "--model", "rohrer25k_scs", "--p", "0.5:4", "--trials", "2", "--epochs", "1"]
    arguments += ["--batch-size", "20", "--validation", "8", "--device", "cpu"]
    folders = ["--runs", str(tmp_path / "runs"), "--out", str(tmp_path / "out")]
    done = CliRunner().invoke(cli, [*arguments, *folders], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    result = load_result(tmp_path / "out")
    assert isinstance(result, SearchResult)
    assert result.values.shape == (2, 1)
    assert pd.read_csv(tmp_path / "out" / "table.csv")["p"].between(0.5, 4).all()
    assert {"figure.png", "values.png", "by_p.csv"} <= {path.name for path in (tmp_path / "out").iterdir()}


def made() -> SearchResult:
    p, lr = np.array([0.6, 1.0, 1.5, 2.5, 3.5]), np.array([0.01, 0.001, 0.02, 0.005, 0.03])
    states = ("complete", "complete", "complete", "complete", "pruned")
    return SearchResult(
        label="x", model="rohrer25k_scs", parameters=("p", "lr"), states=states, values=np.stack([p, lr], 1),
        accuracies=np.array([0.3, 0.6, 0.7, 0.65, 0.2]), epochs=np.array([4, 4, 4, 4, 1]), planned=4, images=100,
    )  # fmt: skip


def test_trials_are_told_by_p() -> None:
    table = made().by_p()
    assert table["p"].tolist() == ["p < 0.9", "0.9 ≤ p < 1.1", "1.1 ≤ p < 2", "2 ≤ p < 3", "p ≥ 3"]
    assert table["best"].tolist()[:4] == [0.3, 0.6, 0.7, 0.65]
    assert table["pruned"].tolist() == [0, 0, 0, 0, 1]
    assert made().table()["p"].tolist() == [1.5, 2.5, 1.0, 0.6, 3.5]
    assert set(made().figures()) == {"figure", "values", "contour"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--model", "rohrer25k_scs", "--p", "4:0.5"], "expected --p as LO:HI"),
        (["--model", "rohrer25k_scs", "--p", "4"], "expected LO:HI"),
        (["--model", "rohrer25k_conv", "--p", "1:2"], "unknown option 'p=1'"),
    ],
)
def test_wrong_requests_are_one_line(arguments: list[str], message: str, tmp_path: Path) -> None:
    done = CliRunner().invoke(cli, ["search", *arguments, "--out", str(tmp_path / "o"), "--runs", str(tmp_path / "r")])
    assert done.exit_code != 0
    assert message in (str(done.exception) + done.output)


def test_a_pattern_takes_a_list_of_values() -> None:
    names = _names(_with_values("rohrer25k_scs_p=*,rohrer25k_conv", [0.5, 1, 2]))
    assert names == ["rohrer25k_scs_p=0.5", "rohrer25k_scs_p=1", "rohrer25k_scs_p=2", "rohrer25k_conv"]
    with pytest.raises(InputError, match="--values is for"):
        _with_values("rohrer25k_scs", [1.0])
    with pytest.raises(InputError, match="give --values"):
        _names("rohrer25k_scs_p=*")


def test_what_a_search_is_known_by_says_nothing_of_images_that_nobody_chose(tmp_path: Path) -> None:
    """So searches of before `--indices` and `--exclude` go on."""
    job = plan(tmp_path).job
    assert {"indices", "exclude"}.isdisjoint(_described(job))
    assert _described(replace(job, exclude=(1, 2)))["exclude"] == [1, 2]
