"""Results are handed around as other packages' objects are: as frames, mappings, copies and pickles."""

import copy
import pickle

import numpy as np
import pandas as pd
import pytest

import scs_eval
from scs_eval import InputError

MODELS = ("rohrer25k_scs", "rohrer25k_conv", "rohrer25k_ssdp")


@pytest.fixture(scope="module")
def results():
    data = scs_eval.load_data("sample", n=20)
    return [
        scs_eval.accuracy(scs_eval.load_model(name), data.images, data.labels, classes=data.classes, label=name)
        for name in MODELS
    ]


def test_frames_and_mappings(results):
    one, several = results[0], scs_eval.side_by_side(results)
    pd.testing.assert_frame_equal(one.to_dataframe(), one.table())
    assert several.to_dataframe()["model"].tolist() == list(MODELS)
    plain = several.to_dict()
    assert [each["label"] for each in plain["results"]] == list(MODELS)
    assert np.array_equal(plain["results"][0]["predictions"], one.predictions)
    plain["results"][0]["predictions"][:] = -1
    assert (one.predictions >= 0).all(), "a copy"


@pytest.mark.parametrize("again", [copy.copy, copy.deepcopy, lambda each: pickle.loads(pickle.dumps(each))])
def test_copies_and_pickles(results, again):
    for result in (results[0], scs_eval.side_by_side(results)):
        result.summary()  # which derives and keeps things
        same = again(result)
        assert type(same) is type(result)
        pd.testing.assert_frame_equal(same.table(), result.table())
        assert all(np.array_equal(array, same.arrays()[key]) for key, array in result.arrays().items())
        same.figure()


def test_comparisons_side_by_side(results):
    nested = scs_eval.side_by_side([scs_eval.side_by_side(results[:2]), results[2]])
    assert [one.label for one in nested.results] == list(MODELS)
    with pytest.raises(InputError, match="distinct labels"):
        scs_eval.side_by_side([scs_eval.side_by_side(results[:2]), results[0]])
    with pytest.raises(InputError, match="got none"):
        scs_eval.side_by_side([])
