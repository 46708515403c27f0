"""`scs-eval train`: train one model."""

import shlex
import sys
from pathlib import Path
from typing import Any

import click

from scs_eval.cli.output import say
from scs_eval.cli.params import log_option, one_model, training_options
from scs_eval.errors import InputError
from scs_eval.training.job import plan_job


@click.command()
@one_model(required=False)
@click.option("--out", type=click.Path(path_type=Path), help="Where the run goes.  [default: results/train/NAME]")
@click.option("--resume", is_flag=True, help="Go on where the run in --out stopped, if there is one.")
@click.option("--overwrite", is_flag=True, help="Replace the run in --out.")
@log_option("every epoch's numbers, in --out")
@training_options
def command(
    model: str | None,
    out: Path | None,
    resume: bool,
    overwrite: bool,
    log: str | None,
    recipe_name: str | None,
    settings: dict[str, Any],
    overrides: dict[str, Any],
) -> None:
    """Train MODEL; records, checkpoints and the final weights go to one directory.

    MODEL is a zoo name, a file to go on from, torchvision:NAME or timm:NAME.

    On several GPUs: torchrun --nproc-per-node 4 -m scs_eval train …; BatchNorm then takes the means of each
    process's share of a batch. On several machines --out must be a folder that all of them see.
    """
    if resume and overwrite:
        raise InputError("--resume and --overwrite contradict each other; choose one")
    job = plan_job(model=model, out=out, recipe_name=recipe_name, settings=settings, overrides=overrides, resume=resume)
    from scs_eval.training.run import train
    from scs_eval.training.trackers import after_epoch_for

    outcome = train(job, resume=resume, overwrite=overwrite, after_epoch=after_epoch_for(log, job.out))
    if outcome.stopped_by:
        say(f"Stopped; go on with: scs-eval train --resume --out {shlex.quote(str(job.out))}", err=True)
        sys.exit(128 + outcome.stopped_by)
    say(outcome.weights)
