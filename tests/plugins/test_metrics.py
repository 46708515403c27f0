"""Metrics from outside in `faithfulness`, and our methods inside Quantus."""

import json

import numpy as np
import pytest
import quantus
import torch
from click.testing import CliRunner
from small_networks import convolutional

import scs_eval
from scs_eval import InputError
from scs_eval.analyses.attribution.metric_records import METRICS, family
from scs_eval.analyses.catalogue import ENTRIES
from scs_eval.cli.main import cli

IMAGES = torch.rand(6, 3, 16, 16, generator=torch.Generator().manual_seed(5))
OPTIONS = {"classes": list("abcde"), "methods": "grad", "options": scs_eval.FaithfulnessOptions(steps=4)}


def first_pixel(model, images, targets, maps):
    """The map's first value."""
    return maps[:, 0, 0, 0]


def test_a_function_as_a_metric(tmp_path):
    result = scs_eval.faithfulness(convolutional(), IMAGES, metrics=[first_pixel], **OPTIONS)
    targets = convolutional()(IMAGES).argmax(1)
    maps = scs_eval.attribute(convolutional(), IMAGES, targets, method="grad")
    np.testing.assert_allclose(result.own_scores[0, 0], maps[:, 0, 0, 0])
    table = result.tables()["own_metrics"]
    assert table["metric"].unique().tolist() == ["first_pixel"]
    assert table.set_index("method")["mean"]["grad"] == pytest.approx(maps[:, 0, 0, 0].mean().item())
    assert "first_pixel" in result.summary()
    result.save(tmp_path)
    again = scs_eval.load_result(tmp_path)
    assert again.own_table().equals(result.own_table()), "read without the function"
    assert "first_pixel" not in METRICS


def test_a_registered_metric_has_a_direction_and_a_name():
    scs_eval.register_metric(first_pixel, better=-1, head="first ↓")
    result = scs_eval.faithfulness(convolutional(), IMAGES, metrics=["first_pixel"], **OPTIONS)
    assert "first ↓" in result.summary()
    listed = json.loads(CliRunner().invoke(cli, ["metrics", "--json"]).output)
    assert listed[-1]["name"] == "first_pixel"
    assert listed[-1]["formula"] == "The map's first value."
    with pytest.raises(InputError, match="there is a metric 'deletion' already"):
        scs_eval.register_metric("deletion")(first_pixel)
    with pytest.raises(InputError, match="unknown metric 'first_pixl'; did you mean first_pixel"):
        scs_eval.faithfulness(convolutional(), IMAGES, metrics=["first_pixl"], **OPTIONS)


def test_a_metric_may_explain_anew():
    def same_again(model, images, targets, maps, explain, seed):
        return (explain(model, images, targets) - maps).abs().flatten(1).amax(1)

    result = scs_eval.faithfulness(convolutional(), IMAGES, metrics=[same_again], **OPTIONS)
    assert not result.own_scores.any()


def test_a_wrong_shape_is_reported_with_the_name():
    scs_eval.register_metric("broken")(lambda model, images, targets, maps: maps.mean())
    with pytest.raises(InputError, match="the metric 'broken' gave shape"):
        scs_eval.faithfulness(convolutional(), IMAGES, metrics=["broken"], **OPTIONS)
    with pytest.raises(InputError, match="no trait 'beter'; did you mean better"):
        scs_eval.register_metric(first_pixel, beter=1)


@pytest.mark.parametrize("name", ["Sparseness", "Complexity", "EffectiveComplexity"])
def test_quantus_gives_what_quantus_gives(name):
    model = convolutional()
    result = scs_eval.faithfulness(model, IMAGES, metrics=[f"quantus:{name}"], **OPTIONS)
    targets = model(IMAGES).argmax(1)
    maps = scs_eval.attribute(model, IMAGES, targets, method="grad").sum(1, keepdim=True)
    kind = getattr(quantus, name)(disable_warnings=True, display_progressbar=False)
    theirs = kind(model=model, x_batch=IMAGES.numpy(), y_batch=targets.numpy(), a_batch=maps.numpy(), device="cpu")
    np.testing.assert_allclose(result.own_scores[0, 0], theirs)
    own = result.own_metrics[0]
    assert own["better"] == {"HIGHER": 1, "LOWER": -1}[kind.score_direction.name]


def test_quantus_explains_by_our_methods():
    """Its MaxSensitivity asks the explain_func for maps of noisy images."""
    model = convolutional()
    targets = model(IMAGES).argmax(1).numpy()
    metric = quantus.MaxSensitivity(nr_samples=2, disable_warnings=True, display_progressbar=False)
    scores = metric(
        model=model, x_batch=IMAGES.numpy(), y_batch=targets, device="cpu", explain_func=scs_eval.explain_func("ixg")
    )
    assert np.isfinite(scores).all()
    assert (np.array(scores) > 0).all()
    maps = scs_eval.explain_func("ixg")(model=model, inputs=IMAGES.numpy(), targets=targets)
    ours = scs_eval.attribute(model, IMAGES, torch.from_numpy(targets), method="ixg").sum(1, keepdim=True)
    np.testing.assert_array_equal(maps, ours.numpy())


def test_quantus_gives_one_number_where_it_has_several():
    result = scs_eval.faithfulness(convolutional(), IMAGES[:2], metrics=["quantus:MPRT"], **OPTIONS)
    assert np.isfinite(result.own_scores[0]).all()
    with pytest.raises(InputError, match="no metric 'Metric'"):
        scs_eval.faithfulness(convolutional(), IMAGES, metrics=["quantus:Metric"], **OPTIONS)


def test_quantus_in_faithfulness_explains_anew():
    result = scs_eval.faithfulness(convolutional(), IMAGES[:2], metrics=["quantus:RandomLogit"], **OPTIONS)
    assert result.own_scores.shape == (4, 1, 2)
    with pytest.raises(InputError, match="needs masks"):
        scs_eval.faithfulness(convolutional(), IMAGES, metrics=["quantus:PointingGame"], **OPTIONS)
    with pytest.raises(InputError, match="no metric 'Sparsness'; did you mean Sparseness"):
        scs_eval.faithfulness(convolutional(), IMAGES, metrics=["quantus:Sparsness"], **OPTIONS)


def test_records_and_headlines_agree():
    for headline in ENTRIES["faithfulness"].metrics:
        assert METRICS[headline.name].better == headline.better
    assert len(family("first")) + len(family("further")) == len(METRICS)
