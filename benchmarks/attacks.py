"""The ε-sweep against torchattacks.PGD once per ε, on trained networks."""

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from scs_eval.analyses.attacks.config import Attack
from scs_eval.analyses.attacks.sweep import Sweep, sweep
from scs_eval.benchmarks.contest import Growth, Say, Settings, Target, contest, grow
from scs_eval.data import load_data
from scs_eval.models.loading.load import load_model
from scs_eval.ranges import parse_range

SUITE = "attacks"
MODELS = ("rohrer100k_conv", "rohrer100k_scs")
EPS, STEPS, STEP = "0.001:0.03", 10, 0.25  # 30 values; the step as a share of ε


def targets(settings: Settings, say: Say) -> Iterator[Target]:
    """Time, and that the faster way is not the weaker one."""
    try:
        import torchattacks
    except ModuleNotFoundError:
        say("torchattacks is not installed: the sweep is compared with nothing (pip install 'scs-eval[attacks]')")
        return
    for name in MODELS:
        yield from _against(torchattacks, name, settings)


def _against(torchattacks: Any, name: str, settings: Settings) -> Iterator[Target]:
    model, images, labels = _ready(name, settings.images)
    curves: dict[str, list[np.ndarray]] = {"ours": [], "theirs": []}

    def ours() -> None:
        curves["ours"].append(_sweep(model, images, labels, parse_range(EPS), seed=len(curves["ours"])).robust_accuracy)

    def theirs() -> None:
        torch.manual_seed(len(curves["theirs"]))
        curves["theirs"].append(np.array([_robust(torchattacks, model, images, labels, e) for e in parse_range(EPS)]))

    seconds = contest({"ours": ours, "theirs": theirs}, rounds=settings.rounds, warmup=0)
    what = f"{name}: sweep of 30 ε, {len(images)} images"
    common: dict[str, Any] = {"suite": SUITE, "against": "torchattacks.PGD, 30 times"}
    yield Target(**common, what=what, goal=8.0, faster=True, ours=seconds["ours"], theirs=seconds["theirs"])
    excess = np.mean(curves["ours"], 0) - np.mean(curves["theirs"], 0)  # each round has its own random starts
    yield Target(
        **common,
        what=f"{name}: robust accuracy above theirs, at the worst ε",
        goal=1.0,
        faster=False,
        ours=(100 * float(excess.max()),),
        theirs=(1.0,),
        unit="points",
    )


def _ready(name: str, n: int) -> tuple[nn.Module, Tensor, Tensor]:
    data = load_data("sample", n=n)
    return load_model(name).eval(), data.images[:], data.labels


def _sweep(model: nn.Module, images: Tensor, labels: Tensor, eps: list[float], *, seed: int = 0) -> Sweep:
    return sweep(
        model, images, labels, eps, attacks=[Attack(steps=STEPS, rel_step_size=STEP)], seed=seed, polished=False
    )


def _robust(torchattacks: Any, model: nn.Module, images: Tensor, labels: Tensor, eps: float) -> float:
    attack = torchattacks.PGD(model, eps=eps, alpha=STEP * eps, steps=STEPS, random_start=True)
    with torch.enable_grad():
        attacked = attack(images, labels)
    with torch.no_grad():
        return (model(attacked).argmax(1) == labels).float().mean().item()


def growths(settings: Settings, say: Say) -> Iterator[Growth]:
    """How a sweep grows with the number of ε: bisection looks at their logarithm."""
    model, images, labels = _ready("rohrer100k_scs", min(100, settings.images))
    grids = {count: np.linspace(0.001, 0.03, count).tolist() for count in (2, 4, 8, 15, 30, 60)}
    work = {count: partial(_sweep, model, images, labels, grid) for count, grid in grids.items()}
    yield grow(
        SUITE, f"rohrer100k_scs: sweep, {len(images)} images", "values of ε", work, rounds=max(3, settings.rounds // 3)
    )
