"""What `doctor` finds out of a network's normalisation: the usual statistics are tried on labelled images."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from scs_eval.analyses.calibration.temperature import fit_temperature
from scs_eval.analyses.core.statistics import holm, paired_test
from scs_eval.models.layers import Normalize
from scs_eval.models.loading.external import parse_statistics

if TYPE_CHECKING:
    from torch import Tensor

BATCH, LEVEL = 100, 0.05
WORTH = 0.95  # of the log loss: a smaller gain is of no consequence, as between ImageNet's and CIFAR-10's statistics
USUAL = ("imagenet", "cifar10", "0.5,0.5", "0,0.00392157")  # the last is for a network of bytes, 0 to 255


class Trial(NamedTuple):
    """What to do, and with that: how many answers are right, and the log loss of each image."""

    advice: str
    right: int
    losses: np.ndarray


def check_normalisation(model: nn.Module, images: "Tensor", labels: "Tensor") -> str:
    """Whether another of the usual normalisations would suit the network better.

    What stands in front of the network is taken away; then it gets (x − m)/s, which one without its normalisation
    misses, x as it is, and x·s + m, which undoes one of two. They are compared by the log loss of the right class, each
    at its own best temperature, so that a mere change of confidence counts for nothing: networks forgive so much that
    right answers alone show little. A paired test with Holm's correction over all trials keeps chance out.
    """
    as_is = _trial("as it is", model, images, labels)
    trials = list(_trials(model, images, labels))
    p_values = holm([paired_test(trial.losses, as_is.losses).p_value for trial in trials])
    best = min(range(len(trials)), key=lambda k: trials[k].losses.mean())
    better, n = trials[best], len(labels)
    if better.losses.mean() >= WORTH * as_is.losses.mean() or better.right < as_is.right:
        return f"no usual statistics do better on {n} images, of which it is right on {as_is.right}"
    certain = p_values[best] < LEVEL  # not where there are too few images for a test
    return (
        f"{'' if certain else 'perhaps '}{better.advice} it is right on {better.right} instead of {as_is.right} of {n} "
        f"images, and its log loss is {better.losses.mean():.3g} instead of {as_is.losses.mean():.3g} "
        f"(p = {p_values[best]:.1g}{'' if certain else '; more images may tell'})"
    )


def _trials(model: nn.Module, images: "Tensor", labels: "Tensor") -> Iterator[Trial]:
    front = model[0] if isinstance(model, nn.Sequential) and len(model) == 2 else None
    bare = model[1] if isinstance(model, nn.Sequential) and isinstance(front, Normalize) else model
    if bare is not model:
        yield _trial("doubled: without the one in front of the network", bare, images, labels)
    for text in USUAL:
        mean, std = (torch.tensor(values).view(1, 3, 1, 1) for values in parse_statistics(text))
        what = f"missing: with --normalize {text}" if bare is model else f"another: with --normalize {text} instead"
        yield _trial(what, bare, (images - mean) / std, labels)
        yield _trial(f"doubled inside: where one by {text} is undone,", bare, images * std + mean, labels)


def _trial(advice: str, model: nn.Module, images: "Tensor", labels: "Tensor") -> Trial:
    with torch.no_grad():
        logits = torch.cat([model(part) for part in images.split(BATCH)]).double()
    losses = F.cross_entropy(logits / fit_temperature(logits, labels), labels, reduction="none")
    return Trial(advice, int((logits.argmax(1) == labels).sum()), losses.numpy())
