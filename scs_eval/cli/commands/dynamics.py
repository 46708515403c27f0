"""`scs-eval dynamics`: how training runs went."""

from pathlib import Path

import click

from scs_eval.cli.output import checked_out, finish, out_option
from scs_eval.files import real_path


@click.command()
@click.argument("directories", nargs=-1, required=True, metavar="DIR...", type=click.Path(path_type=Path))
@click.option("--layer", metavar="NAME", help="Draw the exponents p of this layer.  [default: the first that has any]")
@out_option
def command(directories: tuple[Path, ...], layer: str | None, out: Path | None) -> None:
    """Draw the records of training runs: DIR is what `scs-eval train --out DIR` wrote.

    Accuracy and loss over epochs, the norm of each layer's weight over mini-batches (or epochs, if it was not logged at
    every batch), the exponent p of each kernel over epochs; the same as tables.

    \b
    Examples:
      scs-eval dynamics runs/rohrer100k_scs runs/rohrer100k_conv
      scs-eval dynamics runs/rohrer100k_scs --layer stages.1.layer
    """
    from scs_eval.analyses.dynamics import dynamics

    names = [real_path(directory).name for directory in directories]
    out = checked_out(out, analysis="dynamics", names=names)
    finish(dynamics(directories, layer=layer), out)
