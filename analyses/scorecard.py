"""Is the robustness real? The scorecard beside a curve: each check passes, warns or fails, with its figure and a word.

A curve of accuracy against ε is an upper bound: a better attack may always come. Gradients that vanish, noise, or a
loss that has not settled make it a loose one. The checks follow Athalye, Carlini and Wagner (2018) and Carlini et al.
(2019), and add attacks that know what sharpening does to a gradient.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn

from scs_eval.analyses.answers import logits_in_chunks
from scs_eval.analyses.attacks.settings import Attack
from scs_eval.analyses.diagnosis import soundness, strength
from scs_eval.analyses.diagnosis.check import ORDER, Check, worst
from scs_eval.analyses.diagnosis.planted import self_test
from scs_eval.analyses.diagnosis.subject import Subject
from scs_eval.analyses.inputs import check_images, count_logits
from scs_eval.analyses.result import Result
from scs_eval.analyses.scorecard_figure import draw_scorecard
from scs_eval.analyses.state import evaluating
from scs_eval.analyses.statistics import Interval, wilson
from scs_eval.errors import InputError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


@dataclass(frozen=True, kw_only=True)
class Preset:
    """How thorough a scorecard is: on how many images (0: all), and how long the searches are."""

    images: int
    queries: int
    points: int
    afresh: int


PRESETS = {
    "fast": Preset(images=100, queries=300, points=50, afresh=4),
    "full": Preset(images=0, queries=5000, points=1000, afresh=8),
}


@dataclass(frozen=True, eq=False, kw_only=True)
class Scorecard(Result):
    """The checks of one model at one ε.

    eps, norm: where the other attacks were tried. checks: name, verdict, figure and sentence of each.
    right: (m,) whether the model is right when clean. reported: (m,) whether the curve counts the image as broken.
    attacks: the A other attacks tried. broken: (A, m) what each broke; what is wrong when clean counts as broken.
    """

    name = "scorecard"
    eps: float
    norm: str
    checks: tuple[tuple[str, str, str, str], ...]
    right: np.ndarray
    reported: np.ndarray
    attacks: tuple[str, ...]
    broken: np.ndarray

    @property
    def verdict(self) -> str:
        """The worst of all."""
        return worst(self.lines)

    @property
    def lines(self) -> tuple[Check, ...]:
        """The checks by their names, which a file does not keep."""
        return tuple(Check(*each) for each in self.checks)

    @property
    def worst_case(self) -> np.ndarray:
        """(m,) whether any attack broke the image at eps: the curve's or another."""
        found: np.ndarray = self.reported | self.broken.any(0)
        return found

    @property
    def robust_accuracy(self) -> Interval:
        """The share of images that every attack left right."""
        return wilson((~self.worst_case).sum(), len(self.worst_case))

    @property
    def reported_accuracy(self) -> Interval:
        """The share of the same images that the curve says are right."""
        return wilson((~self.reported).sum(), len(self.reported))

    def counts(self) -> dict[str, int]:
        """How many checks have each verdict, worst first."""
        return {verdict: sum(check.verdict == verdict for check in self.lines) for verdict in ORDER}

    def table(self) -> pd.DataFrame:
        """One row per check."""
        columns = {"model": self.label, "eps": self.eps, "n": len(self.right)}
        return pd.DataFrame([{**columns, **check._asdict()} for check in self.lines])

    def attack_table(self) -> pd.DataFrame:
        """One row per attack: its robust accuracy at eps and how many images the curve's attack missed."""
        names = ("the curve's", *self.attacks, "all together")
        rows = zip(names, (self.reported, *self.broken, self.worst_case), strict=True)
        return pd.DataFrame([self._attack_row(name, broken) for name, broken in rows])

    def _attack_row(self, name: str, broken: np.ndarray) -> dict[str, Any]:
        accuracy, low, high = map(float, wilson((~broken).sum(), len(broken)))
        missed = int((broken & ~self.reported).sum())
        return {"model": self.label, "eps": self.eps, "attack": name, "n": len(broken), "robust_accuracy": accuracy,
                "low": low, "high": high, "missed_by_curve": missed}  # fmt: skip

    def tables(self) -> dict[str, pd.DataFrame]:
        """The checks, and the attacks."""
        return {"table": self.table(), "attacks": self.attack_table()}

    def summary(self) -> pd.DataFrame:
        """Check, verdict, figure, sentence."""
        return self.table().drop(columns=["eps", "n"])

    def figure(self, ax: "Axes | None" = None) -> "Figure":
        """The checks as a table with a word and a colour each."""
        return draw_scorecard([self], ax)


def scorecard(
    model: nn.Module,
    images: Tensor,
    labels: Tensor,
    *,
    eps: float,
    attacks: Sequence[Attack] = (Attack(),),
    reported: Tensor | None = None,
    twin: nn.Module | None = None,
    twin_name: str = "the twin",
    preset: str = "fast",
    afresh: tuple[Sequence[float], Tensor] | None = None,
    seed: int = 0,
    ids: Tensor | None = None,
    label: str = "model",
    batch_size: int = 512,
) -> Scorecard:
    """Check the model and the attacks on images (m, 3, H, W) in [0, 1] with labels (m,) at one ε.

    attacks: the curve's; the first is the one that the checks vary. reported: (m,) what the curve counts as broken at
    eps, by default what those attacks break now. twin: the convolution network whose adversarial images are tried.
    afresh: (E,) values of ε and (E, m) what an independent sweep broke; by default a few attacks are made for it.
    """
    chosen = find_preset(preset)
    check_images(images)
    with evaluating(model):
        subject = Subject(
            model=model, images=images.float().cpu(), labels=labels.long().cpu(), eps=eps, attack=attacks[0],
            logits=logits_in_chunks(model, images.float(), classes=count_logits(model, images[:1])), seed=seed,
            ids=torch.arange(len(images)) if ids is None else ids, batch_size=batch_size,
        )  # fmt: skip
        subject.reported = ~subject.right | (_broken_now(subject, attacks) if reported is None else reported.cpu())
        afresh = afresh or _afresh(subject, chosen.afresh)
        checks = _checks(subject, attacks, chosen, twin, twin_name, soundness.monotone(*afresh))
    return Scorecard(
        label=label,
        settings={"seed": seed, "preset": preset, "n": len(images), "batch_size": batch_size},
        eps=eps,
        norm=attacks[0].norm,
        checks=tuple(tuple(check) for check in checks),  # type: ignore[misc]
        right=subject.right.numpy(),
        reported=subject.reported.numpy(),
        attacks=tuple(subject.broken),
        broken=torch.stack(list(subject.broken.values())).numpy(),
    )


def find_preset(name: str) -> Preset:
    """The preset of that name."""
    if name not in PRESETS:
        raise InputError(f"expected a preset of {', '.join(PRESETS)}, got {name!r}")
    return PRESETS[name]


def _broken_now(subject: Subject, attacks: Sequence[Attack]) -> Tensor:
    """(m,) what the attacks break at eps, together."""
    trials = [subject.trial(each.name, subject.attacked(each, which=subject.right)) for each in attacks]
    return torch.stack(trials).any(0)


def _checks(
    subject: Subject, attacks: Sequence[Attack], preset: Preset, twin: nn.Module | None, twin_name: str, rising: Check
) -> list[Check]:
    """All of them in the order they are read."""
    model = [soundness.logits_not_probabilities(subject), soundness.deterministic(subject)]
    model += [soundness.gradients(subject)]
    rules = [soundness.nothing_at_zero(subject), rising, soundness.nothing_survives(subject)]
    plain = strength.plain_pgd(subject)
    others = [strength.fgsm(subject), strength.square(subject, queries=preset.queries)]
    others += [strength.random_search(subject, points=preset.points), *strength.loss_converged(subject)]
    others += [strength.losses_agree(subject, plain=plain), strength.transfer(subject, twin, name=twin_name)]
    others += strength.adaptive(subject)
    first = [self_test(attacks, seed=subject.seed), soundness.constraint_kept(subject)]
    return [first[0], *model, rules[0], first[1], *rules[1:], *others]


def _afresh(subject: Subject, count: int) -> tuple[list[float], Tensor]:
    """Attacks afresh from ε/4 to 2ε: the values, and what broke at each (E, m)."""
    eps = [float(each) for each in np.geomspace(subject.eps / 4, subject.eps * 2, count)]
    answers = [subject.answer(subject.attacked(subject.attack, which=subject.right, eps=each)) for each in eps]
    return eps, torch.stack([(answer.argmax(1) != subject.labels) | ~subject.right for answer in answers])
