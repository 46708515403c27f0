"""W(x) of many classes, W(x) of a large network, and integrated gradients, against the usual ways."""

from collections.abc import Iterator
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from scs_eval.analyses.attribution.attribute import attribute
from scs_eval.analyses.attribution.gradient import INTGRAD_STEPS
from scs_eval.benchmarks.contest import Growth, Say, Settings, Target, contest, grow
from scs_eval.benchmarks.peers import published_resnet20
from scs_eval.benchmarks.work import batch, explain
from scs_eval.data import load_data
from scs_eval.models.explain.decomposition import decompose
from scs_eval.models.loading.load import load_model
from scs_eval.models.zoo.registry import create_model

SUITE = "explanations"
CELLS = 3  # of a grid, on a side


def targets(settings: Settings, say: Say) -> Iterator[Target]:
    """All lines of the table, one at a time."""
    yield _grid(settings, say)
    yield _integrated_gradients(settings)
    yield _densenet(settings)


def _grid(settings: Settings, say: Say) -> Target:
    ours = create_model("resnet20_bcos").eval()
    try:
        theirs, against = published_resnet20().eval(), "package bcos, a pass per class"
    except ModuleNotFoundError:
        say("the package bcos is not installed: W(x) is compared with our own network, a pass per class")
        theirs, against = ours, "our network, a pass per class"
    x, classes = batch(1, CELLS * 32)[0], torch.arange(CELLS**2)[None]
    seconds = contest(
        {
            "ours": partial(decompose, ours, x, classes),
            "theirs": lambda: [explain(theirs, x, targets) for targets in classes.unbind(1)],
        },
        rounds=settings.rounds,
    )
    return _target(f"resnet20_bcos: W(x) of {CELLS**2} classes of a grid", against, 3.0, True, seconds)


def _integrated_gradients(settings: Settings) -> Target:
    from captum.attr import IntegratedGradients

    data, model = load_data("sample", n=64), load_model("rohrer100k_scs").eval()
    captum = IntegratedGradients(model)
    seconds = contest(
        {
            "ours": partial(attribute, model, data.images, data.labels, method="intgrad"),
            "theirs": lambda: captum.attribute(data.images, target=data.labels, n_steps=INTGRAD_STEPS),
        },
        rounds=settings.rounds,
        warmup=1,
    )
    what = f"rohrer100k_scs: integrated gradients, {INTGRAD_STEPS} steps, 64 images"
    return _target(what, "captum with defaults", 1.2, True, seconds)


def _densenet(settings: Settings) -> Target:
    model, x, y = create_model("densenet121_bcos").eval(), *batch(1, 224)
    seconds = contest(
        {"ours": partial(decompose, model, x, y), "theirs": partial(_plain_pass, model, x, y)}, rounds=settings.rounds
    )
    what = "densenet121_bcos: W(x) of one image and class, 224 px"
    return _target(what, "plain forward and backward", 1.3, False, seconds)


def _plain_pass(model: nn.Module, x: Tensor, y: Tensor) -> None:
    """As in training: gradients of all parameters."""
    model.zero_grad()
    F.cross_entropy(model(x), y).backward()


def _target(what: str, against: str, goal: float, faster: bool, seconds: dict[str, tuple[float, ...]]) -> Target:
    ours, theirs = seconds["ours"], seconds["theirs"]
    return Target(suite=SUITE, what=what, against=against, goal=goal, faster=faster, ours=ours, theirs=theirs)


def growths(settings: Settings, say: Say) -> Iterator[Growth]:
    """How W(x) grows with the number of classes."""
    model, x = create_model("resnet20_bcos", num_classes=100).eval(), batch(1, CELLS * 32)[0]
    work = {count: partial(decompose, model, x, torch.arange(count)[None]) for count in (1, 2, 4, 9, 16, 25)}
    yield grow(SUITE, "resnet20_bcos: W(x) of a 96 px image", "classes", work, rounds=settings.rounds)
