"""W(x) and attributions of the nine classes of a grid, and W(x) of a large network, against the usual ways."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from scs_eval.analyses.attribution.attribute import pixel_maps
from scs_eval.analyses.attribution.gradient import INTGRAD_STEPS, SMOOTHGRAD_SAMPLES, SMOOTHGRAD_SIGMA
from scs_eval.analyses.attribution.perturbation import LIME_SAMPLES, RISE_MASKS, rise_masks, superpixels, window
from scs_eval.benchmarks.contest import Growth, Say, Settings, Target, contest, grow
from scs_eval.benchmarks.peers import published_resnet20
from scs_eval.benchmarks.work import batch, explain_one_class
from scs_eval.data import load_data
from scs_eval.models.explain.decomposition import decompose
from scs_eval.models.loading.load import load_model
from scs_eval.models.zoo.registry import create_model

SUITE = "explanations"
CELLS = 3  # of a grid, on a side
GRID_MODEL = "resnet20_conv"
GRID_ROUNDS = 2  # a round of the slower peers takes half a minute

Peer = Callable[[nn.Module, Tensor, int], object]


def targets(settings: Settings, say: Say) -> Iterator[Target]:
    """All lines of the table, one at a time."""
    yield _grid(settings, say)
    yield from _nine_classes(settings)
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
            "theirs": lambda: [explain_one_class(theirs, x, targets) for targets in classes.unbind(1)],
        },
        rounds=settings.rounds,
    )
    return _target(f"resnet20_bcos: W(x) of {CELLS**2} classes of a grid", against, 3.0, True, seconds, why=BACKWARD)


def _nine_classes(settings: Settings) -> Iterator[Target]:
    """Each method with captum's settings equal to ours, where captum has it, a class at a time as captum asks."""
    model, grid = (
        load_model(GRID_MODEL).eval().requires_grad_(False),
        mosaic_of(load_data("sample", n=CELLS**2).images[:]),
    )
    classes = torch.arange(CELLS**2)
    for name, (words, peer, against) in PEERS.items():

        def theirs(peer: Peer = peer) -> None:
            for target in classes.tolist():
                peer(model, grid, target)

        seconds = contest(
            {"ours": partial(pixel_maps, model, grid, classes[None], method=name), "theirs": theirs},
            rounds=min(GRID_ROUNDS, settings.rounds), warmup=0,
        )  # fmt: skip
        what = f"{GRID_MODEL}: {words}, {CELLS**2} classes of a grid"
        yield _target(what, f"{against}, a class at a time", 3.0, True, seconds, why=WHY.get(name, ""))


def mosaic_of(images: Tensor) -> Tensor:
    """(1, 3, 3 H, 3 W) from nine images."""
    rows = [torch.cat(list(row), 2) for row in images.split(CELLS)]
    return torch.cat(rows, 1)[None]


def _captum_integrated(model: nn.Module, x: Tensor, target: int) -> object:
    from captum.attr import IntegratedGradients

    return IntegratedGradients(model).attribute(x, target=target, n_steps=INTGRAD_STEPS)


def _captum_smooth(model: nn.Module, x: Tensor, target: int) -> object:
    from captum.attr import NoiseTunnel, Saliency

    options: dict[str, Any] = {"nt_samples": SMOOTHGRAD_SAMPLES, "stdevs": SMOOTHGRAD_SIGMA, "abs": False}
    return NoiseTunnel(Saliency(model)).attribute(x, nt_type="smoothgrad", target=target, **options)


def _captum_occlusion(model: nn.Module, x: Tensor, target: int) -> object:
    from captum.attr import Occlusion

    side = window(x.shape[-1])
    shapes = {"sliding_window_shapes": (3, side, side), "strides": (3, side // 2, side // 2)}
    return Occlusion(model).attribute(x, target=target, perturbations_per_eval=32, **shapes)


def _captum_lime(model: nn.Module, x: Tensor, target: int) -> object:
    from captum.attr import Lime

    parts = superpixels(x[0])[None, None]
    return Lime(model).attribute(
        x, target=target, feature_mask=parts, n_samples=LIME_SAMPLES, perturbations_per_eval=32
    )


@torch.no_grad()
def _plain_rise(model: nn.Module, x: Tensor, target: int) -> object:
    """captum has no RISE: the formula as one writes it for a class."""
    masks = rise_masks(x.shape[2:], 0)
    scores = [model(x * part).softmax(1)[:, target] for part in masks.split(32)]
    return torch.tensordot(torch.cat(scores), masks, 1) / RISE_MASKS


PEERS: dict[str, tuple[str, Peer, str]] = {
    "intgrad": (f"integrated gradients, {INTGRAD_STEPS} steps", _captum_integrated, "captum"),
    "smoothgrad": (f"SmoothGrad, {SMOOTHGRAD_SAMPLES} samples", _captum_smooth, "captum"),
    "occlusion": ("occlusion", _captum_occlusion, "captum, 32 versions at once"),
    "lime": (f"LIME, {LIME_SAMPLES} samples", _captum_lime, "captum, 32 versions at once"),
    "rise": (f"RISE, {RISE_MASKS} masks", _plain_rise, "the formula"),
}
BACKWARD = "every class needs a backward pass of its own, and those take more than the forward passes that are shared"
WHY = {"intgrad": BACKWARD, "smoothgrad": BACKWARD}


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


def _target(
    what: str, against: str, goal: float, faster: bool, seconds: dict[str, tuple[float, ...]], *, why: str = ""
) -> Target:
    ours, theirs = seconds["ours"], seconds["theirs"]
    return Target(suite=SUITE, what=what, against=against, goal=goal, faster=faster, ours=ours, theirs=theirs, why=why)


def growths(settings: Settings, say: Say) -> Iterator[Growth]:
    """How W(x) grows with the number of classes."""
    model, x = create_model("resnet20_bcos", num_classes=100).eval(), batch(1, CELLS * 32)[0]
    work = {count: partial(decompose, model, x, torch.arange(count)[None]) for count in (1, 2, 4, 9, 16, 25)}
    yield grow(SUITE, "resnet20_bcos: W(x) of a 96 px image", "classes", work, rounds=settings.rounds)
