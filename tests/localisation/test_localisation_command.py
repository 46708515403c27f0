"""`scs-eval localisation`: which grids it plays, what it writes, resumes and refuses, and what it says."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from click.testing import CliRunner
from few_images import use_few_images

from scs_eval.analyses.localisation import localisation
from scs_eval.analyses.localisation.result import LocalisationResult
from scs_eval.cli.commands import localisation as cli
from scs_eval.cli.data_request import DataRequest
from scs_eval.data import ImageData
from scs_eval.errors import InputError
from scs_eval.models.loading import load, sources
from scs_eval.models.zoo.registry import create_model
from scs_eval.progress import Advance


@pytest.fixture
def few_images(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> ImageData:
    return use_few_images(monkeypatch, tmp_path, n=60)


def run(*arguments: str, models: tuple[str, ...] = ("rohrer100k_scs",)) -> tuple[str, Exception | None]:
    asked = [part for model in models for part in ("--model", model)]
    found = CliRunner().invoke(cli.command, [*asked, "--grid", "2", *arguments])
    assert found.exception is None or isinstance(found.exception, InputError | SystemExit), found.exception
    return found.output, found.exception  # type: ignore[return-value]


def test_command_writes_and_replays(few_images: ImageData) -> None:
    models = ("rohrer100k_scs", "rohrer100k_conv")
    output, error = run("-n", "2", "--method", "wx", "--method", "guided-backprop", "--top", "0.025", models=models)
    assert error is None
    folder = Path("results/localisation/rohrer100k_scs+rohrer100k_conv")
    assert output.splitlines()[-1] == str(folder)
    assert "Left out: rohrer100k_scs, guided-backprop" in output
    assert "windows of 32, stride 16" in output
    assert {"figure.pdf", "examples.png", "top.png", "grids.csv", "scores.csv", "tests.csv"} <= {
        path.name for path in folder.iterdir()
    }
    assert [path.name for path in folder.parent.iterdir()] == [folder.name]  # nothing unfinished is left
    listed = pd.read_csv(folder / "grids.csv")
    assert set(listed["index"]) <= set(few_images.indices.tolist())
    assert json.loads((folder / "run.json").read_text())["settings"]["smooth"] == 3
    _, error = run("--grids", str(folder / "grids.csv"), "--out", "again")
    assert error is None
    _, error = run("--grids", str(folder / "grids.csv"), "-n", "1", "--out", "one")
    assert error is None
    assert len(pd.read_csv("one/grids.csv")) == 4
    first, again = (pd.read_csv(path / "scores.csv") for path in (folder, Path("again")))
    mine = first[(first["model"] == "rohrer100k_scs") & (first["method"] == "wx")].reset_index(drop=True)
    np.testing.assert_allclose(again["score"], mine["score"], rtol=1e-5)


def test_command_draws_the_sweep(few_images: ImageData, monkeypatch: pytest.MonkeyPatch) -> None:
    """Untrained stand-ins for the trained zoo, which are told what to answer."""
    zoo = ["bcos_cnn9_w=0.125_b=1", "bcos_cnn9_w=0.125"]
    sure = 9 * torch.nn.functional.one_hot(few_images.labels, 10).float()
    monkeypatch.setattr(sources, "trained_models", lambda: zoo)
    monkeypatch.setattr(load, "open_source", lambda name, **_: load.Loaded(create_model(name).eval(), name))
    monkeypatch.setattr(cli, "predict_all", lambda session, _: dict.fromkeys(session.models, sure))
    _, error = run("-n", "1", models=("bcos_cnn9*",))
    assert error is None
    assert Path("results/localisation/bcos_cnn9/sweep.png").exists()


def test_command_chooses_from_some_images(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []

    def read(_asked: DataRequest, **options: object) -> ImageData:
        asked.append(options["n"])
        raise InputError("seen enough")

    monkeypatch.setattr(DataRequest, "read", read)
    run("--images", "300")
    run()
    assert asked == [300, None]


def test_command_says_when_images_run_out(few_images: ImageData) -> None:
    output, error = run("--method", "grad", "--protocol", "bcos-v2")
    assert error is None
    assert "of 500 grids of rohrer100k_scs: the images ran out" in output
    table = pd.read_csv("results/localisation/rohrer100k_scs/table.csv")
    assert table["grids"].item() < table["asked"].item() == 500
    assert table["dropped"].item() == 60 - round(60 * table["accuracy"].item())


class Watcher(Advance):
    """What bars are told; the game's is interrupted after so many grids."""

    def __init__(self, stop: int = 10**9) -> None:
        super().__init__()
        self.stop, self.label, self.told = stop, "", []  # type: ignore[var-annotated]

    @contextmanager
    def bar(self, label: str, length: int) -> Iterator["Watcher"]:
        self.label = label
        self.told.append((label, length))
        yield self

    def __call__(self, count: int, item: object = None) -> None:
        if count:
            self.told.append((self.label, count))
            if self.label == "localisation" and len(self.steps()) > self.stop:
                raise KeyboardInterrupt

    def resume(self, count: int) -> None:
        self.told.append(("resumed", count))

    def steps(self) -> list[int]:
        """How long the game's bar is, and its steps."""
        return [told[1] for told in self.told if told[0] == "localisation"]


def test_interrupted_commands_go_on(few_images: ImageData, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = ["-n", "3", "--batch-size", "1"]
    assert run(*asked, "--out", "whole")[1] is None
    monkeypatch.setattr(cli, "progress", Watcher(stop=1).bar)
    found = CliRunner().invoke(cli.command, ["--model", "rohrer100k_scs", "--grid", "2", *asked, "--out", "again"])
    assert isinstance(found.exception, SystemExit)  # click's way to end when interrupted
    with np.load(".again.partial/rohrer100k_scs+wx.npz", allow_pickle=False) as arrays:
        assert arrays["scores"].shape == (1, 4)
    watcher = Watcher()
    monkeypatch.setattr(cli, "progress", watcher.bar)
    assert run(*asked, "--out", "again")[1] is None
    assert watcher.told[:2] == [("predictions", 60), ("predictions", 60)]
    assert ("resumed", 1) in watcher.told
    assert watcher.steps() == [3, 1, 1]  # of three, two are left
    whole, again = (pd.read_csv(f"{folder}/scores.csv") for folder in ("whole", "again"))
    pd.testing.assert_frame_equal(whole, again)
    assert not Path(".again.partial").exists()


def test_a_job_that_fails_loses_no_other(few_images: ImageData, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*arguments: object, **options: object) -> LocalisationResult:
        if options["method"] == "ixg":
            raise RuntimeError("something is broken")
        return localisation(*arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr("scs_eval.analyses.localisation.localisation", fails)
    methods = ["--method", "ixg", "--method", "grad"]
    asked = ["--model", "rohrer100k_scs", "--grid", "2", "-n", "1", "--out", "some"]
    found = CliRunner().invoke(cli.command, [*asked, *methods])
    assert isinstance(found.exception, RuntimeError)
    assert "Failed: rohrer100k_scs, ixg: RuntimeError: something is broken" in found.output
    assert pd.read_csv("some/table.csv")["method"].tolist() == ["grad"]
    assert Path(".some.partial").exists()  # the same command goes on from there
    found = CliRunner().invoke(cli.command, [*asked[:-1], "none", *methods[:2]])
    assert isinstance(found.exception, RuntimeError)
    assert not Path("none").exists()


@pytest.fixture
def told_apart(few_images: ImageData, monkeypatch: pytest.MonkeyPatch) -> tuple[str, str]:
    """Two models, of which the second has every other image wrong and is surest of what the first is least sure of."""
    sure = (5 + torch.linspace(0, 5, 60))[:, None] * torch.nn.functional.one_hot(few_images.labels, 10).float()
    other = (5 + torch.linspace(5, 0, 60))[:, None] * torch.nn.functional.one_hot(few_images.labels, 10).float()
    other[::2] = other[::2].roll(1, 1)
    names = ("rohrer100k_scs", "rohrer100k_conv")
    told = dict(zip(names, (sure, other), strict=True))
    monkeypatch.setattr(cli, "predict_all", lambda session, _: {name: told[name] for name in session.models})
    return names


def listed(folder: str) -> dict[str, list[int]]:
    table = pd.read_csv(f"{folder}/grids.csv")
    return {str(model): part["index"].tolist() for model, part in table.groupby("model")}


def test_models_of_one_command_share_their_grids(told_apart: tuple[str, str], few_images: ImageData) -> None:
    right_for_both = set(few_images.indices[1::2].tolist())
    assert run("-n", "1", "--method", "grad", "--out", "shared", models=told_apart)[1] is None
    assert set(listed("shared")) == {"all"}
    assert set(listed("shared")["all"]) <= right_for_both
    assert run("-n", "1", "--method", "grad", "--own-grids", "--out", "own", models=told_apart)[1] is None
    own = listed("own")
    assert set(own) == set(told_apart)
    assert own[told_apart[0]] != own[told_apart[1]]
    assert set(own[told_apart[1]]) <= right_for_both
    assert not set(own[told_apart[0]]) <= right_for_both  # what the other has wrong does not matter


def test_replayed_grids_are_held_to_what_is_asked(told_apart: tuple[str, str], few_images: ImageData) -> None:
    assert run("-n", "2", "--method", "grad", "--out", "one")[1] is None
    replayed = ("--method", "grad", "--grids", "one/grids.csv")
    output, error = run(*replayed, "-n", "5", "--out", "again", models=told_apart)
    assert error is None
    assert output.count("Only 2 of 5 grids: there are no more in one/grids.csv") == 1
    wrong = len(set(listed("one")["rohrer100k_scs"]) & set(few_images.indices[::2].tolist()))
    assert wrong > 0
    assert f"Warning: rohrer100k_conv has {wrong} of the grids' 8 images wrong" in output
    assert "Warning: rohrer100k_scs" not in output
    assert pd.read_csv("again/table.csv")["wrong"].tolist() == [0, wrong]
    assert f"replayed, {wrong} of 8 wrong" in output
    _, error = run(*replayed, "--grid", "3")
    assert isinstance(error, InputError)
    assert "expected --grid 2, as in one/grids.csv" in str(error)
    found = CliRunner().invoke(cli.command, ["--model", "rohrer100k_scs", *replayed, "--out", "plain"])
    assert found.exception is None
    assert pd.read_csv("plain/table.csv")["grid"].item() == "2x2"


def test_methods_that_are_not_the_published_ones(told_apart: tuple[str, str]) -> None:
    output, error = run("--protocol", "bcos-v2", "-n", "1", "--method", "wx", "--method", "normgrad")
    assert error is None
    assert "Warning: maps by normgrad are ours; bcos-v2" in output
    output, error = run("-n", "1", "--method", "normgrad")
    assert error is None
    assert "are ours" not in output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--method", "wxx"), "unknown method"),
        (("--smooth", "2"), "odd kernel"),
        (("--batch-size", "0"), "batch_size as a whole number of at least 1"),
        (("-n", "0"), "at least 1"),
        (("--look", "whole"), "let it look at windows"),
        (("--square", "3"), "--square is for occlusion, got wx"),
        (("--grids", "nothing.csv"), "expected a list of grids"),
        (("--method", "guided-backprop"), "needs ReLU modules"),
        (("--data", "no/such/folder"), "no/such/folder"),
    ],
)
def test_bad_commands_leave_nothing(few_images: ImageData, arguments: tuple[str, ...], message: str) -> None:
    _, error = run(*arguments)
    assert isinstance(error, InputError)
    assert message in str(error)
    assert not Path("results/localisation/rohrer100k_scs").exists()
