"""`scs-eval accuracy`: how often each model is right, beside the paper."""

from functools import partial

import click

from scs_eval.cli.params import COUNT
from scs_eval.cli.request import EVERY_SEED, Request, request_options
from scs_eval.progress import progress


@click.command()
@request_options("accuracy", default=(EVERY_SEED,))
@click.option("--batch-size", type=COUNT, help="Images at once.  [default: 250, fewer of more than 96 pixels]")
def command(request: Request, batch_size: int | None) -> None:
    """Measure how often each MODEL is right, overall and for each class.

    MODEL is a name of the zoo, a pattern such as 'rohrer100k*' (trained models only), a checkpoint, torchvision:NAME or
    module:factory; LABEL=MODEL names it in the table. Without any, all trained models are measured, with every seed
    (NAME@3 is NAME trained with seed 3, NAME@* all of its trainings). The table also has
    the parameters, the seconds of an epoch in training, and the row of the SCS paper with the same settings; of
    Rohrer100K the paper has two (Tables 6 and 1: other initial weights), and both are shown.

    \b
    Examples:
      scs-eval accuracy rohrer100k_scs
      scs-eval accuracy 'rohrer100k*' --data cifar10
    """
    from scs_eval.analyses.accuracy import accuracy
    from scs_eval.analyses.core.result import side_by_side
    from scs_eval.report.model_facts import known_facts

    with request.open() as session:
        data = {name: session.all_images(name, n=request.data.n) for name in session.models}
        results = []
        with progress("accuracy", sum(map(len, data.values()))) as advance:
            for name, named in session.models.items():
                advance(0, name)
                run = partial(
                    accuracy, named.model, data[name], label=name, batch_size=batch_size, progress=advance,
                    known=known_facts(named.origin, named.architecture, data=data[name].source),
                )  # fmt: skip
                result = session.result(run, name)
                results.append(result.with_settings(session.settings(data[name])))
        session.finish(side_by_side(results, label=request.out.name))
