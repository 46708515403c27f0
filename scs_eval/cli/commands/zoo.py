"""`scs-eval zoo train`: train many models."""

import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import click

from scs_eval.cli.cluster_request import cluster_options
from scs_eval.cli.commands import _collect as collect
from scs_eval.cli.commands import _export_hub as export_hub
from scs_eval.cli.output import say
from scs_eval.cli.params import SEED, log_option, one_model, training_options
from scs_eval.errors import InputError, shortened
from scs_eval.ranges import parse_range
from scs_eval.training.job import Job, plan_job
from scs_eval.training.run_directory import RunDirectory, read_run

MOST_SEEDS = 1000


class Seeds(click.ParamType):  # type: ignore[type-arg,unused-ignore]  # generic only in newer click
    """`0:5` is 0, 1, 2, 3, 4; `0,3` is both."""

    name = "seeds"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, ...]:
        """The seeds, in order."""
        low, colon, high = str(value).partition(":")
        try:
            numbers = tuple(SEED.convert(part, param, ctx) for part in ((low, high) if colon else value.split(",")))
        except InputError:
            numbers = ()
        if not numbers or (colon and not 0 < numbers[1] - numbers[0] <= MOST_SEEDS):
            self.fail(f"expected LO:HI such as 0:5, or a list such as 0,3; got {shortened(value)}", param, ctx)
        return tuple(range(*numbers)) if colon else numbers


SEEDS = Seeds()


@click.group()
def command() -> None:
    """Work on many models at once."""


@command.command("train")
@one_model()
@click.option(
    "--out", type=click.Path(path_type=Path), default="results/train", show_default=True, help="A folder each"
)
@cluster_options
@click.option(
    "--values", callback=lambda ctx, param, text: None if text is None else parse_range(text), metavar="LIST",
    help="Numbers for a =* in the pattern, such as 0.5,1,2 or 0.5:4:8 for 'rohrer25k_scs_p=*'.",
)  # fmt: skip
@click.option("--seeds", type=SEEDS, metavar="LO:HI", help="Train each with seeds LO … HI-1, or a list such as 0,3.")
@log_option("every epoch's numbers, in each model's folder")
@training_options
def train_command(
    model: str,
    out: Path,
    values: list[float] | None,
    seeds: tuple[int, ...] | None,
    cluster: str | None,
    cluster_option: tuple[str, ...],
    log: str | None,
    recipe_name: str | None,
    settings: dict[str, Any],
    overrides: dict[str, Any],
) -> None:
    """Train every model whose name matches the pattern MODEL, such as 'rohrer*'; several patterns with commas.

    NAME@3 is the model NAME with seed 3, and goes to a folder of that name. All of one seed are begun before the next.

    Finished models are skipped and interrupted ones continued, so the same command can be given again.
    """
    jobs = _plan(
        _with_values(model, values), out, seeds, recipe_name=recipe_name, settings=settings, overrides=overrides
    )
    if cluster:
        from scs_eval.cluster import parse_parameters

        _submit(jobs, cluster, out / "submitit", parse_parameters(cluster_option), log)
    elif cluster_option:
        raise InputError("--cluster-option needs --cluster slurm or local")
    else:
        _train_here(jobs, log)


def _with_values(pattern: str, values: list[float] | None) -> str:
    """The pattern with every =* in it replaced by the numbers in turn."""
    parts = [part.strip() for part in pattern.split(",")]
    if values is not None and not any("=*" in part for part in parts):
        raise InputError(f"--values is for a =* in the pattern, such as 'rohrer25k_scs_p=*', got {pattern!r}")
    chosen = [
        [part.replace("=*", f"={value:g}") for value in values] if "=*" in part and values else [part] for part in parts
    ]
    return ",".join(name for names in chosen for name in names)


def _plan(pattern: str, out: Path, seeds: tuple[int, ...] | None, **asked: Any) -> list[Job]:
    """The jobs that are left to do."""

    def plan(name: str) -> Job:
        return plan_job(model=name, out=out / name, resume=True, **asked)

    names = _seeded(_names(pattern), seeds, asked["settings"])
    finished = [name for name in names if RunDirectory(out / name).finished]
    say(f"{len(names)} models match, {len(finished)} of them are finished.")
    for name in finished:
        with suppress(InputError):  # who knows how it was trained; it is not trained again
            if other := plan(name).difference(read_run(out / name)):
                say(f"{name} was finished with {other}; another --out trains it so", err=True)
    return [plan(name) for name in names if name not in finished]


def _seeded(names: list[str], seeds: tuple[int, ...] | None, settings: dict[str, Any]) -> list[str]:
    """Each name with each seed; without --seeds, with that of --seed or its own."""
    from scs_eval.models.zoo.names import split_seed, with_seed

    if seeds is None:
        seed = settings.get("seed")
        return names if seed is None else [with_seed(split_seed(name)[0], seed) for name in names]
    if "seed" in settings:
        raise InputError("--seed and --seeds contradict each other; choose one")
    return list(dict.fromkeys(with_seed(split_seed(name)[0], seed) for seed in seeds for name in names))


def _names(pattern: str) -> list[str]:
    """What the patterns match; a name that the list leaves out, such as rohrer100k_scs_p=2, stands for itself."""
    from scs_eval.models.zoo.registry import canonical_name, list_models

    parts = [part.strip() for part in pattern.split(",")]
    names = [list_models(part) if set(part) & set("*?[") else [canonical_name(part)] for part in parts]
    if not any(names) and "=*" in pattern:
        raise InputError(f"which numbers for {pattern!r}? give --values such as 0.5,1,2")
    if not any(names):
        raise InputError(f"no model matches {pattern!r}; `scs-eval models` lists them")
    return list(dict.fromkeys(name for some in names for name in some))


def _train_here(jobs: list[Job], log: str | None) -> None:
    from scs_eval.training.run import train_all

    failures = []  # whether each was a wrong request
    for result in train_all(jobs, log=log):
        say(f"{result.job.label}: {result.status}", err=result.failed)
        failures += [result.refused] if result.failed else []
        if result.stopped_by:
            say("Stopped; the same command goes on.", err=True)
            sys.exit(128 + result.stopped_by)
    sys.exit((2 if all(failures) else 1) if failures else 0)


def _submit(jobs: list[Job], cluster: str, logs: Path, parameters: dict[str, Any], log: str | None) -> None:
    from scs_eval.training.run import submit_jobs

    numbers = submit_jobs(jobs, cluster=cluster, logs=logs, parameters=parameters, log=log)
    for job in jobs:
        say(f"{job.label}: job {numbers[job.label]}")
    say(logs)


command.add_command(collect.command)
command.add_command(export_hub.command)
