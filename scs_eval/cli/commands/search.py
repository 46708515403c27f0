"""`scs-eval search`: short trainings that look for p, and perhaps for the learning rate."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from scs_eval.cli.output import checked_out, finish, out_option, say
from scs_eval.cli.params import COUNT, one_model, options_from
from scs_eval.errors import InputError
from scs_eval.ranges import parse_number
from scs_eval.training.job import Job, plan_job
from scs_eval.training.recipe import RECIPES, Recipe

if TYPE_CHECKING:
    from scs_eval.search import SearchResult
    from scs_eval.search.runner import Finished, SearchPlan

HELD_OUT = 5000  # training images that trials are judged by, unless --validation says


class SpanType(click.ParamType):  # type: ignore[type-arg,unused-ignore]
    """`LO:HI`."""

    name = "LO:HI"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[float, float]:
        """Both ends."""
        low, colon, high = str(value).partition(":")
        if not colon:
            raise InputError(f"expected LO:HI such as 0.5:4, got {value!r}")
        return parse_number(low, str(value)), parse_number(high, str(value))


@click.command()
@one_model()
@click.option("--p", "p", type=SpanType(), default="0.5:4", show_default=True, help="Where p is looked for.")
@click.option("--lr", "lr", type=SpanType(), help="Also look for the learning rate, on a logarithmic scale.")
@click.option("--trials", type=COUNT, default=20, show_default=True, help="How many, earlier ones included.")
@click.option("--runs", type=click.Path(path_type=Path), help="Folder of the trials.  [default: runs/search/MODEL]")
@out_option
@click.option("--recipe", "recipe_name", type=click.Choice(list(RECIPES)), help="Named set of the numbers below.")
@options_from(Job, into="settings", only_given=True)
@options_from(Recipe, into="overrides", only_given=True, without=("lr",))
def command(
    model: str,
    p: tuple[float, float],
    lr: tuple[float, float] | None,
    trials: int,
    runs: Path | None,
    out: Path | None,
    recipe_name: str | None,
    settings: dict[str, Any],
    overrides: dict[str, Any],
) -> None:
    """Look for the p of a sharpened network (and the learning rate) by short trainings, as in the SCS paper's Figure 8.

    p is fixed, and the same in all layers. Optuna proposes the trials (pip install '.[search]'), and those that fall
    behind the median of the others are stopped early. They are judged by training images that are held out, not by the
    test set. Trials are kept in an SQLite file in --runs: after Ctrl-C the same command goes on, several processes with
    the same command share the work, and more --trials add to what is there.

    \b
    Examples:
      scs-eval search --model rohrer100k_scs --p 0.5:4 --trials 30 --epochs 10
      scs-eval search --model rohrer25k_scs --p 0.5:4 --lr 0.001:0.03 --trials 40 --epochs 3 --train-images 5000
    """
    from scs_eval.search.runner import SearchPlan, StoppedError, run_search

    target = checked_out(out, analysis="search", names=[model])
    job = plan_job(
        model=model, out=runs or Path("runs", "search", model), recipe_name=recipe_name,
        settings={"validation": HELD_OUT, **settings}, overrides=overrides, resume=False,
    )  # fmt: skip
    plan = SearchPlan(job, p, lr, trials)
    try:
        finished = run_search(plan, report=say)
    except StoppedError as stopped:
        say("Stopped; the same command goes on.", err=True)
        sys.exit(128 + stopped.args[0])
    finish(searched(plan, finished), target)


def searched(plan: "SearchPlan", finished: "list[Finished]") -> "SearchResult":
    """The trials as a result."""
    import numpy as np

    from scs_eval.search.result import COMPLETE, PRUNED, SearchResult

    job = plan.job
    settings = {"p": plan.p, "lr": plan.lr, "recipe": job.identity()["recipe"], "train_images": job.train_images}
    return SearchResult(
        label=job.model,
        settings={**settings, "seed": job.seed},
        model=job.model,
        parameters=("p",) if plan.lr is None else ("p", "lr"),
        states=tuple(PRUNED if trial.pruned else COMPLETE for trial in finished),
        values=np.array([trial.values for trial in finished]),
        accuracies=np.array([trial.accuracy for trial in finished]),
        epochs=np.array([trial.epochs for trial in finished]),
        planned=job.recipe.epochs,
        images=job.validation,
    )
