"""Is each image's smallest ε as small as the strongest peers find it? foolbox's FMN and torchattacks' APGD against it.

FMN (300 steps, `fmn.py`) searches a smallest ε of its own; APGD (100 steps, CE) is asked at 95 % of ours. An image
counts where the peer is below ours by more than 5 %. The cost of the polish is counted twice: in passes, of which a
forward pass without a backward one is a third, and in CPU time.
"""

import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any
from unittest import mock

import numpy as np
import torch
from torch import Tensor, nn

from scs_eval.analyses.attacks.ball import distance
from scs_eval.analyses.attacks.config import Attack
from scs_eval.analyses.attacks.objective import Objective
from scs_eval.analyses.attacks.sweep import sweep
from scs_eval.analyses.core.batching import chunk_size, filled
from scs_eval.analyses.core.model_state import evaluating
from scs_eval.benchmarks.contest import Growth, Say, Settings, Target
from scs_eval.benchmarks.fmn import MODELS, fmn_eps, kept_eps, predictions, right_images, weights_of

SUITE = "strength"
GRIDS = {"linf": np.linspace(0.001, 0.03, 30), "l2": np.linspace(0.05, 1.5, 30)}
BELOW = 0.95  # of our smallest ε: what a peer must reach to count
GOAL, COST = 5.0, 1.5  # per cent of images, at most; times the sweep without the polish


def targets(settings: Settings, say: Say) -> Iterator[Target]:
    """For each network and norm: how often the peers are below ours, and what the polish costs."""
    for name in MODELS:
        model, images, labels, indices = right_images(name)
        for norm in GRIDS:
            what = f"{name} ({weights_of(name)}), {norm}, {len(images)} images"
            ours = yield from _cost(what, model, images, labels, norm)
            for peer, below in (("foolbox FMN, 300 steps", _fmn), ("torchattacks APGD, 100 steps", _apgd)):
                try:
                    share = 100 * float(below(name, model, images, labels, indices, norm, ours).mean())
                except ModuleNotFoundError as error:
                    say(f"{peer} is left out: {error}")
                    continue
                yield _share(f"{what}: below ours by > 5 %", peer, share)


def growths(settings: Settings, say: Say) -> Iterator[Growth]:
    """None: strength is no cost."""
    return iter(())


def _cost(
    what: str, model: nn.Module, images: Tensor, labels: Tensor, norm: str
) -> Generator[Target, None, np.ndarray]:
    """What the polish costs and whether it ever harms; returns (n,) our smallest ε."""

    def run(polished: bool, n: int | None = None) -> tuple[np.ndarray, float, float]:
        start = time.process_time()  # what else the machine does hardly counts, and one round is enough
        with _counted_passes() as passes:
            swept = sweep(
                model, images[:n], labels[:n], GRIDS[norm].tolist(), attacks=[Attack(norm=norm)], polished=polished
            )
        return swept.min_eps, time.process_time() - start, sum(passes)

    run(True, 32)  # warms up
    (ours, seconds, passes), (plain, plain_seconds, plain_passes) = run(True), run(False)
    common: Any = {"suite": SUITE, "against": "the sweep without the polish", "goal": COST, "faster": False}
    yield Target(**common, what=f"{what}: CPU time", ours=(seconds,), theirs=(plain_seconds,))
    yield Target(**common, what=f"{what}: passes", ours=(passes,), theirs=(plain_passes,), unit="passes")
    yield _share(f"{what}: larger than without", "the sweep without the polish", 100 * float((ours > plain).mean()))
    return ours


def _share(what: str, against: str, share: float) -> Target:
    return Target(
        suite=SUITE, what=what, against=against, goal=GOAL, faster=False, ours=(share,), theirs=(1.0,),
        unit="% of images",
    )  # fmt: skip


@contextmanager
def _counted_passes() -> Iterator[list[float]]:
    """Image by image, with the copies that fill a chunk: 1 for a forward and a backward pass, 1/3 for a forward one."""
    passes: list[float] = []
    slope, logits = Objective._slope, Objective.logits

    def counted_slope(self: Objective, points: Tensor, *others: Any) -> tuple[Tensor, Tensor]:
        passes.append(len(points))
        return slope(self, points, *others)

    def counted_logits(self: Objective, points: Tensor) -> Tensor:
        passes.append(len(filled(points, chunk_size(points))) / 3)
        return logits(self, points)

    with mock.patch.multiple(Objective, _slope=counted_slope, logits=counted_logits):
        yield passes


def _fmn(
    name: str, model: nn.Module, images: Tensor, labels: Tensor, indices: np.ndarray, norm: str, ours: np.ndarray
) -> np.ndarray:
    """(n,) whether foolbox's FMN finds a point nearer than BELOW of ours."""
    kept = kept_eps(name, norm, indices)
    eps = fmn_eps(model, images, labels, norm) if kept is None else kept
    nearer: np.ndarray = eps <= BELOW * ours * (1 + 1e-5)  # the file has six digits
    return nearer & np.isfinite(eps)


def _apgd(
    name: str, model: nn.Module, images: Tensor, labels: Tensor, indices: np.ndarray, norm: str, ours: np.ndarray
) -> np.ndarray:
    """(n,) whether torchattacks' APGD succeeds inside BELOW of our ε; an image that we did not fool is left out."""
    torchattacks: Any = import_module("torchattacks")
    at = torch.from_numpy(np.isfinite(ours).nonzero()[0])
    eps = torch.from_numpy(BELOW * ours)[at].float().view(-1, 1, 1, 1)
    points = images.clone()
    with evaluating(model), torch.enable_grad():
        attacker = torchattacks.APGD(model, norm={"linf": "Linf", "l2": "L2"}[norm], eps=eps, steps=100)
        points[at] = attacker(images[at], labels[at]).detach()
        fooled = (predictions(model, points) != labels).numpy()
    inside: np.ndarray = distance(images, points, norm).numpy() <= BELOW * ours * (1 + 1e-6)
    return fooled & inside
