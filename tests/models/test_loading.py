"""Trained weights: what ships loads strictly and is checked; what is not a checkpoint is refused in one line."""

import argparse
import hashlib
import pickle

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from scs_eval import InputError, create_model, load_model
from scs_eval.models.loading.load import WEIGHTS, weights_index


def saved(tmp_path, name="rohrer25k_scs", metadata=None, **state):
    path = tmp_path / "model.safetensors"
    model = create_model(name, seed=5)
    save_file({**model.state_dict(), **state}, path, metadata={"name": name} if metadata is None else metadata)
    return path, model


def test_a_file_gives_the_model_back_in_evaluation_mode(tmp_path):
    path, model = saved(tmp_path)
    loaded = load_model(path)
    assert not loaded.training
    x = torch.rand(2, 3, 32, 32)
    assert torch.equal(loaded(x), model.eval()(x))


def test_number_of_classes_comes_from_the_metadata(tmp_path):
    path = tmp_path / "seven.safetensors"
    save_file(
        create_model("rohrer25k_conv", num_classes=7).state_dict(),
        path,
        metadata={"name": "rohrer25k_conv", "num_classes": "7"},
    )
    assert load_model(path)(torch.rand(1, 3, 32, 32)).shape == (1, 7)


def test_every_shipped_weight_loads_and_matches_its_hash():
    for name, entry in weights_index().items():
        assert hashlib.sha256((WEIGHTS / entry["file"]).read_bytes()).hexdigest() == entry["sha256"]
        assert not load_model(name).training
    assert {path.name for path in WEIGHTS.glob("*.safetensors")} == {e["file"] for e in weights_index().values()}
    assert sum(path.stat().st_size for path in WEIGHTS.glob("*.safetensors")) <= 40e6


def test_a_damaged_shipped_weight_is_refused(tmp_path, monkeypatch):
    path, _ = saved(tmp_path)
    entry = {"rohrer25k_scs": {"file": path.name, "sha256": hashlib.sha256(path.read_bytes()).hexdigest()}}
    monkeypatch.setattr("scs_eval.models.loading.load.WEIGHTS", tmp_path)
    monkeypatch.setattr("scs_eval.models.loading.load.weights_index", lambda: entry)
    assert not load_model("rohrer25k_scs_linear").training  # any spelling of the name
    damaged = bytearray(path.read_bytes())
    damaged[-1] ^= 1
    path.write_bytes(damaged)
    with pytest.raises(InputError, match="sha256"):
        load_model("rohrer25k_scs")


def test_what_is_no_checkpoint_is_refused_in_one_line(tmp_path):
    with pytest.raises(InputError, match="no such file"):
        load_model(tmp_path / "missing.safetensors")
    with pytest.raises(InputError, match="no trained weights for 'resnet56_bcos_gn'"):
        load_model("resnet56_bcos_gn")
    with pytest.raises(InputError, match="did you mean"):
        load_model("rohrer100k_sc")
    whole, _ = saved(tmp_path)
    torch.save(create_model("rohrer25k_scs").state_dict(), tmp_path / "whole.pt")
    cases = {
        "empty.safetensors": (b"", "is empty"),
        "empty.pt": (b"", "is empty"),
        "text.safetensors": (b"garbage" * 100, "not a whole safetensors file"),
        "text.pt": (b"garbage" * 100, "not a torch checkpoint or is damaged"),
        "half.safetensors": (whole.read_bytes()[:9000], "not a whole safetensors file"),
        "half.pt": ((tmp_path / "whole.pt").read_bytes()[:9000], "not a torch checkpoint or is damaged"),
    }
    for name, (content, why) in cases.items():
        (tmp_path / name).write_bytes(content)
        with pytest.raises(InputError, match=why) as caught:
            load_model(tmp_path / name)
        assert "\n" not in str(caught.value)


def test_weights_that_do_not_fit_say_what_is_missing(tmp_path):
    path, _ = saved(tmp_path, metadata={"name": "rohrer47k_scs"})
    with pytest.raises(InputError, match=r"do not fit rohrer47k_scs: size mismatch for stages.0.layer.weight"):
        load_model(path)
    path, _ = saved(tmp_path, extra=torch.zeros(1))
    with pytest.raises(InputError, match="missing nothing; unexpected extra"):
        load_model(path)
    path, _ = saved(tmp_path, **{"head.bias": torch.full((10,), torch.nan)})
    with pytest.raises(InputError, match="NaN or infinity"):
        load_model(path)


class Trap:
    """Unpickling this would create a file."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return (open, (str(self.path), "w"))


def test_what_training_scripts_keep_beside_the_weights_is_harmless(tmp_path):
    """Options as timm, DINO or MAE save them, numpy's numbers, an optimizer; what would run code is refused there."""
    model = create_model("rohrer25k_conv", seed=2).eval()
    beside = {"args": argparse.Namespace(lr=0.1), "best": np.float64(0.9), "steps": np.int64(3)}
    beside["optimizer"] = torch.optim.Adam(model.parameters()).state_dict()
    torch.save({"model": model.state_dict(), **beside}, tmp_path / "a.pt")
    image = torch.rand(1, 3, 32, 32)
    assert torch.equal(load_model(tmp_path / "a.pt", arch="rohrer25k_conv")(image), model(image))
    trap = argparse.Namespace(lr=Trap(tmp_path / "sprung"))
    torch.save({"model": model.state_dict(), "args": trap}, tmp_path / "b.pt")
    with pytest.raises(InputError, match="could run code"):
        load_model(tmp_path / "b.pt", arch="rohrer25k_conv")
    assert not (tmp_path / "sprung").exists()


@pytest.mark.parametrize("write", [lambda x, path: path.write_bytes(pickle.dumps(x)), torch.save])
def test_a_pickle_is_never_run(tmp_path, write):
    write({"state_dict": {"head.weight": torch.zeros(2)}, "more": Trap(tmp_path / "sprung")}, tmp_path / "trap.pt")
    with pytest.raises(InputError, match=r"could run code when it is loaded.*: refused") as caught:
        load_model(tmp_path / "trap.pt")
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "sprung").exists()
