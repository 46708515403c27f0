"""Is the robustness real? The scorecard beside a curve: each check passes, warns or fails, with its figure and a word.

A curve of accuracy against ε is an upper bound: a better attack may always come. Gradients that vanish, noise, or a
loss that has not settled make it a loose one. The checks follow Athalye, Carlini and Wagner (2018) and Carlini et al.
(2019), and add attacks that know what sharpening does to a gradient.
"""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn

from scs_eval.analyses.attacks.config import Attack
from scs_eval.analyses.attacks.own_attacks import AttackLike, as_attacks
from scs_eval.analyses.core.inference import predict_logits
from scs_eval.analyses.core.inputs import ArrayLike, ImagesLike, ModelLike, as_examples, as_model, as_tensor
from scs_eval.analyses.core.model_state import evaluating
from scs_eval.analyses.core.validation import check_images, check_labels, check_request, count_logits
from scs_eval.analyses.scorecard import sanity_checks, strength
from scs_eval.analyses.scorecard.check import Check
from scs_eval.analyses.scorecard.context import CheckContext
from scs_eval.analyses.scorecard.presets import PRESETS, Preset, find_preset
from scs_eval.analyses.scorecard.result import Scorecard
from scs_eval.analyses.scorecard.self_test import find_planted_example
from scs_eval.errors import InputError, check_positive, check_text, check_whole
from scs_eval.progress import Progress

STEPS = 13  # parts that the progress is counted in

__all__ = ["PRESETS", "STEPS", "Preset", "Scorecard", "find_preset", "scorecard"]


def scorecard(
    model: ModelLike,
    images: ImagesLike,
    labels: ArrayLike | None = None,
    *,
    eps: float,
    attacks: Sequence[AttackLike] = (Attack(),),
    reported: ArrayLike | None = None,
    twin: nn.Module | None = None,
    twin_name: str = "the twin",
    preset: str = "fast",
    afresh: tuple[Sequence[float], Tensor] | None = None,
    seed: int = 0,
    indices: ArrayLike | None = None,
    label: str = "model",
    batch_size: int = 512,
    progress: Progress | None = None,
) -> Scorecard:
    """Check the model and the attacks on images (m, 3, H, W) in [0, 1] with labels (m,) at one ε.

    attacks: the curve's; the first is the one that the checks vary. reported: (m,) what the curve counts as wrong at
    eps, by default what those attacks fool now. twin: the convolution network whose adversarial images are tried.
    afresh: (E,) values of ε and (E, m) what an independent sweep fooled; by default a few attacks are made for it.
    progress: is told after each of STEPS parts.

    >>> import scs_eval, torch
    >>> model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * 8 * 8, 3))
    >>> images = torch.rand(2, 3, 8, 8)
    >>> card = scs_eval.scorecard(model, images, model(images).argmax(1), eps=0.01)
    >>> card.lines[0].name
    'attack self-test'
    """
    check_request(label=label, seed=seed)
    check_whole(1, batch_size=batch_size)
    check_positive(eps=eps)
    check_text(twin_name=twin_name)
    tried = as_attacks(attacks)
    chosen = find_preset(preset)
    model, data = as_model(model), as_examples(images, labels, indices=indices)
    check_images(data.images)
    counted = None if reported is None else as_tensor(reported, what="reported").cpu()
    if counted is not None and counted.shape != data.labels.shape:
        raise InputError(f"expected reported as {len(data.labels)} of True or False, got {tuple(counted.shape)}")
    pictures = data.images.float().cpu() if isinstance(data.images, Tensor) else data.images
    with evaluating(model):
        classes = count_logits(model, pictures[:1])
        check_labels(data.labels, images=pictures, classes=[""] * classes)
        context = CheckContext(
            model=model, images=pictures, labels=data.labels.long().cpu(), eps=eps, attack=tried[0],
            logits=predict_logits(model, pictures, classes=classes), seed=seed, ids=data.indices,
            batch_size=batch_size,
        )  # fmt: skip
        context.reported = ~context.right | (_attack_now(context, tried) if counted is None else counted)
        afresh = afresh or _afresh(context, chosen.afresh)
        checks = _checks(
            context, tried, chosen, twin, twin_name, sanity_checks.monotone(*afresh), progress or (lambda _: None)
        )
    return Scorecard(
        label=label,
        settings={**data.settings, "seed": seed, "preset": preset, "n": len(pictures), "batch_size": batch_size},
        eps=eps,
        norm=tried[0].norm,
        checks=tuple(tuple(check) for check in checks),  # type: ignore[misc]
        right=context.right.numpy(),
        reported=context.reported.numpy(),
        attacks=tuple(context.is_adversarial),
        is_adversarial=torch.stack(list(context.is_adversarial.values())).numpy(),
    )


def _attack_now(context: CheckContext, attacks: Sequence[Attack]) -> Tensor:
    """(m,) what the attacks fool at eps, together."""
    trials = [context.trial(settings.name, context.attacked(settings, which=context.right)) for settings in attacks]
    return torch.stack(trials).any(0)


def _checks(
    context: CheckContext,
    attacks: Sequence[Attack],
    preset: Preset,
    twin: nn.Module | None,
    twin_name: str,
    rising: Check,
    progress: Progress,
) -> list[Check]:
    """All of them in the order they are read; progress is told of each of STEPS."""

    def done(*checks: Check) -> list[Check]:
        progress(1)
        return list(checks)

    queries = preset.queries
    model = done(sanity_checks.logits_not_probabilities(context), sanity_checks.deterministic(context))
    model += done(sanity_checks.gradients(context))
    at_zero = done(sanity_checks.nothing_at_zero(context))
    rules = done(rising, sanity_checks.nothing_survives(context))
    plain = strength.plain_pgd(context)
    others = done(strength.fgsm(context)) + done(strength.square(context, queries=queries))
    others += done(strength.square_beyond(context, queries=queries))
    others += done(strength.random_search(context, points=preset.points)) + done(*strength.loss_converged(context))
    others += done(strength.losses_agree(context, plain=plain))
    others += done(strength.transfer(context, twin, name=twin_name)) + done(*strength.adaptive(context))
    self_test = done(find_planted_example(attacks, seed=context.seed))
    return [*self_test, *model, *at_zero, sanity_checks.constraint_kept(context), *rules, *others]


def _afresh(context: CheckContext, count: int) -> tuple[list[float], Tensor]:
    """Attacks afresh from ε/4 to 2ε: the values, and what broke at each (E, m)."""
    eps = np.geomspace(context.eps / 4, context.eps * 2, count).tolist()
    logits = [context.attacked(context.attack, which=context.right, eps=radius) for radius in eps]
    return eps, torch.stack([(part.argmax(1) != context.labels) | ~context.right for part in logits])
