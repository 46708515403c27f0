"""What users hand to the explanations: it simply works, or it is an InputError of one line."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from scs_eval.analyses.attribution.attribute import attribute
from scs_eval.analyses.attribution.methods import METHODS
from scs_eval.analyses.contributions import contributions
from scs_eval.analyses.contributions.neurons import neurons
from scs_eval.analyses.core.labelled_images import ImageSet
from scs_eval.analyses.faithfulness import FaithfulnessOptions, faithfulness
from scs_eval.analyses.localisation import MosaicOptions, localisation, select_mosaics
from scs_eval.analyses.saliency import SaliencyOptions, saliency
from scs_eval.errors import InputError
from scs_eval.models.explain.decomposition import decompose

IMAGES = torch.rand(4, 3, 8, 8, generator=torch.Generator().manual_seed(0))
LABELS = torch.tensor([0, 1, 2, 3])
CLASSES = tuple("abcd")


def network(classes: int = 4) -> nn.Sequential:
    torch.manual_seed(0)
    layers = nn.Conv2d(3, 5, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(5, classes)
    return nn.Sequential(*layers).eval()


def maps_of(model: Any, images: Any, labels: Any) -> np.ndarray:
    return attribute(model, images, labels, method="ixg").numpy()


def saliency_of(model: Any, images: Any, labels: Any) -> np.ndarray:
    return saliency(model, images, labels, classes=CLASSES, options=SaliencyOptions(target="label")).maps


def faithfulness_of(model: Any, images: Any, labels: Any) -> np.ndarray:
    options = FaithfulnessOptions(steps=4, samples=5)
    return faithfulness(model, images, labels, classes=CLASSES, methods="grad", options=options).maps


def contributions_of(model: Any, images: Any, labels: Any) -> np.ndarray:
    return contributions(model, images, labels).maps


def neurons_of(model: Any, images: Any, labels: Any) -> np.ndarray:
    return neurons(model, images, labels, layer="0", directions=1, channels=[0], top=2).maps


def localisation_of(model: Any, images: Any, labels: Any) -> np.ndarray:
    logits = nn.functional.one_hot(LABELS, 4).float()
    mosaics = select_mosaics({"m": Lookup(logits)}, ImageSet(IMAGES, LABELS, CLASSES), MosaicOptions(side=2, count=1))
    return localisation(model, ImageSet(images, labels, CLASSES), mosaics["m"], method="grad").scores


class Lookup(nn.Module):
    """Logits of the images in their order."""

    def __init__(self, logits: Tensor) -> None:
        super().__init__()
        self.logits = logits

    def forward(self, images: Tensor) -> Tensor:
        return self.logits[: len(images)]


ANALYSES = [maps_of, saliency_of, faithfulness_of, contributions_of, neurons_of, localisation_of]
Analyse = Callable[[Any, Any, Any], np.ndarray]


@pytest.mark.parametrize("analyse", ANALYSES)
def test_images_with_a_gradient(analyse: Analyse) -> None:
    np.testing.assert_array_equal(
        analyse(network(), IMAGES.clone().requires_grad_(), LABELS), analyse(network(), IMAGES, LABELS)
    )


@pytest.mark.parametrize("analyse", ANALYSES)
def test_arrays_and_lists(analyse: Analyse) -> None:
    wanted = analyse(network(), IMAGES, LABELS)
    np.testing.assert_array_equal(analyse(network(), IMAGES.numpy(), LABELS.numpy()), wanted)
    np.testing.assert_array_equal(analyse(network(), IMAGES.tolist(), LABELS.tolist()), wanted)


@pytest.mark.parametrize("analyse", ANALYSES)
def test_in_inference_mode(analyse: Analyse) -> None:
    wanted = analyse(network(), IMAGES, LABELS)
    model = network()
    with torch.inference_mode():
        np.testing.assert_array_equal(analyse(model, IMAGES.clone(), LABELS.clone()), wanted)


def test_decompose_in_inference_mode() -> None:
    model, wanted = network(), decompose(network(), IMAGES, LABELS)
    with torch.inference_mode():
        found = decompose(model, IMAGES.clone(), LABELS.clone())
    assert torch.equal(found.weights, wanted.weights)
    assert torch.equal(found.bias, wanted.bias)


@pytest.mark.parametrize("analyse", ANALYSES)
@pytest.mark.parametrize(
    ("model", "message"),
    [
        ("resnet20_bco", "resnet20_bco"),
        (torch.sin, "expected a model"),
        (network().half(), "call model.float"),
        (network().bfloat16(), "got bfloat16"),
    ],
    ids=["name", "function", "float16", "bfloat16"],
)
def test_what_is_no_model(analyse: Analyse, model: Any, message: str) -> None:
    with pytest.raises(InputError) as error:
        analyse(model, IMAGES, LABELS)
    assert message in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("analyse", ANALYSES)
@pytest.mark.parametrize(
    ("images", "labels", "message"),
    [
        (IMAGES, LABELS[:3], "got torch.int64 (3,)"),
        (IMAGES, torch.arange(5), "got torch.int64 (5,)"),
        (IMAGES, LABELS[:, None], "(4, 1)"),
        ([[1, 2], [3]], LABELS, "expected images as a tensor or an array"),
        ("images", LABELS, "expected images as a tensor or an array"),
    ],
    ids=["few", "many", "columns", "ragged", "text"],
)
def test_what_does_not_go_together(analyse: Analyse, images: Any, labels: Any, message: str) -> None:
    with pytest.raises(InputError) as error:
        analyse(network(), images, labels)
    assert message in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("name", [name for name, method in METHODS.items() if "attention" not in method.needs])
def test_maps_of_a_model_with_one_logit(name: str) -> None:
    """A logit can be explained without another; the probability of an only class is always 1."""
    targets = torch.zeros(4, dtype=torch.long)
    if METHODS[name].on == "probability":
        with pytest.raises(InputError, match="always 1"):
            attribute(network(1), IMAGES, targets, method=name)
    else:
        assert attribute(network(1), IMAGES, targets, method=name).isfinite().all()


def test_analyses_of_a_model_with_one_logit() -> None:
    targets = torch.zeros(4, dtype=torch.long)
    for analyse in (saliency, faithfulness):
        with pytest.raises(InputError, match="at least two classes, got 1"):
            analyse(network(1), IMAGES, targets, classes=list("a"))
