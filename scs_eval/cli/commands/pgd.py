"""`scs-eval pgd`: accuracy against ε, and whether to believe it."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import click

from scs_eval.analyses.pgd.options import Card, PgdOptions
from scs_eval.cli.output import folder_name, say
from scs_eval.cli.params import COUNT, EPS, Radii, options_from
from scs_eval.cli.request import Request, Session, request_options
from scs_eval.cli.resume import resumable
from scs_eval.errors import InputError
from scs_eval.progress import Advance, progress

if TYPE_CHECKING:
    from scs_eval.analyses.attacks.config import Attack
    from scs_eval.analyses.pgd.result import PgdResult

DEFAULT_N = 500
DEFAULT_EPS = "0.001:0.03"
MODELS = ("rohrer100k_scs", "rohrer100k_ssdp", "rohrer100k_conv")
ALL_HEED = ("norm", "restarts")  # what the other options say leaves an attack as it is whose record does not read it


@dataclass(frozen=True, kw_only=True)
class AttackOptions:
    """What the attacks are like; None leaves each as it is."""

    norm: Annotated[Literal["linf", "l2"] | None, "Norm of the ball.  [default: linf]"] = None
    steps: Annotated[int | None, "Gradient steps; not of square.  [default: 10; apgd 100]", {"type": COUNT}] = None
    rel_step_size: Annotated[
        float | None, "Size of a step of pgd as a share of ε.  [default: 0.25]", {"also": "--step"}
    ] = None
    restarts: Annotated[int | None, "Random starts per image; the worst counts.  [default: 1]", {"type": COUNT}] = None
    loss: Annotated[Literal["ce", "margin", "dlr"] | None, "Loss of pgd and apgd.  [default: ce]"] = None


@dataclass(frozen=True, kw_only=True)
class SweepChoice:
    """Over which ε, and what is checked of the curve."""

    eps: Annotated[
        Radii,
        "lo:hi (30 values), lo:hi:n, or 2/255,4/255.",
        {"type": EPS, "default": DEFAULT_EPS},
    ]
    scorecard: Annotated[bool, "Write the scorecard beside the curve."] = True
    preset: Annotated[Card, "Scorecard: 100 images and short searches, or all images and long ones."] = "fast"

    @property
    def card(self) -> Card | None:
        """As `pgd` takes it."""
        return self.preset if self.scorecard else None


@click.command()
@request_options(
    "pgd", default=MODELS, n_help=f"Take this many images, evenly over the classes.  [default: {DEFAULT_N}]"
)
@click.option(
    "--attack", "attacks", multiple=True, default=("pgd",), show_default=True,
    help="pgd, fgsm, apgd-ce … (see `scs-eval attacks`), autoattack, torchattacks:NAME, foolbox:NAME; repeatable.",
)  # fmt: skip
@options_from(AttackOptions, into="attack_options", only_given=True)
@options_from(SweepChoice, into="choice")
@options_from(PgdOptions, into="options")
def command(
    request: Request,
    attacks: tuple[str, ...],
    attack_options: dict[str, Any],
    choice: SweepChoice,
    options: PgdOptions,
) -> None:
    """Attack each model with ever larger changes of the image, and check whether its robustness is real.

    The sweep finds for every image the smallest ε that fools the model. The figure has accuracy against ε for all
    models, with 95 % bands; `attacked` shows images, what was added to them, and the explanation before and after. The
    scorecard tries what a masked gradient would hide: other attacks, other losses, more steps, and for sharpened layers
    gradients that do not vanish.

    \b
    Examples:
      scs-eval pgd --eps 0.001:0.03
      scs-eval pgd --model 'rohrer100k*' --eps 1/255,2/255,4/255,8/255 --no-scorecard
      scs-eval pgd --model rohrer100k_scs --attack pgd --attack square --norm l2 --eps 0.05:1
      scs-eval pgd --attack apgd-ce --attack apgd-dlr --preset full --data cifar10 -n 1000
    """
    chosen = choose_attacks(attacks, **attack_options)
    with request.open() as session, resumable(request) as parts:
        from scs_eval.analyses.core.result import side_by_side
        from scs_eval.analyses.pgd.runner import count_steps

        results = []
        for name in session.models:
            images = len(session.images(name, default_n=DEFAULT_N))
            with progress(name, count_steps(images, choice.card)) as advance:
                work = partial(run, session, name, chosen, choice, options, parts, advance)
                results.append(session.result(work, name))
        for result in results:
            complain(result)
        session.finish(side_by_side(results, label=request.out.name))


def run(
    session: Session,
    name: str,
    attacks: "tuple[Attack, ...]",
    choice: SweepChoice,
    options: PgdOptions,
    parts: Path,
    advance: Advance,
) -> "PgdResult":
    """The sweep of one model."""
    from scs_eval.analyses.pgd import pgd
    from scs_eval.models.loading.sources import trained_twin

    request, named, data = session.request, session.models[name], session.images(name, default_n=DEFAULT_N)
    twin = trained_twin(named.architecture, device=session.device) if choice.scorecard else None
    settings = (choice.eps.values, attacks, options.independent, request.seed, request.data)
    result = pgd(
        named.model, data, eps=choice.eps.values, attacks=attacks, label=name, seed=request.seed,
        options=replace(
            options, scorecard=choice.card, twin=twin, progress=advance, checkpoint=part_of(parts, name, *settings)
        ),
    )  # fmt: skip
    return result.with_settings({**session.settings(data), "eps": choice.eps.text, "preset": choice.preset})


def choose_attacks(asked: Sequence[str], **given: Any) -> "tuple[Attack, ...]":
    """Each attack once, with what the options say of it; all must have one norm."""
    from scs_eval.analyses.attacks.config import parse_attacks

    chosen = [attack for text in asked for attack in parse_attacks(text)]
    for option in given:
        if not any(_concerns(option, attack) for attack in chosen):
            raise InputError(f"--{option.replace('_', '-')} says nothing to {', '.join(asked)}; see `scs-eval attacks`")
    chosen = [
        replace(attack, **{key: value for key, value in given.items() if _concerns(key, attack)}) for attack in chosen
    ]
    if len({attack.norm for attack in chosen}) > 1:
        raise InputError("expected attacks of one norm, got both; run the command once for each --norm")
    return tuple(dict.fromkeys(chosen))


def _concerns(option: str, attack: "Attack") -> bool:
    return option in ALL_HEED or option in attack.kind.reads


def part_of(folder: Path, name: str, *settings: object) -> Path:
    """Where the unfinished sweep of a model with these settings is kept: another request must not go on from it."""
    digest = hashlib.sha256(repr((name, *settings)).encode()).hexdigest()[:8]
    return folder / f"{folder_name([name])}-{digest}.npz"


def complain(result: "PgdResult") -> None:
    """Every check that did not pass, one line each."""
    card = result.scorecard
    for check in card.lines if card is not None else ():
        if check.verdict in ("WARN", "FAIL"):
            say(f"{check.verdict} {result.label}, {check.name}: {check.figure}. {check.sentence}")
