"""A command on a cluster: a job for each model, whose result is kept in pieces, and a job that puts them together.

Every job runs the command as it was typed. With `--only LABEL` it does one model's part and leaves its results in
`--parts DIR`; the last one finds all of them there, and so writes what one machine would have written.
"""

import hashlib
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from scs_eval.cli.output import say
from scs_eval.errors import InputError, NotApplicableError

if TYPE_CHECKING:
    from scs_eval.cli.request import Request

Function = TypeVar("Function", bound=Callable[..., Any])
OWN = ("--cluster", "--cluster-option")
MERGE = "merge"


def cluster_options(function: Function) -> Function:
    """Add --cluster and --cluster-option; the command gets `cluster` and `cluster_option`."""
    text = "For submitit, such as slurm_partition=gpu, timeout_min=120 or tasks_per_node=4; repeatable."
    function = click.option("--cluster-option", multiple=True, metavar="KEY=VALUE", help=text)(function)
    text = "Submit a job for each model by submitit, and return: to SLURM, or as processes of this machine."
    return click.option("--cluster", type=click.Choice(["slurm", "local"]), help=text)(function)


def part_options(function: Function) -> Function:
    """Add what jobs are told, and nobody else types: --only and --parts."""
    function = click.option("--only", hidden=True)(function)
    return click.option("--parts", type=click.Path(path_type=Path), hidden=True)(function)


@dataclass(frozen=True)
class CommandTask:
    """What a node runs: a command, in the process group of its job; submitit calls `checkpoint` when the time is up."""

    words: tuple[str, ...]
    part: tuple[str, ...]

    def __call__(self) -> None:
        """Run the command; a model to which nothing applies is no failure, and the last job says so."""
        from scs_eval.cli.main import cli
        from scs_eval.cluster import as_process_group

        as_process_group()
        sys.argv = ["scs-eval", *self.words]  # what run.json shall say
        try:
            code = cli.main([*self.words, *self.part], standalone_mode=False)
        except NotApplicableError as error:
            say(error, err=True)
        else:
            if code not in (None, 0):
                raise RuntimeError(f"the command ended with {code}")

    def checkpoint(self) -> Any:
        """Queue the same task again: what is finished is in the parts, and checkpoints know how far others got."""
        from submitit.helpers import DelayedSubmission

        return DelayedSubmission(self)


def submit_request(request: "Request", cluster: str, options: Sequence[str]) -> None:
    """Submit a job for each model that has none, and one that merges; say which."""
    from scs_eval.cluster import parse_parameters, submit
    from scs_eval.report.folder import check_target

    check_target(request.out)
    words = _without_cluster(sys.argv[1:])
    digest = hashlib.sha256(repr(words).encode()).hexdigest()[:8]
    parts = request.out.with_name(f".{request.out.name}.parts-{digest}")
    there = ("--parts", str(parts))
    tasks = {asked.label: CommandTask(words, (*there, "--only", asked.label)) for asked in request.models}
    if MERGE in tasks:
        raise InputError(f"expected models with other labels than {MERGE!r}; label it as A={MERGE}")
    numbers = submit(
        tasks, cluster=cluster, logs=parts / "submitit", parameters=parse_parameters(options),
        then=(MERGE, CommandTask(words, there)),
    )  # fmt: skip
    for label, number in numbers.items():
        say(f"{label}: job {number}")
    say(f"The result will be in {request.out}, the jobs' output is in {parts / 'submitit'}")


def submit_shares(out: Path, shares: int, cluster: str, options: Sequence[str]) -> None:
    """Submit a command that takes `--piece I/N` as an array of N jobs, and one that puts their work together."""
    from scs_eval.cluster import parse_parameters, submit

    words = _without_cluster(sys.argv[1:], (*OWN, "--jobs"))
    logs = out.with_name(f".{out.name}.submitit")
    tasks = {f"{i}/{shares}": CommandTask(words, ("--piece", f"{i}/{shares}")) for i in range(1, shares + 1)}
    merge = (MERGE, CommandTask(words, ()))
    numbers = submit(tasks, cluster=cluster, logs=logs, parameters=parse_parameters(options), then=merge)
    for label, number in numbers.items():
        say(f"{label}: job {number}")
    say(f"The result will be in {out}, the jobs' output is in {logs}")


def _without_cluster(words: Sequence[str], own: Sequence[str] = OWN) -> tuple[str, ...]:
    """The command as it is typed for one machine."""
    kept, skip = [], False
    for word in words:
        if skip or word.startswith(tuple(f"{option}=" for option in own)):
            skip = False
        elif word in own:
            skip = True
        else:
            kept.append(word)
    return tuple(kept)
