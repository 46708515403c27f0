"""Any attack of the package torchattacks, its points put back into the ball and judged by us."""

import inspect
import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor

from scs_eval.analyses.attacks.geometry import Ball
from scs_eval.analyses.attacks.loop import Best
from scs_eval.analyses.attacks.problem import CHUNK, Problem
from scs_eval.analyses.attacks.settings import Attack
from scs_eval.errors import InputError


def peer_class(name: str) -> type:
    """The class of torchattacks with that name."""
    try:
        import torchattacks
    except ModuleNotFoundError as error:
        raise InputError(
            f"torchattacks:{name} needs the package torchattacks: pip install 'scs-eval[attacks]'"
        ) from error
    found = getattr(torchattacks, name, None)
    if not (isinstance(found, type) and issubclass(found, torchattacks.attack.Attack)):
        raise InputError(
            f"torchattacks {torchattacks.__version__} has no attack {name!r}; its names have capitals: PGD"
        )
    return found


def climb_with_peer(problem: Problem, ball: Ball, numbers: np.ndarray, settings: Attack, name: str) -> Best:
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
            points = _run(kind, problem.of(rows), ball.of(rows), settings, float(key[4]))
        seen = problem.of(rows).look(points, gradient=False)
        best.record(rows, points, seen.loss, seen.broken)
    return best


def _run(kind: type, problem: Problem, ball: Ball, settings: Attack, eps: float) -> Tensor:
    try:
        attacker: Any = kind(problem.model, **_options(kind, settings, eps))
        if problem.targets is not None:
            attacker.set_mode_targeted_by_label(quiet=True)
        found = attacker(ball.centre.clone(), problem.labels if problem.targets is None else problem.targets)
    except (TypeError, ValueError, AttributeError, RuntimeError) as error:
        raise InputError(f"torchattacks.{kind.__name__} cannot attack this model: {error}") from error
    return ball.project(found.detach().to(ball.centre))


def _options(kind: type, settings: Attack, eps: float) -> dict[str, object]:
    """Our settings by their names there, as far as the class has them."""
    ours: dict[str, object] = {"eps": eps, "alpha": settings.step * eps, "random_start": settings.random_start}
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
