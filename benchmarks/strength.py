"""Is each image's smallest ε as small as the strongest peers find it? foolbox's FMN and torchattacks' APGD against it.

FMN (300 steps) searches a smallest ε of its own; APGD (100 steps, CE) is asked at 95 % of ours. An image counts where
the peer is below ours by more than 5 %. In L2 foolbox 3.3 does not project (its factor is norms / norms): we do it for
it, or it would hardly find anything.
"""

import time
from collections.abc import Iterator
from importlib import import_module
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from scs_eval.analyses.attacks.ball import distance
from scs_eval.analyses.attacks.config import Attack
from scs_eval.analyses.attacks.sweep import sweep
from scs_eval.analyses.core.model_state import evaluating
from scs_eval.benchmarks.contest import Growth, Say, Settings, Target
from scs_eval.data import load_data
from scs_eval.models.loading.load import load_model

SUITE = "strength"
MODELS = (
    "rohrer100k_conv", "rohrer100k_scs", "rohrer100k_ssdp", "resnet20_conv", "resnet20_bcos", "bcos_cnn9_w=0.25_b=2.5",
)  # fmt: skip
GRIDS = {"linf": np.linspace(0.001, 0.03, 30), "l2": np.linspace(0.05, 1.5, 30)}
IMAGES = 200
BELOW = 0.95  # of our smallest ε: what a peer must reach to count
GOAL, COST = 5.0, 1.5  # per cent of images, at most; times the sweep without the polish


def targets(settings: Settings, say: Say) -> Iterator[Target]:
    """For each network and norm: how often the peers are below ours, and what the polish costs."""
    for name in MODELS:
        model, images, labels = _right(name, IMAGES)
        for norm in GRIDS:
            yield from _against(name, model, images, labels, norm, say)


def growths(settings: Settings, say: Say) -> Iterator[Growth]:
    """None: strength is no cost."""
    return iter(())


def _against(name: str, model: nn.Module, images: Tensor, labels: Tensor, norm: str, say: Say) -> Iterator[Target]:
    def run(polished: bool) -> tuple[np.ndarray, float]:
        start = time.process_time()  # what else the machine does hardly counts, and one round is enough
        swept = sweep(model, images, labels, GRIDS[norm].tolist(), attacks=[Attack(norm=norm)], polished=polished)
        return swept.min_eps, time.process_time() - start

    sweep(model, images[:32], labels[:32], GRIDS[norm].tolist(), attacks=[Attack(norm=norm)])  # warms up
    (ours, seconds), (plain, plain_seconds) = run(True), run(False)
    what = f"{name}, {norm}, {len(images)} images"
    yield Target(
        suite=SUITE, what=f"{what}: CPU time", against="the sweep without the polish", goal=COST, faster=False,
        ours=(seconds,), theirs=(plain_seconds,),
    )  # fmt: skip
    yield Target(
        suite=SUITE, what=f"{what}: larger than without", against="the sweep without the polish", goal=GOAL,
        faster=False, ours=(100 * float((ours > plain).mean()),), theirs=(1.0,), unit="% of images",
    )  # fmt: skip
    for peer, below in (("foolbox FMN, 300 steps", _fmn), ("torchattacks APGD, 100 steps", _apgd)):
        try:
            share = 100 * float(below(model, images, labels, norm, ours).mean())
        except ModuleNotFoundError as error:
            say(f"{peer} is left out: {error}")
            continue
        yield Target(
            suite=SUITE, what=f"{what}: below ours by > 5 %", against=peer, goal=GOAL, faster=False, ours=(share,),
            theirs=(1.0,), unit="% of images",
        )  # fmt: skip


def _fmn(model: nn.Module, images: Tensor, labels: Tensor, norm: str, ours: np.ndarray) -> np.ndarray:
    """(n,) whether foolbox's FMN finds a point nearer than BELOW of ours."""
    foolbox: Any = import_module("foolbox")
    astensor: Any = import_module("eagerpy").astensor

    class ProjectedL2(foolbox.attacks.L2FMNAttack):
        def project(self, x: Any, x0: Any, epsilon: Any) -> Any:
            change = x.raw - x0.raw
            shrink = (epsilon.raw / change.flatten(1).norm(dim=1).clamp(min=1e-12)).clamp(max=1)
            return astensor(x0.raw + change * shrink.view(-1, 1, 1, 1))

    kind = foolbox.attacks.LInfFMNAttack if norm == "linf" else ProjectedL2
    with evaluating(model):
        points = kind(steps=300).run(
            foolbox.PyTorchModel(model, bounds=(0, 1)), images, foolbox.criteria.Misclassification(labels)
        )
        return _nearer(model, images, labels, points, norm, ours)


def _apgd(model: nn.Module, images: Tensor, labels: Tensor, norm: str, ours: np.ndarray) -> np.ndarray:
    """(n,) whether torchattacks' APGD succeeds inside BELOW of our ε; an image that we did not fool is left out."""
    torchattacks: Any = import_module("torchattacks")
    inside = np.isfinite(ours)
    at = torch.from_numpy(inside.nonzero()[0])
    eps = torch.from_numpy(BELOW * ours[inside]).float().view(-1, 1, 1, 1)
    with evaluating(model), torch.enable_grad():
        points = images.clone()
        attacker = torchattacks.APGD(model, norm={"linf": "Linf", "l2": "L2"}[norm], eps=eps, steps=100)
        points[at] = attacker(images[at], labels[at]).detach()
        return _nearer(model, images, labels, points, norm, ours)


def _nearer(
    model: nn.Module, images: Tensor, labels: Tensor, points: Tensor, norm: str, ours: np.ndarray
) -> np.ndarray:
    with torch.no_grad():
        fooled = (torch.cat([model(part) for part in points.split(50)]).argmax(1) != labels).numpy()
    nearer: np.ndarray = fooled & (distance(images, points, norm).numpy() <= BELOW * ours * (1 + 1e-6))
    return nearer


def _right(name: str, n: int) -> tuple[nn.Module, Tensor, Tensor]:
    """The model and the first n images that it has right."""
    model, data = load_model(name).eval(), load_data("sample", n=2 * n)
    with torch.no_grad():
        right = torch.cat([model(part) for part in data.images[:].split(50)]).argmax(1) == data.labels
    return model, data.images[right][:n], data.labels[right][:n]
