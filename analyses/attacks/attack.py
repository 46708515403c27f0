"""Attack images: every attack behind one call, its restarts merged image by image."""

from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from scs_eval.analyses.attacks.apgd import Apgd
from scs_eval.analyses.attacks.ball import Ball
from scs_eval.analyses.attacks.config import Attack
from scs_eval.analyses.attacks.external import run_external_attack
from scs_eval.analyses.attacks.fab import run_fab
from scs_eval.analyses.attacks.losses import loss_named
from scs_eval.analyses.attacks.objective import Backward, Objective
from scs_eval.analyses.attacks.pgd import Best, Pgd, StepCallback, run_gradient_attack
from scs_eval.analyses.attacks.square import run_square_attack
from scs_eval.analyses.attacks.targets import target_order
from scs_eval.analyses.core.model_state import device_of, evaluating
from scs_eval.analyses.core.validation import check_images, check_labels, count_logits
from scs_eval.errors import InputError

IMAGES_AT_ONCE = 64  # whose restarts are made together


class Attacked(NamedTuple):
    """The best point found for each image: a misclassified one if there is one, else that of the highest loss.

    images: (n, 3, H, W), within ε of the originals and in [0, 1]. is_adversarial: (n,) whether misclassified.
    loss: (n,) float64, the attack's loss there (`losses.py`; for ce the log-odds, whose softplus is cross-entropy).
    """

    images: Tensor
    is_adversarial: Tensor
    loss: Tensor


def attack(
    model: nn.Module,
    images: Tensor,
    labels: Tensor,
    eps: float | Tensor,
    *,
    settings: Attack,
    seed: int = 0,
    ids: Tensor | None = None,
    draw: int | Tensor = 0,
    start: Tensor | None = None,
    stop_early: bool = True,
    backward: Backward | None = None,
    callback: StepCallback | None = None,
    at_once: int | None = None,
) -> Attacked:
    """Attack images (n, 3, H, W) in [0, 1] with labels (n,) inside balls of radius eps, one for all or one each (n,).

    seed, ids, draw: random numbers of an image follow from (seed, its id, its draw, restart) alone; ids default to
        0, 1 …, and `draw` tells repetitions apart (the sweep passes the position of ε).
    start: (n, 3, H, W) where the first restart of pgd, fgsm and apgd begins; where it is NaN, as without it.
    stop_early: an image is left alone once misclassified, and by long runs of fab also where they
        would not get there (`prospects.py`); otherwise all steps and restarts are made.
    backward: a context for the passes whose gradient is used (see `Objective`).
    callback: is called after each step with its number from 0 (the start), the positions of the images under way (m,),
        their points (m, 3, H, W) and losses (m,); in every restart again. Not with square or attacks from outside.
    at_once: images of a pass through the model. By default 32, of small images, whatever is attacked, so that a result
        is the same to the bit whoever its neighbours are; a single image is attacked several times as fast with 1.
    """
    check_images(images)
    if start is not None and start.shape != images.shape:
        raise InputError(f"expected a start for each image, {tuple(images.shape)}, got {tuple(start.shape)}")
    with evaluating(model):
        home, device = images.device, device_of(model)
        images, labels = images.detach().to(device), labels.to(device)
        objective = replace(_objective(model, images, labels, settings, backward), at_once=at_once)
        ball = Ball.around(images, _radii(eps, len(images)), settings.norm)
        numbers = _numbers(seed, ids, draw, len(images))
        best = _restarts(objective, ball, numbers, settings, start, stop_early, callback)
    return Attacked(best.images.to(home), best.is_adversarial.to(home), best.loss.to(home))


def _restarts(
    objective: Objective,
    ball: Ball,
    numbers: np.ndarray,
    settings: Attack,
    start: Tensor | None,
    stop_early: bool,
    callback: StepCallback | None,
) -> Best:
    """The best of all restarts; with stop_early only images that are still right are restarted."""
    best = Best(ball.centre)
    targets = None
    if settings.targeted:
        targets = target_order(objective, ball.centre, norm=settings.norm, malt=settings.malt)
    rows = torch.arange(len(ball.centre), device=ball.centre.device)
    for restarts in _together(settings, alone=callback is not None or not stop_early):
        if stop_early:
            rows = rows[~best.is_adversarial[rows]]
        if len(rows) == 0:
            break
        for part in rows.split(IMAGES_AT_ONCE if len(restarts) > 1 else max(1, len(rows))):
            copies, restart = part.repeat(len(restarts)), np.repeat(restarts, len(part))
            begin = None if start is None or restarts[0] > 0 else start.to(ball.centre)[part]
            seeds, renumbered = _with(numbers, copies, restart), _renumbered(callback, part)
            image = copies if len(restarts) > 1 else None
            aim = objective.of(copies)
            if targets is not None:
                aim = aim.towards(targets[copies, torch.from_numpy(restart).to(copies) % targets.shape[1]])
            run = _once(aim, ball.of(copies), seeds, settings, begin, stop_early, renumbered, image)
            for turn in torch.arange(len(copies), device=part.device).split(max(1, len(part))):
                best.record(part, run.images[turn], run.loss[turn], run.is_adversarial[turn])
    return best


def _together(settings: Attack, *, alone: bool) -> list[list[int]]:
    """Numbers of restarts: the first, then all others at once, so that few images fill the passes through the model."""
    every = list(range(settings.restarts))
    if alone or settings.is_external:
        return [[restart] for restart in every]
    return [every[:1], every[1:]] if len(every) > 1 else [every]


def _once(
    objective: Objective,
    ball: Ball,
    numbers: np.ndarray,
    settings: Attack,
    start: Tensor | None,
    stop_early: bool,
    callback: StepCallback | None,
    image: Tensor | None,
) -> Best:
    """One start of one attack; an image's random numbers follow from its row of `numbers`.

    image: (n,) which rows are copies of one image.
    """
    if settings.is_external:
        return run_external_attack(objective, ball, numbers, settings)
    draws = [np.random.default_rng(row) for row in numbers]
    if settings.name == "square":
        return run_square_attack(objective, ball, draws, steps=settings.steps, stop_early=stop_early)
    if settings.name == "fab":
        again = not settings.targeted and numbers[:, 3].any()  # a second start from the image would be the first
        begin = ball.random(draws) if again else ball.centre
        return run_fab(objective, ball, begin, steps=settings.steps, stop_early=stop_early, image=image)
    begin = ball.random(draws) if settings.random_start else ball.centre
    if start is not None:
        begin = torch.where(start.isnan(), begin, ball.project(start))
    rule = Apgd(ball, settings.steps) if settings.name == "apgd" else Pgd(settings.rel_step_size)
    return run_gradient_attack(
        objective, ball, begin, rule, steps=settings.steps, stop_early=stop_early, callback=callback,
        image=image,
    )  # fmt: skip


def _objective(
    model: nn.Module, images: Tensor, labels: Tensor, settings: Attack, backward: Backward | None
) -> Objective:
    """The objective, if model, images and labels go together."""
    classes = count_logits(model, images[:1])
    check_labels(labels, images=images, classes=[""] * classes)
    loss = loss_named(settings.loss, targeted=settings.targeted, classes=classes)
    return Objective(model, classes, loss, labels, None, backward)


def _radii(eps: float | Tensor, n: int) -> Tensor:
    radii = torch.as_tensor(eps, dtype=torch.float64).cpu()
    if radii.shape not in ((), (n,)):
        raise InputError(f"expected one ε or one for each of {n} images, got shape {tuple(radii.shape)}")
    if not (radii.isfinite() & (radii >= 0)).all():
        raise InputError(f"expected every ε finite and at least 0, got {float(radii.min()):g}")
    return radii.expand(n)


def _numbers(seed: int, ids: Tensor | None, draw: int | Tensor, n: int) -> np.ndarray:
    """(n, 3) seed, id and draw of each image."""
    ids = torch.arange(n) if ids is None else ids.cpu()
    values = [torch.as_tensor(value).cpu() for value in (seed, ids, draw)]
    if any(value.shape not in ((), (n,)) for value in values):
        raise InputError(f"expected ids and draws (n,), one for each of {n} images")
    numbers = torch.stack([value.long().expand(n) for value in values], dim=1).numpy()
    if (numbers < 0).any():
        raise InputError("expected the seed, ids and draws of random numbers to be at least 0")
    return numbers


def _with(numbers: np.ndarray, rows: Tensor, restart: np.ndarray) -> np.ndarray:
    """(m, 4) seed, id, draw and restart of some images, whose restarts are (m,)."""
    return np.column_stack([numbers[rows.cpu().numpy()], restart])


def _renumbered(callback: StepCallback | None, rows: Tensor) -> StepCallback | None:
    """`callback` with positions among all images rather than among those of this restart."""
    if callback is None:
        return None
    return lambda step, part, points, loss: callback(step, rows[part], points, loss)
