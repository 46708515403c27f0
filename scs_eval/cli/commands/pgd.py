"""`scs-eval pgd`: accuracy against ε, and whether to believe it."""

import hashlib
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import click

from scs_eval.cli.output import folder_name, say
from scs_eval.cli.params import COUNT, EPS, Radii, options_from
from scs_eval.cli.request import Request, Session, request_options
from scs_eval.errors import InputError
from scs_eval.progress import Advance, progress

if TYPE_CHECKING:
    from scs_eval.analyses.attacks.config import Attack
    from scs_eval.analyses.pgd import PgdResult

DEFAULT_N = 500
DEFAULT_EPS = "0.001:0.03"
MODELS = ("rohrer100k_scs", "rohrer100k_ssdp", "rohrer100k_conv")
ALL_HEED = ("norm", "restarts")  # what the other options say leaves an attack as it is whose record does not read it
CARD_COST = {"fast": 3.5, "full": 30.0}  # of a scorecard, in sweeps of its images: measured; estimated by its queries


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
class SweepOptions:
    """How the sweep over ε is made, and what is checked of it."""

    eps: Annotated[
        Radii,
        "lo:hi (30 values), lo:hi:n, or 2/255,4/255.",
        {"type": EPS, "default": DEFAULT_EPS},
    ]
    independent: Annotated[bool, "Attack every ε afresh instead of searching each image's smallest."] = False
    scorecard: Annotated[bool, "Write the scorecard beside the curve."] = True
    preset: Annotated[
        Literal["fast", "full"], "Scorecard: 100 images and short searches, or all images and long ones."
    ] = "fast"
    checkpoint_every: Annotated[
        int, "Keep what is done after so many batches; the same command goes on from there.", {"type": COUNT}
    ] = 1
    batch_size: Annotated[int, "Images at once.", {"type": COUNT}] = 256


@click.command()
@request_options(
    "pgd", default=MODELS, n_help=f"Take this many images, evenly over the classes.  [default: {DEFAULT_N}]"
)
@click.option(
    "--attack", "attacks", multiple=True, default=("pgd",), show_default=True,
    help="pgd, fgsm, apgd-ce … (see `scs-eval attacks`), autoattack, torchattacks:NAME, foolbox:NAME; repeatable.",
)  # fmt: skip
@options_from(AttackOptions, into="attack_options", only_given=True)
@options_from(SweepOptions, into="sweep")
def command(request: Request, attacks: tuple[str, ...], attack_options: dict[str, Any], sweep: SweepOptions) -> None:
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
    parts = request.out.with_name(f".{request.out.name}.partial")
    with request.open() as session, resumable(parts):
        from scs_eval.analyses.core.result import side_by_side
        from scs_eval.analyses.scorecard import STEPS

        results = []
        for name in session.models:
            images = len(session.images(name, default_n=DEFAULT_N))
            with progress(name, images + STEPS * check_cost(images, sweep)) as advance:
                work = partial(run, session, name, chosen, sweep, parts, advance)
                results.append(session.result(work, name))
        for result in results:
            complain(result)
        session.finish(side_by_side(results, label=request.out.name))
        if request.only is None:
            shutil.rmtree(parts, ignore_errors=True)


def run(
    session: Session, name: str, attacks: "tuple[Attack, ...]", sweep: SweepOptions, parts: Path, advance: Advance
) -> "PgdResult":
    """The sweep of one model."""
    from scs_eval.analyses.pgd import pgd
    from scs_eval.models.loading.sources import trained_twin

    request, named, data = session.request, session.models[name], session.images(name, default_n=DEFAULT_N)
    twin_name, twin = trained_twin(named.architecture, device=session.device) if sweep.scorecard else ("", None)
    settings = (sweep.eps.values, attacks, sweep.independent, request.seed, request.data)
    result = pgd(
        named.model, data.images, data.labels, classes=data.classes, eps=sweep.eps.values, attacks=attacks,
        independent=sweep.independent, scorecard=sweep.preset if sweep.scorecard else None, label=name,
        indices=data.indices, seed=request.seed, twin=twin, twin_name=twin_name,
        batch_size=sweep.batch_size, progress=advance, checkpoint_every=sweep.checkpoint_every,
        checkpoint=part_of(parts, name, *settings),
        scorecard_progress=lambda count: advance(count * check_cost(len(data), sweep), "scorecard"),
    )  # fmt: skip
    return result.with_settings({**session.settings(data), "eps": sweep.eps.text, "preset": sweep.preset})


def check_cost(images: int, sweep: SweepOptions) -> int:
    """What the bar counts for one of the scorecard's parts, in images of the sweep; 0 without a scorecard."""
    from scs_eval.analyses.scorecard import STEPS, find_preset

    if not sweep.scorecard:
        return 0
    few = min(images, find_preset(sweep.preset).images or images)
    return max(1, round(few * CARD_COST[sweep.preset] / STEPS))


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


@contextmanager
def resumable(folder: Path) -> Iterator[None]:
    """Say how to go on after Ctrl-C."""
    try:
        yield
    except KeyboardInterrupt:
        if folder.is_dir() and any(folder.iterdir()):
            say(f"What is done so far is kept in {folder}; the same command goes on from there.", err=True)
        raise


def complain(result: "PgdResult") -> None:
    """Every check that did not pass, one line each."""
    card = result.scorecard
    for check in card.lines if card is not None else ():
        if check.verdict in ("WARN", "FAIL"):
            say(f"{check.verdict} {result.label}, {check.name}: {check.figure}. {check.sentence}")
