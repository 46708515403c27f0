"""`scs-eval zoo collect`: finished runs become shipped weights, all of them or none."""

import json

import pytest
from click.testing import CliRunner
from safetensors.torch import save_file

from scs_eval import create_model
from scs_eval.cli.commands._collect import command
from scs_eval.errors import InputError
from scs_eval.reference.epochs import paper_epochs

SAID = {
    "name": "rohrer25k_scs",
    "num_classes": "10",
    "data": "cifar10",
    "recipe": '{"epochs": 3}',
    "epochs": "3",
    "seed": "0",
    "test_accuracy": "0.75",
    "test_correct": "7500",
    "test_images": "10000",
    "train_seconds_per_epoch": "2.5",
    "eval_seconds_per_epoch": "0.5",
    "torch": "2.5",
}


def finished(folder, stem="rohrer25k_scs", **changes):
    folder.mkdir(parents=True)
    metadata = {key: value for key, value in {**SAID, **changes}.items() if value is not None}
    save_file(create_model("rohrer25k_scs").state_dict(), folder / f"{stem}.safetensors", metadata=metadata)


def collect(runs, into):
    return CliRunner().invoke(command, [str(runs), "--into", str(into)], catch_exceptions=False)


def test_index_says_what_the_files_say(tmp_path):
    finished(tmp_path / "runs" / "a")
    assert collect(tmp_path / "runs", tmp_path / "weights").exit_code == 0
    entry = json.loads((tmp_path / "weights" / "index.json").read_text())["rohrer25k_scs"]
    assert entry["accuracy"] == 0.75
    assert entry["paper_accuracy"] == 0.7745  # Table 3
    assert (entry["epochs"], entry["paper_epochs"]) == (3, 800)
    low, high = entry["interval"]
    assert low == pytest.approx(0.7414, abs=2e-4)  # Wilson: 0.75 ± 1.96·√(0.75·0.25/10⁴), drawn a little to 1/2
    assert high == pytest.approx(0.7584, abs=2e-4)
    assert (tmp_path / "weights" / entry["file"]).is_file()


def test_seeds_of_a_model_stand_beside_one_another(tmp_path):
    finished(tmp_path / "runs" / "a")
    finished(tmp_path / "runs" / "b", stem="rohrer25k_scs@3", seed="3", test_correct="7600", test_accuracy="0.76")
    assert collect(tmp_path / "runs", tmp_path / "weights").exit_code == 0
    index = json.loads((tmp_path / "weights" / "index.json").read_text())
    assert {name: (entry["seed"], entry["accuracy"]) for name, entry in index.items()} == {
        "rohrer25k_scs": (0, 0.75),
        "rohrer25k_scs@3": (3, 0.76),
    }


def test_other_data_have_no_figures_of_a_paper(tmp_path):
    finished(tmp_path / "runs" / "a", data="my_images")
    collect(tmp_path / "runs", tmp_path / "weights")
    entry = json.loads((tmp_path / "weights" / "index.json").read_text())["rohrer25k_scs"]
    assert (entry["paper_accuracy"], entry["paper_epochs"]) == (None, None)


def test_without_into_nothing_is_written(tmp_path, monkeypatch):
    finished(tmp_path / "runs" / "a")
    monkeypatch.setattr("scs_eval.cli.commands._collect.write_atomically", None)
    shown = CliRunner().invoke(command, [str(tmp_path / "runs")], catch_exceptions=False)
    assert "rohrer25k_scs: 75.00%" in shown.output


def test_epochs_of_a_paper_are_said_of_its_own_networks_only():
    assert paper_epochs("rohrer100k_scs") == 800
    assert paper_epochs("rohrer100k_bcos") is None
    assert paper_epochs("resnet20_bcos") == 100
    assert paper_epochs("resnet20_conv") is None  # the B-cos paper quotes others for it
    assert paper_epochs("bcos_cnn9_w=0.25_b=1") == 100
    assert paper_epochs("resnet18_224_scs") == 200


@pytest.mark.parametrize(
    ("stem", "changes"),
    [
        ("rohrer25k_scs", {"test_correct": None}),
        ("renamed", {}),
        ("rohrer25k_scs", {"name": "rohrer47k_scs"}),
        ("rohrer25k_scs@1", {}),
        ("rohrer25k_scs@1", {"seed": "1", "validation": "5000"}),
    ],
)
def test_nothing_is_written_if_one_run_is_wrong(tmp_path, stem, changes):
    finished(tmp_path / "runs" / "a")
    finished(tmp_path / "runs" / "b", stem=stem, **changes)
    with pytest.raises(InputError):
        collect(tmp_path / "runs", tmp_path / "weights")
    assert not (tmp_path / "weights").exists()


def test_no_runs_and_two_runs_of_one_model(tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="no finished run"):
        collect(tmp_path / "empty", tmp_path / "weights")
    finished(tmp_path / "runs" / "a")
    finished(tmp_path / "runs" / "b")
    with pytest.raises(InputError, match="same model"):
        collect(tmp_path / "runs", tmp_path / "weights")
