"""The whole command, on a plan of a few networks and images: the page, its exhibits, and finished work used again."""

import re
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from click.testing import CliRunner
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from scs_eval import cluster, load_result
from scs_eval.analyses.compare import steps
from scs_eval.analyses.study.result import StudyResult
from scs_eval.cli.main import cli

PLAN = """
title = "A small study"
eps = "0.002,0.01"

[[part]]
name = "rohrer25k"
models = ["rohrer25k_conv", "rohrer25k_scs"]
untrained = ["rohrer25k_scs"]
sizes = { accuracy = 40, saliency = 8 }

[[part]]
name = "nothing"
models = ["vit_*@7"]
sizes = { accuracy = 40 }

[[claim]]
source = "here"
text = "SCS is sparser."
metric = "sparseness"
of = { layer = "scs", activation = "linear", pooling = "maxabspool" }
against = { layer = "conv", activation = "relu", pooling = "maxpool" }

[[claim]]
source = "here"
text = "Training makes SCS sparser."
metric = "sparseness"
of = { trained = true }
against = { trained = false }

[[exhibit]]
name = "Table 3"
words = "Accuracy."
kind = "accuracy"
tables = [3]
parts = ["rohrer25k"]

[[exhibit]]
name = "Figure 9"
words = "Maps <before> and after."
kind = "figure"
analysis = "saliency"
parts = ["rohrer25k"]

[[exhibit]]
name = "Numbers"
words = "Of saliency."
kind = "headlines"
analysis = "saliency"
parts = ["rohrer25k"]

[[exhibit]]
name = "Figure 15"
words = "Robustness."
kind = "robustness"
parts = ["rohrer25k"]
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("study")
    (folder / "mine.toml").write_text(PLAN)
    arguments = ["study", str(folder / "mine.toml"), "--out", str(folder / "out")]
    for piece in ("1/2", "2/2"):
        done = CliRunner().invoke(cli, [*arguments, "--piece", piece, "--log", "tensorboard"], catch_exceptions=False)
        assert done.exit_code == 0, done.output
        assert not (folder / "out").exists(), "a share of the work writes no result"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(steps, "imported", lambda name: pytest.fail("all pieces are finished"))
        done = CliRunner().invoke(cli, arguments, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    assert "Left out: part nothing: no trained model matches" in done.stderr
    assert done.stdout.strip().endswith("report.html")
    return folder / "out"


def test_the_page_has_claims_exhibits_and_what_is_missing(folder: Path) -> None:
    page = (folder / "report.html").read_text()
    for text in (
        "SCS is sparser.",
        "undecided",
        "76.1",
        "Maps &lt;before&gt; and after.",
        "Not remade: pgd of rohrer25k",
    ):
        assert text in page
    addresses = set(re.findall(r"https?://[\w.]*", page))
    assert addresses <= {"http://www.w3.org"}, "names of XML inside charts: nothing is fetched"
    assert {"figure.png", "figure-9.png", "table-3.csv", "numbers.csv"} <= {path.name for path in folder.iterdir()}


def test_every_piece_is_an_event(folder: Path) -> None:
    """Of both shares together: three networks, accuracy of all and three numbers of saliency."""
    events = EventAccumulator(f"{folder}.tensorboard").Reload()
    result = load_result(folder)
    by_model = result.by_part["rohrer25k"]
    wanted = {f"rohrer25k/accuracy/{label}": one.correct.mean() for label, one in labelled(by_model["accuracy"])}
    wanted |= {f"rohrer25k/sparseness/{label}": one.gini.mean() for label, one in labelled(by_model["saliency"])}
    assert {tag: events.Scalars(tag)[0].value for tag in wanted} == pytest.approx(wanted)  # events are float32
    assert len({events.Scalars(tag)[0].step for tag in wanted}) == 6, "each piece at its place among all"


def labelled(results: dict[str, Any]) -> list[tuple[str, Any]]:
    return [(result.label, result) for result in results.values()]


def test_the_result_is_saved_and_loaded(folder: Path) -> None:
    result = load_result(folder)
    assert isinstance(result, StudyResult)
    saved = pd.read_csv(folder / "table.csv")
    assert saved["verdict"].tolist() == result.table()["verdict"].tolist() == ["undecided", "undecided"]
    assert saved["effect"].to_numpy() == pytest.approx(result.table()["effect"].to_numpy(), rel=1e-5)
    assert set(result.by_part["rohrer25k"]["saliency"]) == {
        "rohrer25k_conv",
        "rohrer25k_scs",
        "rohrer25k_scs (untrained)",
    }


def test_effects_are_those_of_the_networks(folder: Path) -> None:
    result = load_result(folder)
    assert isinstance(result, StudyResult)
    maps = result.by_part["rohrer25k"]["saliency"]
    sparser = maps["rohrer25k_scs"].gini.mean() - maps["rohrer25k_conv"].gini.mean()  # type: ignore[attr-defined]
    assert result.table()["effect"].iloc[0] == pytest.approx(sparser)


def test_a_cluster_gets_the_shares_as_an_array_and_a_merge(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    submitted: dict[str, Any] = {}

    def submit(work: Any, *, then: Any, **options: Any) -> dict[str, str]:
        submitted.update(work, **{then[0]: then[1]})
        return dict.fromkeys(submitted, "7")

    monkeypatch.setattr(cluster, "submit", submit)
    words = ["study", "scs-paper", "--out", str(tmp_path / "o"), "--cluster", "slurm", "--jobs", "3"]
    monkeypatch.setattr("sys.argv", ["scs-eval", *words])
    done = CliRunner().invoke(cli, words, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    assert list(submitted) == ["1/3", "2/3", "3/3", "merge"]
    plain = ("study", "scs-paper", "--out", str(tmp_path / "o"))
    assert (submitted["2/3"].words, submitted["2/3"].part) == (plain, ("--piece", "2/3"))
    assert (submitted["merge"].words, submitted["merge"].part) == (plain, ())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nosuch"], "expected a plan"),
        (["scs-paper", "--part", "x"], "expected --part of"),
        (["scs-paper", "--piece", "3/2"], "expected --piece as I/N"),
    ],
)
def test_wrong_requests_are_one_line(arguments: list[str], message: str, tmp_path: Path) -> None:
    done = CliRunner().invoke(cli, ["study", *arguments, "--out", str(tmp_path / "o")])
    assert done.exit_code != 0
    assert message in (str(done.exception) + done.output)
