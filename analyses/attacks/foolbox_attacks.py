"""Any attack of the package foolbox, by the name of its class."""

import inspect
import math
from typing import Any

from torch import Tensor

from scs_eval.analyses.attacks.ball import Ball
from scs_eval.analyses.attacks.config import Attack
from scs_eval.analyses.attacks.objective import Objective
from scs_eval.errors import InputError, did_you_mean

NORM_OF = {math.inf: "linf", 2: "l2"}


def foolbox_class(name: str) -> Any:
    """The class of foolbox.attacks with that name."""
    try:
        import foolbox
    except ModuleNotFoundError as error:
        raise InputError(f"foolbox:{name} needs the package foolbox: pip install 'scs-eval[attacks]'") from error
    kind = getattr(foolbox.attacks, name, None)
    if not (inspect.isclass(kind) and issubclass(kind, foolbox.attacks.base.Attack)):
        names = [key for key, value in vars(foolbox.attacks).items() if inspect.isclass(value)]
        hint = did_you_mean(name, names, otherwise="its names are those of foolbox.attacks: LinfPGD", most=2)
        raise InputError(f"foolbox {foolbox.__version__} has no attack {name!r}; {hint}")
    return kind


def run_foolbox(name: str, objective: Objective, ball: Ball, settings: Attack, eps: float) -> Tensor:
    """Points (n, 3, H, W) that the attack gives at one ε; what looks for the smallest change is cut to ε by foolbox."""
    import foolbox
    from foolbox.models.pytorch import PyTorchModel

    kind = foolbox_class(name)
    attacker = made(kind, settings)
    norm = NORM_OF.get(getattr(attacker.distance, "p", 0.0))
    if norm is not None and norm != settings.norm:
        raise InputError(f"foolbox:{name} works in {norm}, expected {settings.norm}; say foolbox:{name}-{norm}")
    criterion = (
        foolbox.criteria.Misclassification(objective.labels)
        if objective.targets is None
        else foolbox.criteria.TargetedMisclassification(objective.targets)
    )
    network = PyTorchModel(objective.model, bounds=(0, 1), device=ball.centre.device)
    _, clipped, _ = attacker(network, ball.centre.clone(), criterion, epsilons=eps)
    points: Tensor = clipped
    return points


def made(kind: Any, settings: Attack) -> Any:
    """An instance with our settings by their names there, as far as the class has them."""
    from foolbox import distances

    ours: dict[str, Any] = {"steps": settings.steps, "rel_stepsize": settings.rel_step_size}
    ours["random_start"] = settings.random_start
    ours["distance"] = {"linf": distances.linf, "l2": distances.l2}[settings.norm]
    known = inspect.signature(kind).parameters
    required = [
        parameter.name
        for parameter in known.values()
        if parameter.default is parameter.empty and parameter.kind is not parameter.VAR_KEYWORD
    ]
    if missing := [name for name in required if name not in ours]:
        raise InputError(f"foolbox:{kind.__name__} needs {', '.join(missing)}; pass a function that makes it")
    return kind(**{key: value for key, value in ours.items() if key in known})
