"""`scs-eval zoo train`: train many models."""

import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import click

from scs_eval.cli import collect
from scs_eval.cli.model_names import MODEL
from scs_eval.cli.train import given, say, training_options
from scs_eval.errors import InputError
from scs_eval.training.job import Job, plan_job
from scs_eval.training.recipe import Recipe
from scs_eval.training.workspace import Workspace, read_run


@click.group()
def command() -> None:
    """Work on many models at once."""


@command.command("train")
@click.argument("pattern", type=MODEL)
@click.option(
    "--out", type=click.Path(path_type=Path), default="results/train", show_default=True, help="A folder each"
)
@click.option(
    "--cluster",
    type=click.Choice(["slurm", "local"]),
    help="Submit one job a model by submitit, all at once.",
)
@click.option("--cluster-option", multiple=True, metavar="KEY=VALUE", help="For submitit, such as slurm_partition=gpu.")
@training_options
@click.pass_context
def train_command(
    context: click.Context,
    pattern: str,
    out: Path,
    cluster: str | None,
    cluster_option: tuple[str, ...],
    recipe_name: str | None,
) -> None:
    """Train every model whose name matches PATTERN, such as 'rohrer*'; several patterns with commas.

    Finished models are skipped and interrupted ones continued, so the same command can be given again.
    """
    jobs = _plan(context, pattern, out, recipe_name)
    if cluster:
        _submit(jobs, cluster, out / "submitit", _parameters(cluster_option))
    elif cluster_option:
        raise InputError("--cluster-option needs --cluster slurm or local")
    else:
        _train_here(jobs)


def _plan(context: click.Context, pattern: str, out: Path, recipe_name: str | None) -> list[Job]:
    """The jobs that are left to do."""
    settings, overrides = given(context, Job), given(context, Recipe)

    def plan(name: str) -> Job:
        asked: dict[str, Any] = {"recipe_name": recipe_name, "settings": settings, "overrides": overrides}
        return plan_job(model=name, out=out / name, resume=True, **asked)

    names = _names(pattern)
    finished = [name for name in names if Workspace(out / name).finished]
    say(f"{len(names)} models match, {len(finished)} of them are finished.")
    for name in finished:
        with suppress(InputError):  # who knows how it was trained; it is not trained again
            if other := plan(name).difference(read_run(out / name)):
                say(f"{name} was finished with {other}; another --out trains it so", err=True)
    return [plan(name) for name in names if name not in finished]


def _names(pattern: str) -> list[str]:
    """What the patterns match; a name that the list leaves out, such as rohrer100k_scs_p=2, stands for itself."""
    from scs_eval.models.registry import canonical_name, list_models

    parts = [part.strip() for part in pattern.split(",")]
    names = [list_models(part) if set(part) & set("*?[") else [canonical_name(part)] for part in parts]
    if not any(names):
        raise InputError(f"no model matches {pattern!r}; `scs-eval models` lists them")
    return list(dict.fromkeys(name for some in names for name in some))


def _train_here(jobs: list[Job]) -> None:
    from scs_eval.training.zoo import train_all

    failed = False
    for result in train_all(jobs):
        say(f"{result.job.model}: {result.status}", err=result.failed)
        failed = failed or result.failed
        if result.stopped_by:
            say("Stopped; the same command goes on.", err=True)
            sys.exit(128 + result.stopped_by)
    sys.exit(1 if failed else 0)


def _submit(jobs: list[Job], cluster: str, logs: Path, parameters: dict[str, Any]) -> None:
    from scs_eval.training.cluster import submit

    for job, number in zip(jobs, submit(jobs, cluster=cluster, logs=logs, parameters=parameters), strict=True):
        say(f"{job.model}: job {number}")
    say(logs)


def _parameters(options: tuple[str, ...]) -> dict[str, Any]:
    pairs = [option.partition("=") for option in options]
    for key, equals, _ in pairs:
        if not (key and equals):
            raise InputError(f"--cluster-option: expected KEY=VALUE, got {key!r}")
    return {key: int(value) if value.isdigit() else value for key, _, value in pairs}


command.add_command(collect.command)
