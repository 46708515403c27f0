"""`scs-eval pgd`: accuracy against ε, and whether to believe it."""

import hashlib
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from scs_eval.cli.images import pick_images
from scs_eval.cli.options import data_options
from scs_eval.cli.output import choose_device, choose_out, data_settings, finish, folder_name, output_options
from scs_eval.cli.progress import progress
from scs_eval.cli.sources import architecture_of, choose_models, input_size_of, load_all, model_option
from scs_eval.errors import InputError
from scs_eval.ranges import parse_range

if TYPE_CHECKING:
    from torch import nn

    from scs_eval.analyses.attacks.settings import Attack
    from scs_eval.analyses.pgd import PgdResult
    from scs_eval.data import ImageData

DEFAULT_N = 500
MODELS = ("rohrer100k_scs", "rohrer100k_ssdp", "rohrer100k_conv")
# Which attacks an option speaks of: it leaves the others as they are (the queries of square: square-300).
SPEAKS_OF = {"steps": ("pgd", "apgd", "torchattacks"), "loss": ("pgd", "apgd"), "step": ("pgd", "torchattacks")}


@click.command()
@model_option(default=MODELS, show_default=True)
@click.option("--eps", default="0.001:0.03", show_default=True, help="lo:hi (30 values), lo:hi:n, or 2/255,4/255.")
@click.option(
    "--attack", "attacks", multiple=True, default=("pgd",), show_default=True,
    help="pgd, fgsm, apgd-ce, apgd-dlr, square, …-targeted, or torchattacks:NAME; repeatable, the worst counts.",
)  # fmt: skip
@click.option("--norm", type=click.Choice(["linf", "l2"]), help="Norm of the ball.  [default: linf]")
@click.option("--steps", type=click.IntRange(min=1), help="Gradient steps; not of square.  [default: 10; apgd 100]")
@click.option("--step", type=float, help="Size of a step of pgd as a share of ε.  [default: 0.25]")
@click.option("--restarts", type=click.IntRange(min=1), help="Random starts per image; the worst counts.  [default: 1]")
@click.option("--loss", type=click.Choice(["ce", "margin", "dlr"]), help="Loss of pgd and apgd.  [default: ce]")
@click.option("--independent", is_flag=True, help="Attack every ε afresh instead of searching each image's smallest.")
@click.option("--diagnose/--no-diagnose", default=True, show_default=True, help="Write the scorecard beside the curve.")
@click.option(
    "--preset", type=click.Choice(["fast", "full"]), default="fast", show_default=True,
    help="Scorecard: 100 images and short searches, or all images and long ones.",
)  # fmt: skip
@click.option(
    "--checkpoint-every", type=click.IntRange(min=1), default=1, show_default=True,
    help="Keep what is done after so many batches; the same command goes on from there.",
)  # fmt: skip
@click.option("--batch-size", type=click.IntRange(min=1), default=256, show_default=True, help="Images at once.")
@data_options(f"Take this many images, evenly over the classes.  [default: {DEFAULT_N}]")
@output_options
def command(
    models: tuple[str, ...],
    eps: str,
    attacks: tuple[str, ...],
    norm: str | None,
    steps: int | None,
    step: float | None,
    restarts: int | None,
    loss: str | None,
    independent: bool,
    diagnose: bool,
    preset: str,
    checkpoint_every: int,
    batch_size: int,
    data: str,
    data_dir: str | None,
    n: int | None,
    seed: int,
    skip_bad: bool,
    out: Path | None,
    device: str,
) -> None:
    """Attack each model with ever larger changes of the image, and check whether its robustness is real.

    The sweep finds for every image the smallest ε that fools the model. The figure has accuracy against ε for all
    models, with 95 % bands; `attacked` shows images, what was added to them, and the explanation before and after. The
    scorecard tries what a masked gradient would hide: other attacks, other losses, more steps, and for sharpened layers
    gradients that do not vanish.

    \b
    Examples:
      scs-eval pgd --eps 0.001:0.03
      scs-eval pgd --model 'rohrer100k*' --eps 1/255,2/255,4/255,8/255 --no-diagnose
      scs-eval pgd --model rohrer100k_scs --attack pgd --attack square --norm l2 --eps 0.05:1
      scs-eval pgd --attack apgd-ce --attack apgd-dlr --preset full --data cifar10 -n 1000
    """
    radii = choose_eps(eps)
    chosen = choose_attacks(attacks, norm=norm, steps=steps, step=step, restarts=restarts, loss=loss)
    names = choose_models(models)
    out = choose_out(out, analysis="pgd", names=models)
    device = choose_device(device)
    networks = load_all(names)  # all of them first: a misspelt name should not cost the work before it
    parts = out.with_name(f".{out.name}.partial")

    @cache
    def images(size: int | None) -> "ImageData":
        options: dict[str, Any] = {"data_dir": data_dir, "seed": seed, "skip_bad": skip_bad, "size": size}
        return pick_images(data, n=n, usual=DEFAULT_N, **options)

    def run(name: str, advance: Callable[[int], None]) -> "PgdResult":
        from scs_eval.analyses.pgd import pgd

        found = images(input_size_of(name))
        twin_name, twin = trained_twin(name) if diagnose else ("", None)
        result = pgd(
            networks[name].to(device), found.images, found.labels, classes=found.classes, eps=radii, attacks=chosen,
            independent=independent, diagnose=preset if diagnose else None, label=name, indices=found.indices,
            seed=seed, twin=None if twin is None else twin.to(device), twin_name=twin_name,
            batch_size=batch_size, progress=advance, checkpoint_every=checkpoint_every,
            checkpoint=part_of(parts, name, radii, chosen, independent, seed, data, n),
        )  # fmt: skip
        return result.with_settings({**data_settings(found, seed=seed), "eps": eps, "preset": preset})

    with resumable(parts):
        results = []
        for name in names:
            with progress(name, len(images(input_size_of(name)))) as advance:
                results.append(run(name, advance))
    from scs_eval.analyses.pgd import PgdComparison

    for result in results:
        complain(result)
    finish(results[0] if len(results) == 1 else PgdComparison.of(results, label=out.name), out)
    shutil.rmtree(parts, ignore_errors=True)


def choose_eps(text: str) -> list[float]:
    """The values of --eps, rising, each once; a negative one raises."""
    values = sorted(set(parse_range(text)))
    if values[0] < 0:
        raise InputError(f"expected --eps of at least 0, got {values[0]:g} in {text!r}")
    if values[-1] == 0:
        raise InputError("expected an --eps above 0; clean accuracy is in every curve")
    return values


def choose_attacks(asked: Sequence[str], **options: Any) -> "tuple[Attack, ...]":
    """Each attack once, with what the options that are not None say of it; all must have one norm."""
    from scs_eval.analyses.attacks.settings import parse_attack

    given = {key: value for key, value in options.items() if value is not None}
    chosen = [parse_attack(text) for text in asked]
    for option in given:
        if not any(_concerns(option, attack) for attack in chosen):
            raise InputError(f"--{option} is for {', '.join(SPEAKS_OF[option])}, not for {', '.join(asked)}")
    chosen = [replace(each, **{key: given[key] for key in given if _concerns(key, each)}) for each in chosen]
    if len({attack.norm for attack in chosen}) > 1:
        raise InputError("expected attacks of one norm, got both; run the command once for each --norm")
    return tuple(dict.fromkeys(chosen))


def _concerns(option: str, attack: "Attack") -> bool:
    return attack.name.partition(":")[0] in SPEAKS_OF.get(option, (attack.name.partition(":")[0],))


def trained_twin(name: str) -> "tuple[str, nn.Module | None]":
    """The nearest convolution twin that weights are shipped for."""
    from scs_eval.analyses.twins import twins
    from scs_eval.models.checkpoints import load_model, weights_index

    found = next((twin for twin in twins(architecture_of(name)) if twin in weights_index()), None)
    return ("", None) if found is None else (found, load_model(found))


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
            click.echo(f"What is done so far is kept in {folder}; the same command goes on from there.", err=True)
        raise


def complain(result: "PgdResult") -> None:
    """Every check that did not pass, one line each."""
    card = result.scorecard
    for check in card.lines if card is not None else ():
        if check.verdict in ("WARN", "FAIL"):
            click.echo(f"{check.verdict} {result.label}, {check.name}: {check.figure}. {check.sentence}")
