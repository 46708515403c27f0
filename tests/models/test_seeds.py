"""`NAME@3` is the network trained with seed 3: in names, in loading, in patterns, in what is suggested."""

import pytest
import torch

from scs_eval.errors import InputError
from scs_eval.models.loading.load import load_model, trained_seeds
from scs_eval.models.loading.sources import parse_sources
from scs_eval.models.zoo.counterparts import twins
from scs_eval.models.zoo.names import split_seed, with_seed
from scs_eval.models.zoo.parameter_counts import parameter_count
from scs_eval.models.zoo.registry import canonical_name, create_model, input_size

INDEX = dict.fromkeys(["rohrer100k_scs@2", "rohrer25k_conv", "rohrer100k_scs@10", "rohrer100k_scs", "resnet20_conv@1"])


@pytest.fixture
def _trained(monkeypatch):
    monkeypatch.setattr("scs_eval.models.loading.load.weights_index", lambda: INDEX)


def test_a_name_and_its_seed():
    assert split_seed("rohrer100k_scs@3") == ("rohrer100k_scs", 3)
    assert split_seed("rohrer100k_scs") == ("rohrer100k_scs", 0)
    assert split_seed("me@home/file.pt") == ("me@home/file.pt", 0)  # no number behind the @
    assert with_seed(*split_seed("a@12")) == "a@12"
    assert canonical_name("rohrer100k_scs_linear@3") == "rohrer100k_scs@3"
    assert canonical_name("rohrer100k_scs@0") == "rohrer100k_scs"


def test_the_seed_is_no_part_of_the_architecture():
    assert input_size("resnet18_224_conv@7") == 224
    assert parameter_count("rohrer100k_scs@7") == parameter_count("rohrer100k_scs")
    with pytest.raises(InputError, match="did you mean rohrer100k_scs"):
        canonical_name("rohrer100k_sccs@3")


def test_an_untrained_network_starts_from_the_seed_of_its_name():
    named, given = create_model("rohrer25k_scs@3"), create_model("rohrer25k_scs", seed=3)
    other = create_model("rohrer25k_scs")
    for key, value in named.state_dict().items():
        assert torch.equal(value, given.state_dict()[key])
    assert not torch.equal(named.head.weight, other.head.weight)


def test_all_variants_of_a_seed_start_from_the_same_kernels():
    for seed in (0, 3):
        kernels = [create_model(f"rohrer100k_{layer}@{seed}").stages[1] for layer in ("conv", "scs", "ssdp", "bcos")]
        weights = [next(p for p in stage.parameters() if p.ndim == 4 and p.shape[-1] == 3) for stage in kernels]
        assert all(torch.equal(weight, weights[0]) for weight in weights)


def test_a_convolution_twin_of_the_same_seed_comes_first():
    assert twins("rohrer100k_scs@2")[:2] == ["rohrer100k_conv_linear_maxabspool@2", "rohrer100k_conv@2"]
    assert twins("rohrer100k_scs")[-1] == "rohrer100k_conv"


def choose_models(patterns):
    return [asked.source for asked in parse_sources(patterns)]


@pytest.mark.usefixtures("_trained")
def test_patterns_choose_seeds_only_if_they_say_so():
    assert choose_models(["rohrer100k*"]) == ["rohrer100k_scs"]
    assert choose_models(["rohrer100k_scs@*"]) == ["rohrer100k_scs", "rohrer100k_scs@2", "rohrer100k_scs@10"]
    assert choose_models(["*@1"]) == ["resnet20_conv@1"]
    assert len(choose_models(["*@*"])) == len(INDEX)
    assert choose_models(["rohrer100k_scs@2"]) == ["rohrer100k_scs@2"]


@pytest.mark.usefixtures("_trained")
def test_a_seed_that_was_not_trained_is_answered_with_those_that_were():
    assert trained_seeds("rohrer100k_scs@5") == [0, 2, 10]
    with pytest.raises(InputError, match=r"no trained weights for 'rohrer100k_scs@5' \(trained with seed 0, 2, 10\)"):
        load_model("rohrer100k_scs@5")


def test_a_pattern_means_hardened_networks_only_where_it_says_so():
    named = [source.source for source in parse_sources(["rohrer100k_conv*"])]
    assert "rohrer100k_conv" in named
    assert not [name for name in named if "hardened" in name]
    assert [source.source for source in parse_sources(["*conv_hardened"])] == ["rohrer100k_conv_hardened"]
