"""Is the attack as strong as it could be? Other attacks at the same ε must not do better."""

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor, nn

from scs_eval.analyses.diagnosis.adaptive import (
    detached_gradient,
    is_sharpened,
    straight_through,
    unsharpened_gradient,
)
from scs_eval.analyses.diagnosis.check import FAIL, PASS, WARN, Check, at_most, in_points, skipped
from scs_eval.analyses.diagnosis.subject import Subject

LAST = 10  # steps over which the loss should have stopped rising
SETTLED, RISING = 0.05, 0.2  # share of the whole rise that the last steps may bring: PASS, WARN
ADAPTIVE: dict[str, Callable[[nn.Module], nn.Module]] = {
    "p → 1 in every layer": straight_through,
    "the whole network with p = 1": unsharpened_gradient,
    "detached gradient": detached_gradient,
}


def not_beaten(subject: Subject, name: str, broken: Tensor, *, points: float = 0.0) -> Check:
    """No other attack breaks more images at ε than the curve says, but for `points`.

    Where the attack breaks no more in sum, but more than a point's worth that the curve's attack missed, that is a
    warning: the two together are stronger than either.
    """
    n, more = len(broken), int(broken.sum()) - int(subject.reported.sum())
    missed = int((broken & subject.survivors).sum())
    verdict = at_most(more, n, points=points)
    if verdict == PASS and missed > 1 and 100 * missed > n:
        verdict = WARN
    said = f"Leaves {_percent(~broken)} right, the curve {_percent(subject.survivors)};"
    said += f" breaks {missed} that the curve's attack missed."
    return Check(name, verdict, f"{-100 * more / n:+.1f} points", said)


def fgsm(subject: Subject) -> Check:
    """One step must not beat many."""
    images = subject.attacked(replace(subject.attack, name="fgsm"), which=subject.right)
    return not_beaten(subject, "FGSM", subject.trial("FGSM", images))


def square(subject: Subject, *, queries: int) -> Check:
    """An attack without gradients must not beat one with them by more than 0.2 points."""
    settings = replace(subject.attack, name="square", loss="margin", steps=queries, restarts=1)
    images = subject.attacked(settings, which=subject.right)
    check = not_beaten(subject, "Square (no gradients)", subject.trial("Square", images), points=0.2)
    return check._replace(sentence=f"{queries} queries. {check.sentence}")


def random_search(subject: Subject, *, points: int) -> Check:
    """Random images in the ball must not break what the curve's attack could not: corners and inside, half each."""
    images, found = subject.images.clone(), 0
    for place in subject.survivors.nonzero()[:, 0].tolist():
        cloud = _cloud(subject, place, points)
        wrong = (subject.answer(cloud).argmax(1) != subject.labels[place]).nonzero()[:, 0]
        if len(wrong):
            images[place], found = cloud[wrong[0]], found + 1
    subject.trial("the curve's, then random search", images, on_top=True)
    left, n = int(subject.survivors.sum()), len(images)
    said = f"{points} random images in the ball of each of the {left} survivors break {found} of them."
    return Check("random search", at_most(found, n, points=0), f"{found} of {left}", said)


def loss_converged(subject: Subject) -> list[Check]:
    """On the survivors: does the loss still rise in the last ten of twice as many steps, and do those break more?"""
    last, double = f"loss settled, last {LAST} steps", "twice the steps"
    settings = replace(subject.pgd, steps=max(2 * subject.pgd.steps, 2 * LAST))
    which = subject.survivors
    if not which.any():
        none = "Nothing survives, so there is no loss left to settle."
        return [Check(last, PASS, "–", none), Check(double, PASS, in_points(0, len(which)), none)]
    images, trace = subject.losses(settings, which=which)
    found = int((subject.trial(f"the curve's, then {settings.steps} steps of PGD", images, on_top=True) & which).sum())
    more = f"{settings.steps} steps break {found} images that the curve's attack missed."
    clean = subject.loss(subject.images)[which].double()
    return [
        _settled(last, clean, trace, settings.steps),
        Check(double, at_most(found, len(which), points=1), in_points(-found, len(which)), more),
    ]


def _settled(name: str, clean: Tensor, trace: Tensor, steps: int) -> Check:
    """What share of the mean rise in loss the last steps brought; none at all is a failure, too."""
    rise, late = float((trace[-1] - clean).mean()), float((trace[-1] - trace[-1 - LAST]).mean())
    if rise <= 1e-6:
        return Check(name, FAIL, "no rise", f"The loss on {len(clean)} survivors does not rise at all.")
    share = late / rise
    verdict = PASS if share <= SETTLED else WARN if share <= RISING else FAIL
    said = f"Of the rise in loss on {len(clean)} survivors, the last {LAST} of {steps} steps bring {share:.1%}."
    return Check(name, verdict, f"{share:.1%} of the rise", said)


def losses_agree(subject: Subject, *, plain: Tensor) -> Check:
    """Two losses must tell the same story; plain: (m,), broken by the curve's own loss in one run."""
    other = "margin" if subject.pgd.loss == "ce" else "ce"
    images = subject.attacked(replace(subject.pgd, loss=other), which=subject.right)
    broken, n = subject.trial(f"PGD, loss {other}", images), len(plain)
    more = int(broken.sum()) - int(plain.sum())
    said = f"PGD leaves {_percent(~plain)} right with the loss {subject.pgd.loss}, {_percent(~broken)} with {other}."
    verdict = at_most(abs(more), n, points=1)
    return Check("two losses agree", verdict, in_points(-more, n), said)


def transfer(subject: Subject, twin: nn.Module | None, *, name: str) -> Check:
    """Images made on the convolution twin must not break more than those made on the model itself."""
    if twin is None:
        return skipped("transfer from the convolution twin", "No trained convolution twin.")
    everything = torch.ones_like(subject.right)
    images = subject.attacked(subject.pgd, which=everything, model=twin, stop_early=False)
    return not_beaten(subject, "transfer from the convolution twin", subject.trial(f"transfer from {name}", images))


def adaptive(subject: Subject) -> list[Check]:
    """Attacks with gradients that do not vanish where sharpening makes them vanish."""
    if not is_sharpened(subject.model):
        return [skipped(f"adaptive: {name}", "No layer is sharpened.") for name in ADAPTIVE]
    checks = []
    for name, made in ADAPTIVE.items():
        images = subject.attacked(subject.pgd, which=subject.right, model=made(subject.model))
        checks.append(not_beaten(subject, f"adaptive: {name}", subject.trial(name, images)))
    return checks


def plain_pgd(subject: Subject) -> Tensor:
    """(m,), broken by the curve's attack in one fresh run at ε."""
    return subject.trial("PGD afresh", subject.attacked(subject.pgd, which=subject.right))


def _cloud(subject: Subject, place: int, points: int) -> Tensor:
    """Random images (points, 3, H, W) in the ball about one image, by its id and the seed alone.

    L∞: half are corners. L2: half are on the sphere. The rest is uniform in the ball, before it is cut to [0, 1].
    """
    random = torch.Generator().manual_seed(subject.seed * 1_000_003 + int(subject.ids[place]))
    image, half = subject.images[place], points // 2
    shape = (points, *image.shape)
    if subject.attack.norm == "linf":
        noise = torch.rand(shape, generator=random) * 2 - 1
        noise[:half] = noise[:half].sign()
    else:
        noise = torch.randn(shape, generator=random)
        radius = torch.rand(points, generator=random) ** (1 / image.numel())
        radius[:half] = 1
        noise *= (radius / noise.flatten(1).norm(dim=1)).view(-1, 1, 1, 1)
    return (image + subject.eps * noise).clamp(0, 1)


def _percent(right: Tensor) -> str:
    return f"{100 * right.float().mean():.1f} %"
