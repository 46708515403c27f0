"""Attacks from outside: their points are put back into the ball and judged by us."""

import inspect
from typing import Any

import numpy as np
import torch
from torch import Tensor

from scs_eval.analyses.attacks.ball import Ball
from scs_eval.analyses.attacks.config import Attack
from scs_eval.analyses.attacks.foolbox_attacks import run_foolbox
from scs_eval.analyses.attacks.kinds import find_attack
from scs_eval.analyses.attacks.objective import Objective
from scs_eval.analyses.attacks.pgd import Best
from scs_eval.analyses.core.batching import CHUNK
from scs_eval.analyses.core.seeding import seeded
from scs_eval.errors import InputError


def peer_class(name: str) -> type:
    """The class of torchattacks with that name."""
    try:
        import torchattacks
    except ModuleNotFoundError as error:
        raise InputError(
            f"torchattacks:{name} needs the package torchattacks: pip install 'scs-eval[attacks]'"
        ) from error
    kind = getattr(torchattacks, name, None)
    if not (isinstance(kind, type) and issubclass(kind, torchattacks.attack.Attack)):
        raise InputError(
            f"torchattacks {torchattacks.__version__} has no attack {name!r}; its names have capitals: PGD"
        )
    return kind


def run_external_attack(objective: Objective, ball: Ball, numbers: np.ndarray, settings: Attack) -> Best:
    """What the attack returns, group by group; numbers (n, 4): seed, id, draw and restart of each image.

    Others draw for a whole batch, so a batch holds images that always come together: those at one ε whose ids fall
    into one block of CHUNK. An attack without ε (CW, DeepFool …) runs free; its points are then cut to the ball.
    """
    best = Best(ball.centre)
    blocks = numbers.copy()
    blocks[:, 1] //= CHUNK
    keys = np.column_stack([blocks, ball.eps[:, 0, 0, 0].cpu().numpy()])
    for key in np.unique(keys, axis=0):
        rows = torch.from_numpy((keys == key).all(1).nonzero()[0]).to(ball.centre.device)
        seed = key[:4].astype(int).tolist()
        with seeded(seed):
            points = _points(objective.of(rows), ball.of(rows), settings, float(key[4]), seed)
        evaluation = objective.of(rows).evaluate(points, gradient=False)
        best.record(rows, points, evaluation.loss, evaluation.is_adversarial)
    return best


def _points(objective: Objective, ball: Ball, settings: Attack, eps: float, seed: list[int]) -> Tensor:
    """(n, 3, H, W) within the balls; anything but an image for each raises with the attack's name."""
    package, _, name = settings.name.partition(":")
    try:
        if package == "torchattacks":
            points = _run_torchattacks(peer_class(name), objective, ball, settings, eps)
        elif package == "foolbox":
            points = run_foolbox(name, objective, ball, settings, eps)
        else:
            points = _run_function(objective, ball, settings, eps, seed)
    except InputError:
        raise
    except ImportError as error:  # of a package that only this attack needs
        raise InputError(f"the attack {settings.name} needs another package: {error}") from error
    except (TypeError, ValueError, LookupError, AttributeError, RuntimeError, AssertionError) as error:
        raise InputError(f"the attack {settings.name} cannot attack this model: {error}") from error
    if not isinstance(points, Tensor) or points.shape != ball.centre.shape:
        got = f"shape {tuple(points.shape)}" if isinstance(points, Tensor) else type(points).__name__
        raise InputError(f"the attack {settings.name!r} gave {got}, expected images {tuple(ball.centre.shape)}")
    if not points.isfinite().all():
        raise InputError(f"the attack {settings.name!r} gave NaN or infinity at ε = {eps:g}")
    return ball.project(points.detach().to(ball.centre))


def _run_function(objective: Objective, ball: Ball, settings: Attack, eps: float, seed: list[int]) -> Any:
    """What a registered function gives, told of norm, steps and seed as far as it asks."""
    function = find_attack(settings.name).function
    assert function is not None
    ours: dict[str, object] = {"norm": settings.norm, "steps": settings.steps}
    ours["seed"] = int(np.random.SeedSequence(seed).generate_state(1)[0])
    known = inspect.signature(function).parameters
    asked = {key: value for key, value in ours.items() if key in known}
    with torch.enable_grad():
        return function(objective.model, ball.centre.clone(), objective.labels, eps, **asked)


def _run_torchattacks(kind: type, objective: Objective, ball: Ball, settings: Attack, eps: float) -> Tensor:
    attacker: Any = kind(objective.model, **_options(kind, settings, eps))
    if objective.targets is not None:
        attacker.set_mode_targeted_by_label(quiet=True)
    points: Tensor = attacker(ball.centre.clone(), objective.labels if objective.targets is None else objective.targets)
    return points


def _options(kind: type, settings: Attack, eps: float) -> dict[str, object]:
    """Our settings by their names there, as far as the class has them."""
    ours: dict[str, object] = {"eps": eps, "alpha": settings.rel_step_size * eps, "random_start": settings.random_start}
    ours |= {"norm": {"linf": "Linf", "l2": "L2"}[settings.norm]}
    ours |= {"steps": settings.steps, "n_queries": settings.steps}
    known = inspect.signature(kind).parameters
    return {key: value for key, value in ours.items() if key in known}
