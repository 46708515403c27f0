"""The weights that are shipped: which there are, and that they are as good as their index says."""

from collections import defaultdict
from dataclasses import asdict

import pytest

from scs_eval.analyses.accuracy import accuracy
from scs_eval.data import load_data
from scs_eval.errors import InputError
from scs_eval.models.loading.load import load_model, weights_index
from scs_eval.models.zoo.names import split_seed
from scs_eval.reference.scs_paper import paper_rows
from scs_eval.training.recipe import RECIPES, Recipe

SIZES = "rohrer25k", "rohrer47k", "rohrer68k", "rohrer100k"
OTHERS = {
    *(
        "rohrer100k_cos",
        "rohrer100k_cos_relu",
        "rohrer100k_bcos",
        "rohrer100k_conv_hardened",
        "rohrer100k_scs_hardened",
    ),
    *("rohrer583k_conv", "rohrer583k_scs_maxpool", "rohrer583k_ssdp_maxpool"),
    *("resnet20_conv", "resnet20_bcos", "bcos_cnn9_w=0.25"),
    *(f"bcos_cnn9_w=0.25_b={b}" for b in ("1", "1.25", "1.5", "1.75", "2.25", "2.5")),
}
# What a short schedule should reach; a network below it was trained wrongly.
LEAST = {
    "rohrer100k_scs": 0.81,
    "rohrer100k_conv": 0.825,
    "rohrer100k_ssdp": 0.80,
    "rohrer100k_bcos": 0.82,
    "rohrer100k_scs_relu": 0.80,
    "rohrer100k_scs_maxpool": 0.82,
    "rohrer100k_scs_relu_maxpool": 0.83,
    "rohrer100k_ssdp_maxpool": 0.81,
    "rohrer100k_ssdp_relu_maxpool": 0.82,
    "rohrer583k_scs_maxpool": 0.78,
    "resnet20_conv": 0.87,
    "resnet20_bcos": 0.82,
}


def test_all_rows_of_the_scs_papers_tables_are_trained():
    """Tables 1 and 3 to 6, and further networks; 4 sizes in 10 variants, 2 without ReLU."""
    rows = {name for name in paper_rows() if name.startswith(SIZES)}
    assert len(rows) == 42
    assert {split_seed(name)[0] for name in weights_index()} == rows | OTHERS


def test_a_seed_is_in_the_name_and_seed_0_is_always_there():
    for name, entry in weights_index().items():
        assert split_seed(name)[1] == entry["seed"]
        assert entry["file"] == f"{name}.safetensors"
        assert split_seed(name)[0] in weights_index()
        assert (entry["data"], entry["n"]) == ("cifar10", 10_000)


def test_the_networks_of_an_architecture_had_one_recipe():
    """The fast one to the last number; those that are not trained with it yet had one schedule."""
    found = defaultdict(set)
    for name, entry in weights_index().items():
        if entry["recipe"]["optimizer"] == "muon":
            other = {"epochs": 6, "pgd_eps": 0.0157} if "hardened" in name else {}  # each epoch costs as much as four
            assert {**asdict(Recipe()), **entry["recipe"]} == asdict(RECIPES["fast"]) | other, name
        else:
            layer = "" if name.startswith(("rohrer", "bcos_cnn9")) else name  # ResNets: each paper's own recipe
            found[name.split("_")[0] + layer].add(entry["epochs"])
    assert {len(kinds) for kinds in found.values()} <= {1}


def test_the_trained_networks_are_as_good_as_a_short_schedule_makes_them():
    index = weights_index()
    assert {name: index[name]["accuracy"] for name, least in LEAST.items() if index[name]["accuracy"] < least} == {}


@pytest.mark.parametrize("name", ["rohrer100k_scs", "resnet20_bcos", "bcos_cnn9_w=0.25"])
def test_the_sample_gives_the_recorded_accuracy(name):
    """Within 4 points; 1,000 images have a standard error of 1.3 points at 77 %."""
    data = load_data("sample")
    found = accuracy(load_model(name), data.images, data.labels, classes=data.classes)
    assert float(found.accuracy.estimate) == pytest.approx(weights_index()[name]["accuracy"], abs=0.04)


@pytest.mark.slow
@pytest.mark.parametrize("name", weights_index())
def test_the_whole_test_set_gives_the_recorded_accuracy(name):
    try:
        data = load_data("cifar10")
    except InputError as error:
        pytest.skip(f"CIFAR-10 is not here: {error}")
    found = accuracy(load_model(name), data.images, data.labels, classes=data.classes)
    assert float(found.accuracy.estimate) == pytest.approx(weights_index()[name]["accuracy"], abs=0.001)
