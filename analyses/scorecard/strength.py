"""Is the attack as strong as it could be? Other attacks at the same ε must not do better."""

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor, nn

from scs_eval.analyses.scorecard.adaptive import (
    detached_gradient,
    is_sharpened,
    straight_through,
    unsharpened_gradient,
)
from scs_eval.analyses.scorecard.check import FAIL, PASS, WARN, Check, at_most, in_points, skipped
from scs_eval.analyses.scorecard.context import CheckContext, loss_of

MANY, MORE = 0.6, 4  # share of right images that survive, from which on Square makes so many times the queries
FURTHER, LARGE = 4, {"linf": 8 / 255, "l2": 1.0}  # the larger ε: so many times the chosen one, and at least this
LAST = 10  # steps over which the loss should have stopped rising
SETTLED, RISING = 0.05, 0.2  # share of the whole rise that the last steps may bring: PASS, WARN
ADAPTIVE: dict[str, Callable[[nn.Module], nn.Module]] = {
    "p → 1 in every layer": straight_through,
    "the whole network with p = 1": unsharpened_gradient,
    "detached gradient": detached_gradient,
}


def not_beaten(context: CheckContext, name: str, is_adversarial: Tensor, *, points: float = 0.0) -> Check:
    """No other attack breaks more images at ε than the curve says, but for `points`.

    Where the attack breaks no more in sum, but more than a point's worth that the curve's attack missed, that is a
    warning: the two together are stronger than either.
    """
    n, more = len(is_adversarial), int(is_adversarial.sum()) - int(context.reported.sum())
    missed = int((is_adversarial & context.survivors).sum())
    verdict = at_most(more, n, points=points)
    if verdict == PASS and missed > 1 and 100 * missed > n:
        verdict = WARN
    sentence = f"Leaves {_percent(~is_adversarial)} right, the curve {_percent(context.survivors)};"
    sentence += f" breaks {missed} that the curve's attack missed."
    return Check(name, verdict, f"{-100 * more / n:+.1f} points", sentence)


def fgsm(context: CheckContext) -> Check:
    """One step must not beat many."""
    logits = context.attacked(replace(context.attack, name="fgsm"), which=context.right)
    return not_beaten(context, "FGSM", context.trial("FGSM", logits))


def square(context: CheckContext, *, queries: int) -> Check:
    """An attack without gradients must not beat one with them by more than 0.2 points.

    It begins with what the curve leaves; where it breaks nothing of that, it cannot have broken more than the curve.
    Where the curve's attack leaves more than it should at this ε, the gradient may be masked: more queries, then.
    """
    if int(context.survivors.sum()) > MANY * int(context.right.sum()):
        queries *= MORE
    settings = replace(context.attack, name="square", loss="margin", steps=queries, restarts=1)
    name, left = "Square (no gradients)", context.survivors & context.right
    logits = context.attacked(settings, which=left)
    missed = int((logits.argmax(1) != context.labels)[left].sum())
    if missed == 0:  # then it breaks no more than the curve, however many of the others: they need not be attacked
        context.trial("the curve's, then Square", logits, on_top=True)
        sentence = f"{queries} queries break 0 of the {int(left.sum())} images that the curve leaves right."
        return Check(name, PASS, f"0 of {int(left.sum())}", sentence)
    broken = context.right & ~left
    logits[broken] = context.attacked(settings, which=broken)[broken]
    check = not_beaten(context, name, context.trial("Square", logits), points=0.2)
    return check._replace(sentence=f"{queries} queries. {check.sentence}")


def square_beyond(context: CheckContext, *, queries: int) -> Check:
    """Masked gradients can make the chosen ε so small that no attack does anything there: so also at a larger one.

    Square, on what PGD leaves there: nothing, unless the gradient leads nowhere.
    """
    name, eps = "Square at a larger ε", max(FURTHER * context.eps, LARGE[context.attack.norm])
    left = context.attacked(context.pgd, which=context.right, eps=eps).argmax(1) == context.labels
    left &= context.right
    if not left.any():
        return Check(name, PASS, "–", f"PGD leaves nothing at ε = {eps:.3g}.")
    settings = replace(context.attack, name="square", loss="margin", steps=queries, restarts=1, targeted=False)
    logits = context.attacked(settings, which=left, eps=eps)
    fooled, n = int((logits.argmax(1) != context.labels)[left].sum()), len(left)
    sentence = f"Of {int(left.sum())} images that PGD leaves at ε = {eps:.3g}, {queries} queries break {fooled}."
    return Check(name, at_most(fooled, n, points=1), in_points(-fooled, n), sentence)


def random_search(context: CheckContext, *, points: int) -> Check:
    """Random images in the ball must not break what the curve's attack could not: corners and inside, half each."""
    logits, fooled = context.logits.clone(), 0
    for row in context.survivors.nonzero()[:, 0].tolist():
        cloud = _cloud(context, row, points)
        answers = context.answer(cloud)
        wrong = (answers.argmax(1) != context.labels[row]).nonzero()[:, 0]
        if len(wrong):
            logits[row], fooled = answers[wrong[0]], fooled + 1
    context.trial("the curve's, then random search", logits, on_top=True)
    left, n = int(context.survivors.sum()), len(logits)
    sentence = f"{points} random images in the ball of each of the {left} survivors break {fooled} of them."
    return Check("random search", at_most(fooled, n, points=0), f"{fooled} of {left}", sentence)


def loss_converged(context: CheckContext) -> list[Check]:
    """On the survivors: does the loss still rise in the last ten of twice as many steps, and do those break more?"""
    last, double = f"loss settled, last {LAST} steps", "twice the steps"
    settings = replace(context.pgd, steps=max(2 * context.pgd.steps, 2 * LAST))
    which = context.survivors
    if not which.any():
        none = "Nothing survives, so there is no loss left to settle."
        return [Check(last, PASS, "–", none), Check(double, PASS, in_points(0, len(which)), none)]
    logits, trace = context.losses(settings, which=which)
    fooled = int((context.trial(f"the curve's, then {settings.steps} steps of PGD", logits, on_top=True) & which).sum())
    more = f"{settings.steps} steps break {fooled} images that the curve's attack missed."
    clean = loss_of(context.logits, context.labels, context.attack.loss)[which].double()
    return [
        _settled(last, clean, trace, settings.steps),
        Check(double, at_most(fooled, len(which), points=1), in_points(-fooled, len(which)), more),
    ]


def _settled(name: str, clean: Tensor, trace: Tensor, steps: int) -> Check:
    """What share of the mean rise in loss the last steps brought; none at all is a failure, too."""
    rise, late = float((trace[-1] - clean).mean()), float((trace[-1] - trace[-1 - LAST]).mean())
    if rise <= 1e-6:
        return Check(name, FAIL, "no rise", f"The loss on {len(clean)} survivors does not rise at all.")
    share = late / rise
    verdict = PASS if share <= SETTLED else WARN if share <= RISING else FAIL
    sentence = f"Of the rise in loss on {len(clean)} survivors, the last {LAST} of {steps} steps bring {share:.1%}."
    return Check(name, verdict, f"{share:.1%} of the rise", sentence)


def losses_agree(context: CheckContext, *, plain: Tensor) -> Check:
    """Another loss must not break more than the curve; plain: (m,), what the curve's own loss fools in one run.

    One-sided: a weaker loss says nothing against the curve, and a curve that its polish took below both is not refuted.
    """
    other = "margin" if context.pgd.loss == "ce" else "ce"
    logits = context.attacked(replace(context.pgd, loss=other), which=context.right)
    is_adversarial, n = context.trial(f"PGD, loss {other}", logits), len(plain)
    more = int(is_adversarial.sum()) - max(int(plain.sum()), int(context.reported.sum()))
    sentence = f"PGD leaves {_percent(~plain)} right with the loss {context.pgd.loss},"
    sentence += f" {_percent(~is_adversarial)} with {other}, the curve {_percent(context.survivors)}."
    verdict = at_most(more, n, points=1)
    return Check("two losses agree", verdict, in_points(-more, n), sentence)


def transfer(context: CheckContext, twin: nn.Module | None, *, name: str) -> Check:
    """Images made on the convolution twin must not break more than those made on the model itself."""
    if twin is None:
        return skipped("transfer from the convolution twin", "No trained convolution twin.")
    everything = torch.ones_like(context.right)
    logits = context.attacked(context.pgd, which=everything, model=twin, stop_early=False)
    return not_beaten(context, "transfer from the convolution twin", context.trial(f"transfer from {name}", logits))


def adaptive(context: CheckContext) -> list[Check]:
    """Attacks with gradients that do not vanish where sharpening makes them vanish."""
    if not is_sharpened(context.model):
        return [skipped(f"adaptive: {name}", "No layer is sharpened.") for name in ADAPTIVE]
    checks = []
    for name, made in ADAPTIVE.items():
        logits = context.attacked(context.pgd, which=context.right, model=made(context.model))
        checks.append(not_beaten(context, f"adaptive: {name}", context.trial(name, logits)))
    return checks


def plain_pgd(context: CheckContext) -> Tensor:
    """(m,), what is fooled by the curve's attack in one fresh run at ε."""
    return context.trial("PGD afresh", context.attacked(context.pgd, which=context.right))


def _cloud(context: CheckContext, row: int, points: int) -> Tensor:
    """Random images (points, 3, H, W) in the ball about one image, by its id and the seed alone.

    L∞: half are corners. L2: half are on the sphere. The rest is uniform in the ball, before it is cut to [0, 1].
    """
    random = torch.Generator().manual_seed(context.seed * 1_000_003 + int(context.ids[row]))
    image, half = context.images[row], points // 2
    shape = (points, *image.shape)
    if context.attack.norm == "linf":
        noise = torch.rand(shape, generator=random) * 2 - 1
        noise[:half] = noise[:half].sign()
    else:
        noise = torch.randn(shape, generator=random)
        radius = torch.rand(points, generator=random) ** (1 / image.numel())
        radius[:half] = 1
        noise *= (radius / noise.flatten(1).norm(dim=1)).view(-1, 1, 1, 1)
    return (image + context.eps * noise).clamp(0, 1)


def _percent(right: Tensor) -> str:
    return f"{100 * right.float().mean():.1f} %"
