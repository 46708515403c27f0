"""What is registered appears in --help, in `compare` and its page, and in the explorer."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from small_networks import convolutional

import scs_eval
from scs_eval import InputError
from scs_eval.analyses.compare.steps import make_setup, make_steps
from scs_eval.explorer.view import look, offered_attacks, offered_methods
from scs_eval.plugins import code_digest, load_plugin

PLUGIN = """
import numpy as np
import scs_eval
from dataclasses import dataclass
import pandas as pd
from matplotlib.figure import Figure

@scs_eval.register_method("own_map", passes=100)
def own_map(model, images, targets):
    return images - 0.5

@scs_eval.register_attack("own_attack")
def own_attack(model, images, labels, eps):
    return images + eps

@scs_eval.register_metric("own_metric", better=1, head="own metric ↑")
def own_metric(model, images, targets, maps):
    "The largest value."
    return maps.flatten(1).amax(1)

@scs_eval.register_data("own_data")
def own_data():
    data = scs_eval.load_data("sample", n=20)
    return data.images.numpy(), data.labels.numpy(), data.classes

@scs_eval.register_model("own_model", trained=True)
def own_model(num_classes):
    return scs_eval.load_model("rohrer25k_conv")

@dataclass(frozen=True, eq=False, kw_only=True)
class OwnResult(scs_eval.Result):
    name, axes = "own_analysis", {"values": ("image",)}
    values: np.ndarray

    def table(self):
        return pd.DataFrame([{"model": self.label, "value": self.values.mean()}])

    def figure(self, ax=None):
        figure = Figure()
        figure.subplots().hist(self.values)
        return figure

@scs_eval.register_analysis(
    name="own_analysis", question="How bright is it?", command="Measure how bright it is.", size=10,
    metrics=(scs_eval.Headline("brightness", "mean of the pixels", lambda result: result.values),),
)
def own_analysis(task):
    return OwnResult(label=task.label, values=task.images[:].mean((1, 2, 3)).numpy())
"""
KINDS = {
    "methods": "own_map", "attacks": "own_attack", "metrics": "own_metric", "data": "own_data", "models": "own_model",
    "analyses": "own_analysis",
}  # fmt: skip


def run(folder: Path, *words: str) -> str:
    command = [sys.executable, "-m", "scs_eval", *words, "--plugin", "plugin.py"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder, env=environment())
    assert done.returncode == 0, done.stderr
    return done.stdout


def environment() -> dict[str, str]:
    import os

    return {**os.environ, "PYTHONPATH": str(Path(scs_eval.__file__).parents[1])}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A comparison of two models by everything that the plugin brings."""
    folder = tmp_path_factory.mktemp("everywhere")
    (folder / "plugin.py").write_text(PLUGIN)
    run(
        folder, "compare", "own_model", "rohrer25k_scs", "--data", "own_data", "--method", "own_map", "--attack",
        "own_attack", "--metric", "own_metric", "--analyses", "pgd,faithfulness,own_analysis", "--eps", "4/255",
        "--images", "pgd=4", "--images", "faithfulness=6", "--fail-if", "own_metric < 0", "--out", "both",
    )  # fmt: skip
    return folder


def test_every_kind_is_in_the_help(folder):
    for words in (["--help"], ["saliency", "--help"], ["zoo", "train", "--help"]):
        shown = run(folder, *words)
        for kind, name in KINDS.items():
            assert f"{kind}: {name}" in shown
    assert "Measure how bright it is." in run(folder, "--help")
    assert "own_data" in run(folder, "data")


def test_all_of_it_is_in_the_comparison_and_on_its_page(folder):
    import json

    description = json.loads((folder / "both" / "result.json").read_text())
    names = [line[0] for line in description["fields"]["metrics"]]
    assert {"own_metric", "brightness", "pgd@4/255"} <= set(names)
    with np.load(folder / "both" / "arrays.npz") as stored:
        values = stored["outcomes"][names.index("own_metric")][:, :6]
    pictures = scs_eval.load_data("sample", n=20)
    assert np.isin(values, (pictures.images - 0.5).flatten(1).amax(1).numpy()).all(), "of the very images"
    page = (folder / "both" / "report.html").read_text()
    for text in ("own_metric", "The largest value.", "brightness", "mean of the pixels", "own_model", "own_map"):
        assert text in page, text
    assert (folder / "both" / "own_analysis" / "figure.png").is_file(), "two results without a comparison of their own"


def test_the_explorer_offers_it():
    scs_eval.register_method("seen", passes=100)(lambda model, images, targets: images)
    scs_eval.register_attack("brighter")(lambda model, images, labels, eps: images + eps)
    scs_eval.register_metric("mean_value")(lambda model, images, targets, maps: maps.mean((1, 2, 3)))
    assert "seen" in offered_methods()
    assert offered_attacks()[0] == "pgd"
    assert "brighter" in offered_attacks()
    data = scs_eval.load_data("sample", n=2)
    view = look(
        "scs", scs_eval.load_model("rohrer25k_scs"), data, 0, method="seen", class_="predicted", eps=0.1,
        attack_name="brighter",
    )  # fmt: skip
    brighter = (data.images[0] + 0.1).clamp(max=1).permute(1, 2, 0).numpy()
    np.testing.assert_allclose(view.pictures["attacked image"], brighter, atol=1e-6)  # one rounding
    assert any(f"mean_value: {data.images[0].mean():.4g}" in sentence for sentence in view.sentences)


def test_other_code_is_other_work(tmp_path):
    """A plugin that was edited must not be answered from the results of the one before."""
    keys = []
    for number in (1, 2):
        (tmp_path / f"maps{number}.py").write_text(
            f"def edited(model, images, targets):\n    return images * {number}\n"
        )
        function = load_plugin(tmp_path / f"maps{number}.py").edited
        setup = make_setup(
            {"net": convolutional()}, torch.rand(6, 3, 16, 16, generator=torch.Generator().manual_seed(0)), None,
            classes=list("abcde"), analyses=["faithfulness"], indices=None, sizes={}, method=function, eps=(0.1,),
            seed=0, store=None, known={}, twins={},
        )  # fmt: skip
        keys += [step.key for step in make_steps(setup)]
    assert len(set(keys)) == 2
    assert code_digest(len) == "", "a built-in function has no code to look at"


def test_what_no_analysis_reads_is_refused(tmp_path):
    from click.testing import CliRunner

    from scs_eval.cli.main import cli

    for words, message in (
        (["--metric", "quantus:Sparseness"], "--metric is for faithfulness"),
        (["--attack", "fgsm"], "--attack is for pgd"),
        (["--attack", "fgsmm"], "did you mean fgsm"),
    ):
        asked = ["compare", "rohrer25k_scs", "--analyses", "accuracy", *words, "--out", str(tmp_path / "out")]
        with pytest.raises(InputError, match=message):
            raise CliRunner().invoke(cli, asked).exception
