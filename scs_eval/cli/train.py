"""`scs-eval train`: train one model."""

import os
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, TypeVar, get_args, get_origin, get_type_hints

import click

from scs_eval.cli.model_names import MODEL
from scs_eval.errors import InputError
from scs_eval.training.job import Job, plan_job
from scs_eval.training.recipe import RECIPES, Recipe

Command = TypeVar("Command", bound=Callable[..., Any])


def training_options(command: Command) -> Command:
    """Give a command `--recipe` and an option for every annotated field of Job and Recipe; `given` collects them."""
    for config in (Recipe, Job):
        for name, hint in reversed(get_type_hints(config, include_extras=True).items()):
            if get_origin(hint) is Annotated:
                kind, help_text = get_args(hint)
                command = _option(config, name, kind, help_text)(command)
    about = "Named set of the numbers below.  [default: bcos-cifar for B-cos models, else scs]"
    return click.option("--recipe", "recipe_name", type=click.Choice(list(RECIPES)), help=about)(command)


def given(context: click.Context, config: type) -> dict[str, Any]:
    """The fields of Job or of Recipe that stood on the command line."""
    return dict(context.meta.get(_key(config), {}))


def _key(config: type) -> str:
    return f"{__name__}.{config.__name__}"


def _option(config: type, name: str, kind: Any, help_text: str) -> Callable[[Command], Command]:
    def collect(context: click.Context, parameter: click.Parameter, value: Any) -> None:
        if value is not None:
            context.meta.setdefault(_key(config), {})[name] = value

    flag = name.replace("_", "-")
    flags = f"--{flag}/--no-{flag}" if kind is bool else f"--{flag}"
    return click.option(
        flags, name, type=_click_type(kind), default=None, expose_value=False, callback=collect, help=help_text
    )


def _click_type(kind: Any) -> Any:
    if get_origin(kind) is Literal:
        return click.Choice(get_args(kind))
    plain = get_args(kind)[0] if isinstance(kind, UnionType) else kind
    return click.Path(path_type=Path) if plain is Path else plain


def say(message: object, *, err: bool = False) -> None:
    """Print, unless this is not the first of the processes that torchrun started."""
    if os.environ.get("RANK", "0") == "0":
        click.echo(message, err=err)


@click.command()
@click.option("--model", type=MODEL, metavar="NAME", help="Name of the model, as `scs-eval models` lists it.")
@click.option("--out", type=click.Path(path_type=Path), help="Where the run goes.  [default: results/train/NAME]")
@click.option("--resume", is_flag=True, help="Go on where the run in --out stopped, if there is one.")
@click.option("--overwrite", is_flag=True, help="Replace the run in --out.")
@training_options
@click.pass_context
def command(
    context: click.Context, model: str | None, out: Path | None, resume: bool, overwrite: bool, recipe_name: str | None
) -> None:
    """Train a model; records, checkpoints and the final weights go to one directory.

    On several GPUs: torchrun --nproc-per-node 4 -m scs_eval train …; BatchNorm then takes the means of each
    process's share of a batch. On several machines --out must be a folder that all of them see.
    """
    if resume and overwrite:
        raise InputError("--resume and --overwrite contradict each other; choose one")
    settings, overrides = given(context, Job), given(context, Recipe)
    job = plan_job(model=model, out=out, recipe_name=recipe_name, settings=settings, overrides=overrides, resume=resume)
    from scs_eval.training.run import train

    outcome = train(job, resume=resume, overwrite=overwrite)
    if outcome.stopped_by:
        say(f"Stopped; go on with: scs-eval train --resume --out {shlex.quote(str(job.out))}", err=True)
        sys.exit(128 + outcome.stopped_by)
    say(outcome.weights)
