"""Any attack of the package torchattacks, its points put back into the ball and judged by us."""

import inspect
import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor

from scs_eval.analyses.attacks.ball import Ball
from scs_eval.analyses.attacks.config import Attack
from scs_eval.analyses.attacks.objective import Objective
from scs_eval.analyses.attacks.pgd import Best
from scs_eval.analyses.core.batching import CHUNK
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


def run_external_attack(objective: Objective, ball: Ball, numbers: np.ndarray, settings: Attack, name: str) -> Best:
    """What the attack returns, group by group; numbers (n, 4): seed, id, draw and restart of each image.

    The package draws for a whole batch, so a batch holds images that always come together: those at one ε whose ids
    fall into one block of CHUNK. An attack without ε (CW, DeepFool …) runs free; its points are then cut to the ball.
    """
    best, kind = Best(ball.centre), peer_class(name)
    blocks = numbers.copy()
    blocks[:, 1] //= CHUNK
    keys = np.column_stack([blocks, ball.eps[:, 0, 0, 0].cpu().numpy()])
    for key in np.unique(keys, axis=0):
        rows = torch.from_numpy((keys == key).all(1).nonzero()[0]).to(ball.centre.device)
        with _seeded(key[:4].astype(int).tolist()):
            points = _run(kind, objective.of(rows), ball.of(rows), settings, float(key[4]))
        evaluation = objective.of(rows).evaluate(points, gradient=False)
        best.record(rows, points, evaluation.loss, evaluation.is_adversarial)
    return best


def _run(kind: type, objective: Objective, ball: Ball, settings: Attack, eps: float) -> Tensor:
    try:
        attacker: Any = kind(objective.model, **_options(kind, settings, eps))
        if objective.targets is not None:
            attacker.set_mode_targeted_by_label(quiet=True)
        points = attacker(ball.centre.clone(), objective.labels if objective.targets is None else objective.targets)
    except (TypeError, ValueError, AttributeError, RuntimeError) as error:
        raise InputError(f"torchattacks.{kind.__name__} cannot attack this model: {error}") from error
    return ball.project(points.detach().to(ball.centre))


def _options(kind: type, settings: Attack, eps: float) -> dict[str, object]:
    """Our settings by their names there, as far as the class has them."""
    ours: dict[str, object] = {"eps": eps, "alpha": settings.rel_step_size * eps, "random_start": settings.random_start}
    ours |= {"norm": {"linf": "Linf", "l2": "L2"}[settings.norm]}
    ours |= {"steps": settings.steps, "n_queries": settings.steps}
    known = inspect.signature(kind).parameters
    return {key: value for key, value in ours.items() if key in known}


@contextmanager
def _seeded(numbers: list[int]) -> Iterator[None]:
    """All global random numbers from these; Python's and numpy's are put back (`evaluating` puts back torch's)."""
    seed = int(np.random.SeedSequence(numbers).generate_state(1)[0])
    python, legacy = random.getstate(), np.random.get_state()  # noqa: NPY002 - what torchattacks draws from
    try:
        random.seed(seed)
        np.random.seed(seed)  # noqa: NPY002
        torch.manual_seed(seed)
        yield
    finally:
        random.setstate(python)
        np.random.set_state(legacy)  # noqa: NPY002
