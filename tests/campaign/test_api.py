"""The library called with what a user may hold in hand: it works, or one line says why."""

import contextlib
import copy
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hostile import refused, works_or_refused
from torch import nn

import scs_eval
from scs_eval.analyses.catalogue import ENTRIES
from scs_eval.analyses.certify.options import CertifyOptions
from scs_eval.analyses.detect.options import DetectOptions


def _localisation(model: Any, images: Any, labels: Any, *, classes: Any, **more: Any) -> Any:
    known = data()
    mosaics = scs_eval.select_mosaics({"a": network()}, known, scs_eval.MosaicOptions(side=2, count=1))["a"]
    given = scs_eval.ImageData(images, labels, classes, known.indices, source="here")
    return scs_eval.localisation(model, given, mosaics, **more)


def _named(function: Callable[..., Any], **fixed: Any) -> Callable[..., Any]:
    """The analysis with class names that fit, unless others are given."""
    return lambda model, images, labels, classes=None, **more: function(
        model, images, labels, classes=data().classes if classes is None else classes, **fixed, **more
    )


FEW = scs_eval.FaithfulnessOptions(steps=2, samples=2)
ANALYSES: dict[str, Callable[..., Any]] = {
    "accuracy": _named(scs_eval.accuracy),
    "calibration": _named(scs_eval.calibration),
    "saliency": _named(scs_eval.saliency),
    "contributions": _named(scs_eval.contributions),
    "neurons": _named(scs_eval.neurons, layer="head", channels=[0]),
    "faithfulness": _named(
        scs_eval.faithfulness, methods="grad", options=scs_eval.FaithfulnessOptions(steps=2, samples=2)
    ),
    "localisation": _named(_localisation),
    "pgd": _named(scs_eval.pgd, eps=[0.01], options=scs_eval.PgdOptions(scorecard=None)),
    "corruptions": _named(scs_eval.corruptions, names=["brightness"]),
    "detect": _named(scs_eval.detect, options=DetectOptions(eps=(0.01,))),
    "certify": _named(scs_eval.certify, options=CertifyOptions(samples=20, guesses=5, attack=False)),
    "compare": _named(
        lambda model, images, labels, **more: scs_eval.compare(
            {"a": model}, images, labels, analyses=["accuracy"], **more
        )
    ),
}
ALL = {**ANALYSES, "attribute": scs_eval.attribute}
OTHERS = {"scorecard", "study", "dynamics"}  # below, of a plan, of records


def test_every_analysis_is_here() -> None:
    assert ANALYSES.keys() | OTHERS == {name for name, entry in ENTRIES.items() if entry.function}


def data() -> scs_eval.ImageData:
    return scs_eval.load_data("sample", n=10)


def network() -> nn.Module:
    return scs_eval.load_model("rohrer25k_conv")


BAD: dict[str, Callable[[Any, Any], tuple[Any, Any]]] = {
    "normalised images": lambda x, y: (x * 4 - 2, y),
    "bytes": lambda x, y: ((x * 255).byte(), y),
    "nan": lambda x, y: (x * float("nan"), y),
    "no images": lambda x, y: (x[:0], y[:0]),
    "grey": lambda x, y: (x[:, :1], y),
    "one image without batch": lambda x, y: (x[0], y[:1]),
    "channels last": lambda x, y: (x.permute(0, 2, 3, 1), y),
    "fewer labels": lambda x, y: (x, y[:-1]),
    "labels beyond the classes": lambda x, y: (x, y + 100),
    "negative labels": lambda x, y: (x, y - 100),
    "float labels": lambda x, y: (x, y.float()),
    "None": lambda x, y: (None, y),
    "text": lambda x, y: ("cat.png", y),
    "tiny images": lambda x, y: (x[..., :2, :2], y),
}


@pytest.mark.parametrize("change", BAD.values(), ids=BAD.keys())
@pytest.mark.parametrize("analysis", [*ALL, "scorecard"])
def test_wrong_images_and_labels(analysis: str, change: Callable[[Any, Any], tuple[Any, Any]]) -> None:
    images, labels = change(data().images, data().labels)
    function = ALL.get(analysis, lambda *given: scs_eval.scorecard(*given, eps=0.01))  # which takes long if it works
    refused(lambda: function(network(), images, labels))


FINE: dict[str, Callable[[Any, Any], tuple[Any, Any]]] = {
    "requires grad": lambda x, y: (x.clone().requires_grad_(), y),
    "double": lambda x, y: (x.double(), y),
    "not contiguous": lambda x, y: (x.flip(-1).transpose(2, 3), y),
    "numpy": lambda x, y: (x.numpy(), y.numpy()),
    "lists": lambda x, y: (x, y.tolist()),
    "int32 labels": lambda x, y: (x, y.int()),
    "inference tensors": lambda x, y: _in_inference_mode(x, y),
}


def _in_inference_mode(images: torch.Tensor, labels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    with torch.inference_mode():
        return images.clone(), labels.clone()


@pytest.mark.parametrize("change", FINE.values(), ids=FINE.keys())
@pytest.mark.parametrize("analysis", ALL)
def test_images_and_labels_of_other_kinds(analysis: str, change: Callable[[Any, Any], tuple[Any, Any]]) -> None:
    images, labels = change(data().images, data().labels)
    works_or_refused(lambda: ALL[analysis](network(), images, labels))


class Odd(nn.Module):
    """A model with an output of some odd kind."""

    def __init__(self, output: Callable[[torch.Tensor], Any]) -> None:
        super().__init__()
        self.output = output

    def forward(self, x: torch.Tensor) -> Any:
        return self.output(x)


MODELS: dict[str, Callable[[], Any]] = {
    "a name": lambda: "rohrer25k_conv",
    "None": lambda: None,
    "a class": lambda: nn.Linear,
    "a function": lambda: torch.relu,
    "one class": lambda: Odd(lambda x: x.mean((1, 2, 3))[:, None]),
    "no class": lambda: Odd(lambda x: x.mean((1, 2, 3))),
    "a tuple": lambda: Odd(lambda x: (x.flatten(1)[:, :10], x)),
    "a dictionary": lambda: Odd(lambda x: {"logits": x.flatten(1)[:, :10]}),
    "maps": lambda: Odd(lambda x: x),
    "nan": lambda: Odd(lambda x: x.flatten(1)[:, :10] * float("nan")),
    "another number of classes": lambda: Odd(lambda x: x.flatten(1)[:, :7]),
    "fewer rows": lambda: Odd(lambda x: x.flatten(1)[:-1, :10]),
    "raises": lambda: Odd(lambda x: 1 / 0),
    "no gradient": lambda: Odd(lambda x: x.detach().flatten(1)[:, :10]),
    "half": lambda: network().half(),
    "double": lambda: network().double(),
}


@pytest.mark.parametrize("make", MODELS.values(), ids=MODELS.keys())
@pytest.mark.parametrize("analysis", ALL)
def test_models_of_odd_kinds(analysis: str, make: Callable[[], Any]) -> None:
    with contextlib.suppress(ZeroDivisionError):  # a failure inside the user's model stays what it is
        works_or_refused(lambda: ALL[analysis](make(), data().images, data().labels))


def test_results_survive_copy_and_pickle(tmp_path: Path) -> None:
    result = ANALYSES["accuracy"](network(), data().images, data().labels)
    for again in (copy.copy(result), copy.deepcopy(result), pickle.loads(pickle.dumps(result))):
        np.testing.assert_array_equal(again.predictions, result.predictions)
    result.save(tmp_path / "new_dir")
    assert scs_eval.load_result(tmp_path / "new_dir").label == result.label


EPS = [[], [0], [-1], ["a"], [float("nan")], [float("inf")], [0.01, 0.01], [2.0], None, 0.01, [1e-30]]


@pytest.mark.parametrize("eps", EPS, ids=str)
def test_eps_that_are_none(eps: Any) -> None:
    images = data()
    works_or_refused(
        lambda: scs_eval.pgd(
            network(),
            images.images,
            images.labels,
            classes=images.classes,
            eps=eps,
            options=scs_eval.PgdOptions(scorecard=None),
        )
    )


NAMES: dict[str, Any] = {
    "nothing": "", "long": "x" * 3000, "surrogate": "\udcff", "escape": "\x1b[31m", "lines": "a\nb", "null": "\x00",
    "right to left": "\u202e", "number": 3, "None": None, "bytes": b"cat",
}  # fmt: skip
FINE_NAMES = ("$\\frac{$", "<script>alert(1)</script>", "../../etc", "%s%n", "Ж中", 'a,b"c', "=1+1")


class Untouched(nn.Module):
    """A model that must not be asked."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        raise AssertionError("the work has begun")


@pytest.mark.parametrize("name", NAMES.values(), ids=NAMES.keys())
@pytest.mark.parametrize("analysis", ANALYSES)
def test_names_that_cannot_be_written_fail_before_the_work(analysis: str, name: Any) -> None:
    images, classes = data(), list(data().classes)
    refused(lambda: ANALYSES[analysis](Untouched(), images.images, images.labels, label=name))
    if name != "":  # a class may have none
        others = [name, *classes[1:]]
        refused(lambda: ANALYSES[analysis](Untouched(), images.images, images.labels, classes=others))


@pytest.mark.parametrize("analysis", ANALYSES)
def test_class_names_are_no_text(analysis: str) -> None:
    refused(lambda: ANALYSES[analysis](Untouched(), data().images, data().labels, classes="catdogbird"))


@pytest.mark.parametrize("name", FINE_NAMES)
def test_names_of_any_printable_kind_are_written(tmp_path: Path, name: str) -> None:
    classes = [name, *data().classes[1:]]
    result = ANALYSES["accuracy"](network(), data().images, data().labels, label=name, classes=classes)
    out = scs_eval.write_result(result, tmp_path / "out")
    assert (out / "figure.png").is_file()
    assert scs_eval.load_result(out).classes == tuple(classes)
