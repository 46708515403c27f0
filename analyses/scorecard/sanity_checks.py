"""Can the model be attacked as it stands, and does the attack keep its own rules?"""

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from scs_eval.analyses.core.batching import images_at_once
from scs_eval.analyses.core.model_state import device_of
from scs_eval.analyses.scorecard.check import FAIL, PASS, WARN, Check, at_most
from scs_eval.analyses.scorecard.context import ROUNDING, CheckContext, full_range, loss_of

SATURATED = 1e-3  # this near to 0 or 1 a sigmoid's gradient has lost all but a thousandth
AT_ONCE = 128  # images whose gradients are taken together, fewer of large ones
MOST_ZERO = 0.05  # share of images without a gradient, up to which it is a warning


def logits_not_probabilities(context: CheckContext) -> Check:
    """Probabilities saturate: cross-entropy on top of a softmax has next to no gradient where the model is sure."""
    name, logits = "logits, not probabilities", context.logits.double()
    off = float((logits.sum(1) - 1).abs().max())
    if logits.min() >= 0 and off < 1e-3:
        return Check(name, FAIL, "sum to 1", "The outputs are probabilities; attack the logits before the softmax.")
    if logits.min() >= 0 and logits.max() <= 1:
        return _bounded(name, logits)
    if logits.max() <= 0 and float(logits.logsumexp(1).abs().max()) < 1e-3:
        return Check(name, WARN, "exp sums to 1", "The outputs are log-probabilities: margins are lost, nothing else.")
    return Check(name, PASS, f"{logits.min():.1f} to {logits.max():.1f}", "The outputs are not scaled to sum to 1.")


def _bounded(name: str, outputs: Tensor) -> Check:
    """All outputs in [0, 1]: a sigmoid, most likely; where most of them are at its ends, so is their gradient."""
    ends = float(((outputs < SATURATED) | (outputs > 1 - SATURATED)).double().mean())
    sentence = (
        f"All outputs lie in [0, 1], {ends:.0%} of them at its ends, as after a sigmoid; attack what is before it."
    )
    return Check(name, FAIL if ends > 0.5 else WARN, "in [0, 1]", sentence)


def deterministic(context: CheckContext) -> Check:
    """Noise in the forward pass hides the gradient and makes one forward pass no proof."""
    name, again = "deterministic", context.answer(context.images)
    gap = float((again - context.logits).abs().max())
    flips = int((again.argmax(1) != context.logits.argmax(1)).sum())
    if flips or gap > 1e-3 * float(context.logits.abs().max()):
        sentence = f"Two passes over the same images differ, and {flips} of {len(again)} predictions with them."
        return Check(name, FAIL, f"{gap:.2g}", f"{sentence} Attack the expectation (EOT).")
    return Check(name, PASS, f"{gap:.1g}", "Two passes over the same images agree.")


def gradients(context: CheckContext) -> Check:
    """Where the gradient is 0, NaN or infinite, an attack that follows it stands still."""
    name, at_once = "gradients", images_at_once(context.images, AT_ONCE)
    sizes = torch.cat([_gradient_sizes(context, part) for part in context.right.nonzero()[:, 0].split(at_once)])
    zero, wild = int((sizes == 0).sum()), int((~sizes.isfinite()).sum())
    share = (zero + wild) / max(len(sizes), 1)
    verdict = PASS if share == 0 else WARN if share <= MOST_ZERO else FAIL
    sentence = f"{zero} of {len(sizes)} images have a gradient of exactly 0, {wild} one that is not finite."
    return Check(name, verdict, f"{100 * share:.1f} % of images", sentence)


def _gradient_sizes(context: CheckContext, part: Tensor) -> Tensor:
    """(b,) the largest |∂ loss / ∂ x| of each image, with the loss that the curve's attack uses."""
    with torch.enable_grad():
        images = context.images[part].to(device_of(context.model)).requires_grad_()
        logits = context.model(images)
        loss = loss_of(logits, context.labels[part].to(logits.device), context.attack.loss).sum()
        if not loss.requires_grad:
            return torch.zeros(len(part))
        (gradient,) = torch.autograd.grad(loss, images, allow_unused=True)
    return torch.zeros(len(part)) if gradient is None else gradient.flatten(1).abs().amax(1).cpu()


def nothing_at_zero(context: CheckContext) -> Check:
    """With ε = 0 there is nothing to attack with."""
    settings = context.attack
    if settings.name == "pgd" and torch.equal(context.answer(context.images), context.logits):
        settings = replace(settings, steps=1)  # every further step would ask the same of the same images
    logits = context.attacked(settings, which=context.right, eps=0.0)
    fooled = int((logits.argmax(1) != context.labels)[context.right].sum())
    n = len(logits)
    sentence = f"Attacked with ε = 0, {100 * (int(context.right.sum()) - fooled) / n:.1f} % are right, as when clean."
    if fooled:
        sentence = f"With ε = 0 the attack still breaks {fooled} of {n} images: the answer is not the image's alone."
    return Check("ε = 0 is clean accuracy", FAIL if fooled else PASS, f"{fooled} of {n} broken", sentence)


def constraint_kept(context: CheckContext) -> Check:
    """An attack that leaves its ball breaks anything. Called last: it speaks of every attack tried."""
    name, figure = "inside the ball and [0, 1]", "0" if context.excess <= 0 else f"{context.excess:.0e}"
    if context.excess > ROUNDING:
        return Check(name, FAIL, figure, "An attacked image is outside its ball or outside [0, 1].")
    return Check(name, PASS, figure, "No attacked image is farther than ε or outside [0, 1], by more than rounding.")


def monotone(eps: Sequence[float], curve: Tensor) -> Check:
    """Attacked afresh at each ε, a larger ball must break what a smaller one did: curve (E, m), broken at each ε."""
    n = curve.shape[1]
    counts = curve.sum(1)
    fewer = int((counts.cummax(0).values - counts).max())
    back = int((curve.cummax(0).values & ~curve).any(0).sum())
    sentence = (
        f"From ε = {eps[0]:.3g} to {eps[-1]:.3g} in {len(eps)} attacks afresh, accuracy rises by {fewer} at most;"
    )
    sentence += f" {back} broken at one ε survive a larger one."
    return Check("monotone in ε", at_most(fewer, n, points=1), f"+{100 * fewer / n:.1f} points", sentence)


def nothing_survives(context: CheckContext) -> Check:
    """With ε = 1 any image may become any other; an attack that fails then cannot follow the gradient."""
    logits = context.attacked(context.attack, which=context.right, eps=full_range(context.attack, context.images))
    left, n = int((logits.argmax(1) == context.labels)[context.right].sum()), len(logits)
    sentence = "No image survives an attack that may change everything."
    if left:
        sentence = f"{left} of {n} images survive an attack that may change everything: gradients are masked."
    return Check("full range", at_most(left, n, points=0), f"{100 * left / n:.1f} % right", sentence)
