"""`scs-eval bench`: speed and memory against peers."""

import sys
from functools import partial
from pathlib import Path

import click

from scs_eval.cli.output import checked_out, finish, out_option
from scs_eval.cli.params import COUNT

SUITES = (
    "layers", "epochs", "loading", "attacks", "autoattack", "strength", "faithfulness", "explanations", "together",
    "startup",
)  # fmt: skip
BUSY = 0.5  # processes beside ours from which timings are not to be trusted


@click.command()
@click.option("--suite", "suites", multiple=True, type=click.Choice(SUITES), help="Repeatable.  [default: all]")
@click.option("--rounds", type=COUNT, default=9, show_default=True, help="Turns of every contender.")
@click.option("--threads", type=COUNT, default=2, show_default=True, help="Threads of every contender.")
@click.option("--growth/--no-growth", default=True, show_default=True, help="Also measure how costs grow.")
@out_option
def command(suites: tuple[str, ...], rounds: int, threads: int, growth: bool, out: Path | None) -> None:
    """Measure speed and memory against peers: ratios, with contenders that take turns in one run.

    Peers: Rohrer's layer as published, plain convolution, the packages bcos, torchattacks and captum. One that is not
    installed is left out. Leave the machine alone meanwhile: timings that share their cores are worthless.

    \b
    Examples:
      scs-eval bench
      scs-eval bench --suite layers --no-growth
    """
    from scs_eval.benchmarks.conditions import load
    from scs_eval.benchmarks.contest import Settings
    from scs_eval.benchmarks.run import bench
    from scs_eval.report.markdown import markdown

    out = checked_out(out, analysis="bench", names=suites)
    if load() > BUSY:
        click.echo(f"Warning: other processes are running (load {load():.1f}); timings will be worthless", err=True)
    settings = Settings(rounds=rounds, threads=threads)
    say = partial(click.echo, err=True)
    tell = say if sys.stderr.isatty() else lambda line: None
    result = bench(suites or SUITES, settings=settings, say=say, tell=tell, growth=growth)
    click.echo(", ".join(f"{key} {value}" for key, value in result.settings.items() if key != "versions"))
    if result.growths:
        click.echo(markdown(result.growth_summary()))
    finish(result, out)
    sys.exit(1 if result.failed else 0)
