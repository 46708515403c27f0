"""The ε-sweep with its polish against PGD once per ε by foolbox and torchattacks; and its scorecard against it."""

from collections.abc import Callable, Iterator
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from scs_eval.analyses.attacks.config import Attack
from scs_eval.analyses.attacks.sweep import Sweep, sweep
from scs_eval.analyses.scorecard import find_preset, scorecard
from scs_eval.benchmarks.contest import Contender, Growth, Say, Settings, Target, contest, grow
from scs_eval.data import load_data
from scs_eval.models.loading.load import load_model
from scs_eval.models.loading.sources import trained_twin
from scs_eval.ranges import parse_range

SUITE = "attacks"
MODELS = ("rohrer100k_conv", "rohrer100k_scs")
EPS, STEPS, STEP = "0.001:0.03", 10, 0.25  # 30 values; the step as a share of ε
ROUNDS = 6  # in each of them a peer makes a sixth of its attacks, all of which cost the same
GOALS = {"foolbox": ("foolbox.LinfPGD, 30 times", 15.0), "torchattacks": ("torchattacks.PGD, 30 times", 12.0)}
CARD_ROUNDS = 2

Robust = Callable[[nn.Module, Tensor, Tensor, float], float]  # accuracy on attacked images


def targets(settings: Settings, say: Say) -> Iterator[Target]:
    """Time, that the faster way is not the weaker one, and what the scorecard adds."""
    peers = dict(_installed(say))
    for name in MODELS:
        model, images, labels = _ready(name, settings.images)
        if peers:
            yield from _against(peers, name, model, images, labels)
        yield _scorecard(name, model, images, labels, settings)


def _installed(say: Say) -> Iterator[tuple[str, Robust]]:
    for name, peer in (("foolbox", _foolbox), ("torchattacks", _torchattacks)):
        try:
            import_module(name)
        except ModuleNotFoundError:
            say(f"{name} is not installed: the sweep is not compared with it (pip install 'scs-eval[attacks]')")
        else:
            yield name, peer


def _against(peers: dict[str, Robust], name: str, model: nn.Module, images: Tensor, labels: Tensor) -> Iterator[Target]:
    """Ours is the whole sweep in every round; a peer makes five of its 30 attacks."""
    eps = parse_range(EPS)
    ours: list[np.ndarray] = []
    curves = {peer: np.full(len(eps), np.nan) for peer in peers}
    turns = {peer: iter(range(ROUNDS)) for peer in peers}

    def our_sweep() -> None:
        ours.append(_sweep(model, images, labels, eps, seed=len(ours)).robust_accuracy)

    def their_part(peer: str) -> None:
        for position in range(next(turns[peer]), len(eps), ROUNDS):
            torch.manual_seed(position)
            curves[peer][position] = peers[peer](model, images, labels, eps[position])

    contenders: dict[str, Contender] = {"ours": our_sweep, **{peer: partial(their_part, peer) for peer in peers}}
    seconds = contest(contenders, rounds=ROUNDS, warmup=0)
    for peer in peers:
        against, goal = GOALS[peer]
        what = f"{name}: sweep of {len(eps)} ε and polish, {len(images)} images"
        theirs = tuple(ROUNDS * part for part in seconds[peer])
        yield Target(
            suite=SUITE, what=what, against=against, goal=goal, faster=True, ours=seconds["ours"], theirs=theirs,
            why="an image's own search and its polish ask for gradients more often than this allows",
        )  # fmt: skip
        excess = np.mean(ours, 0) - curves[peer]  # each round has its own random starts
        what = f"{name}: robust accuracy above theirs, at the worst ε"
        yield Target(
            suite=SUITE, what=what, against=against, goal=1.0, faster=False, ours=(100 * float(excess.max()),),
            theirs=(1.0,), unit="points",
        )  # fmt: skip


def _scorecard(name: str, model: nn.Module, images: Tensor, labels: Tensor, settings: Settings) -> Target:
    """Of as many images as the preset takes, at the ε in the middle of the curve, as `scs-eval pgd` makes it."""
    few, eps = slice(0, find_preset("fast").images), parse_range(EPS)
    min_eps = _sweep(model, images, labels, eps).min_eps
    middle = float(np.median(min_eps[(min_eps > 0) & np.isfinite(min_eps)]))
    twin_name, twin = trained_twin(name, device="cpu")
    card = partial(
        scorecard, model, images[few], labels[few], eps=middle, attacks=[_attack()], twin=twin,
        twin_name=twin_name or "the twin", reported=torch.from_numpy(min_eps <= middle)[few],
    )  # fmt: skip
    seconds = contest(
        {"ours": card, "theirs": partial(_sweep, model, images, labels, eps)},
        rounds=min(CARD_ROUNDS, settings.rounds), warmup=0,
    )  # fmt: skip
    return Target(
        suite=SUITE, what=f"{name}: scorecard, preset fast", against=f"the sweep it judges, {len(images)} images",
        goal=1.5, faster=False, ours=seconds["ours"], theirs=seconds["theirs"],
        why="Square's queries, of which none may be left out, and three more networks to follow the gradients of",
    )  # fmt: skip


def _ready(name: str, n: int) -> tuple[nn.Module, Tensor, Tensor]:
    data = load_data("sample", n=n)
    return load_model(name).eval(), data.images[:], data.labels


def _attack() -> Attack:
    return Attack(steps=STEPS, rel_step_size=STEP)


def _sweep(model: nn.Module, images: Tensor, labels: Tensor, eps: list[float], *, seed: int = 0) -> Sweep:
    return sweep(model, images, labels, eps, attacks=[_attack()], seed=seed)


def _torchattacks(model: nn.Module, images: Tensor, labels: Tensor, eps: float) -> float:
    import torchattacks

    attack = torchattacks.PGD(model, eps=eps, alpha=STEP * eps, steps=STEPS, random_start=True)
    with torch.enable_grad():
        return _accuracy(model, attack(images, labels), labels)


def _foolbox(model: nn.Module, images: Tensor, labels: Tensor, eps: float) -> float:
    foolbox: Any = import_module("foolbox")
    attack = foolbox.attacks.LinfPGD(steps=STEPS, rel_stepsize=STEP, random_start=True)
    _, attacked, _ = attack(foolbox.PyTorchModel(model, bounds=(0, 1), device="cpu"), images, labels, epsilons=eps)
    return _accuracy(model, attacked, labels)


@torch.no_grad()
def _accuracy(model: nn.Module, attacked: Tensor, labels: Tensor) -> float:
    return (model(attacked).argmax(1) == labels).float().mean().item()


def growths(settings: Settings, say: Say) -> Iterator[Growth]:
    """How a sweep grows with the number of ε, of whose logarithm bisection asks, and with the images."""
    rounds, grid = max(3, settings.rounds // 3), parse_range(EPS)
    model, images, labels = _ready("rohrer100k_scs", min(400, settings.images))
    few = slice(0, 100)
    grids = {count: np.linspace(0.001, 0.03, count).tolist() for count in (2, 4, 8, 15, 30, 60)}
    work = {count: partial(_sweep, model, images[few], labels[few], values) for count, values in grids.items()}
    yield grow(SUITE, f"rohrer100k_scs: sweep, {len(images[few])} images", "values of ε", work, rounds=rounds)
    counts = [count for count in (50, 100, 200, 400) if count <= len(images)]
    work = {count: partial(_sweep, model, images[:count], labels[:count], grid) for count in counts}
    yield grow(SUITE, f"rohrer100k_scs: sweep of {len(grid)} ε", "images", work, rounds=rounds)
