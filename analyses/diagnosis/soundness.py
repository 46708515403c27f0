"""Can the model be attacked as it stands, and does the attack keep its own rules?"""

from collections.abc import Sequence

import torch
from torch import Tensor

from scs_eval.analyses.diagnosis.check import FAIL, PASS, WARN, Check, at_most
from scs_eval.analyses.diagnosis.subject import ROUNDING, Subject, full_range, loss_of
from scs_eval.analyses.state import device_of

MOST_ZERO = 0.05  # share of images without a gradient, up to which it is a warning


def logits_not_probabilities(subject: Subject) -> Check:
    """Probabilities saturate: cross-entropy on top of a softmax has next to no gradient where the model is sure."""
    name, logits = "logits, not probabilities", subject.logits.double()
    off = float((logits.sum(1) - 1).abs().max())
    if logits.min() >= 0 and off < 1e-3:
        return Check(name, FAIL, "sum to 1", "The outputs are probabilities; attack the logits before the softmax.")
    if logits.max() <= 0 and float(logits.logsumexp(1).abs().max()) < 1e-3:
        return Check(name, WARN, "exp sums to 1", "The outputs are log-probabilities: margins are lost, nothing else.")
    return Check(name, PASS, f"{logits.min():.1f} to {logits.max():.1f}", "The outputs are not scaled to sum to 1.")


def deterministic(subject: Subject) -> Check:
    """Noise in the forward pass hides the gradient and makes one forward pass no proof."""
    name, again = "deterministic", subject.answer(subject.images)
    gap = float((again - subject.logits).abs().max())
    flips = int((again.argmax(1) != subject.logits.argmax(1)).sum())
    if flips or gap > 1e-3 * float(subject.logits.abs().max()):
        said = f"Two passes over the same images differ, and {flips} of {len(again)} predictions with them."
        return Check(name, FAIL, f"{gap:.2g}", f"{said} Attack the expectation (EOT).")
    return Check(name, PASS, f"{gap:.1g}", "Two passes over the same images agree.")


def gradients(subject: Subject) -> Check:
    """Where the gradient is 0, NaN or infinite, an attack that follows it stands still."""
    name = "gradients"
    sizes = torch.cat([_gradient_sizes(subject, part) for part in subject.right.nonzero()[:, 0].split(128)])
    zero, wild = int((sizes == 0).sum()), int((~sizes.isfinite()).sum())
    share = (zero + wild) / max(len(sizes), 1)
    verdict = PASS if share == 0 else WARN if share <= MOST_ZERO else FAIL
    said = f"{zero} of {len(sizes)} images have a gradient of exactly 0, {wild} one that is not finite."
    return Check(name, verdict, f"{100 * share:.1f} % of images", said)


def _gradient_sizes(subject: Subject, part: Tensor) -> Tensor:
    """(b,) the largest |∂ loss / ∂ x| of each image, with the loss that the curve's attack uses."""
    with torch.enable_grad():
        images = subject.images[part].to(device_of(subject.model)).requires_grad_()
        logits = subject.model(images)
        loss = loss_of(logits, subject.labels[part].to(logits.device), subject.attack.loss).sum()
        if not loss.requires_grad:
            return torch.zeros(len(part))
        (found,) = torch.autograd.grad(loss, images, allow_unused=True)
    return torch.zeros(len(part)) if found is None else found.flatten(1).abs().amax(1).cpu()


def nothing_at_zero(subject: Subject) -> Check:
    """With ε = 0 there is nothing to attack with."""
    images = subject.attacked(subject.attack, which=subject.right, eps=0.0)
    broken = int((subject.answer(images).argmax(1) != subject.labels)[subject.right].sum())
    n = len(images)
    said = f"Attacked with ε = 0, {100 * (int(subject.right.sum()) - broken) / n:.1f} % are right, as when clean."
    if broken:
        said = f"With ε = 0 the attack still breaks {broken} of {n} images: the answer is not the image's alone."
    return Check("ε = 0 is clean accuracy", FAIL if broken else PASS, f"{broken} of {n} broken", said)


def constraint_kept(subject: Subject) -> Check:
    """An attack that leaves its ball breaks anything. Called last: it speaks of every attack tried."""
    name, figure = "inside the ball and [0, 1]", "0" if subject.excess <= 0 else f"{subject.excess:.0e}"
    if subject.excess > ROUNDING:
        return Check(name, FAIL, figure, "An attacked image is outside its ball or outside [0, 1].")
    return Check(name, PASS, figure, "No attacked image is farther than ε or outside [0, 1], by more than rounding.")


def monotone(eps: Sequence[float], curve: Tensor) -> Check:
    """Attacked afresh at each ε, a larger ball must break what a smaller one did: curve (E, m), broken at each ε."""
    n = curve.shape[1]
    counts = curve.sum(1)
    fewer = int((counts.cummax(0).values - counts).max())
    back = int((curve.cummax(0).values & ~curve).any(0).sum())
    said = f"From ε = {eps[0]:.3g} to {eps[-1]:.3g} in {len(eps)} attacks afresh, accuracy rises by {fewer} at most;"
    said += f" {back} broken at one ε survive a larger one."
    return Check("monotone in ε", at_most(fewer, n, points=1), f"+{100 * fewer / n:.1f} points", said)


def nothing_survives(subject: Subject) -> Check:
    """With ε = 1 any image may become any other; an attack that fails then cannot follow the gradient."""
    images = subject.attacked(subject.attack, which=subject.right, eps=full_range(subject.attack, subject.images))
    left = int((subject.answer(images).argmax(1) == subject.labels)[subject.right].sum())
    said = "No image survives an attack that may change everything."
    if left:
        said = f"{left} of {len(images)} images survive an attack that may change everything: gradients are masked."
    return Check("full range", at_most(left, len(images), points=0), f"{100 * left / len(images):.1f} % right", said)
