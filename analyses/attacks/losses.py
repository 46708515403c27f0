"""What an attack maximises, per image, from logits alone: larger is further from the label.

A loss is f(logits (n, K), labels (n,), targets (n,) or None) → (n,); with targets it grows towards that class.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from scs_eval.errors import InputError

Loss = Callable[[Tensor, Tensor, Tensor | None], Tensor]


def cross_entropy(logits: Tensor, labels: Tensor, targets: Tensor | None) -> Tensor:
    """Log-odds against the label: u = log Σ_{j≠y} exp z_j − z_y; with a target t, z_t − log Σ_{j≠t} exp z_j.

    Cross-entropy is softplus(u), a rising function of u, so both order images alike and their gradients point the same
    way. But cross-entropy's gradient has the factor 1 − P(y), which float32 rounds to 0 at confident images (a logit
    lead of 17 loses the label's part, one of 104 all of it); u has no such factor, so it cannot vanish.
    """
    if targets is None:
        return _others(logits, labels).logsumexp(1) - _at(logits, labels)
    return _at(logits, targets) - _others(logits, targets).logsumexp(1)


def margin(logits: Tensor, labels: Tensor, targets: Tensor | None) -> Tensor:
    """The largest other logit (or the target's) minus the label's (Carlini and Wagner 2017)."""
    best = _others(logits, labels).amax(1) if targets is None else _at(logits, targets)
    return best - _at(logits, labels)


def dlr(logits: Tensor, labels: Tensor, targets: Tensor | None) -> Tensor:
    """Difference of logits ratio (Croce and Hein 2020): the margin over the spread of the leading logits.

    Spread: z₁ − z₃ with logits sorted downwards; with a target, z₁ − (z₃ + z₄) / 2. Neither shift nor scale of the
    logits changes it.
    """
    leading = logits.topk(3 if targets is None else 4, dim=1).values
    third = leading[:, 2] if targets is None else leading[:, 2:].mean(1)
    return margin(logits, labels, targets) / (leading[:, 0] - third + 1e-12)


_LOSSES: dict[str, Loss] = {"ce": cross_entropy, "margin": margin, "dlr": dlr}


def loss_named(name: str, *, targeted: bool, classes: int) -> Loss:
    """The loss, if the model has enough classes for it."""
    fewest = (4 if targeted else 3) if name == "dlr" else 2
    if classes < fewest:
        kind = "targeted " if targeted else ""
        raise InputError(f"the {kind}loss {name} needs at least {fewest} classes, the model has {classes}")
    return _LOSSES[name]


def likely_wrong(logits: Tensor, labels: Tensor) -> Tensor:
    """(n, K − 1) the wrong classes of each image, that with the largest logit first."""
    return _others(logits, labels).argsort(dim=1, descending=True, stable=True)[:, :-1]


def _at(logits: Tensor, classes: Tensor) -> Tensor:
    return logits.gather(1, classes[:, None])[:, 0]


def _others(logits: Tensor, classes: Tensor) -> Tensor:
    """The logits with one class of each row at −∞."""
    return logits.scatter(1, classes[:, None], -torch.inf)
