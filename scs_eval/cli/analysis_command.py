"""A command for an analysis of the catalogue that has no file in commands/: its `run` on every model."""

from functools import partial

import click

from scs_eval.analyses.catalogue import Analysis, imported
from scs_eval.cli.request import Request, request_options
from scs_eval.progress import progress

DEFAULT_N = 100  # images of an analysis whose entry does not say how many


def make_command(entry: Analysis) -> click.Command:
    """Models, images and where the result goes are asked for as everywhere."""
    size = entry.size or DEFAULT_N

    @click.command(entry.name, help=entry.question)
    @request_options(entry.name, n_help=f"Take this many images, evenly over the classes.  [default: {size}]")
    def command(request: Request) -> None:
        from scs_eval.analyses.core.result import side_by_side
        from scs_eval.analyses.core.task import Task

        with request.open() as session, progress(entry.name, len(session.models)) as advance:
            results = []
            for name, named in session.models.items():
                data = session.images(name, default_n=size)
                task = Task(
                    model=named.model, label=name, images=data.images, labels=data.labels, classes=data.classes,
                    indices=data.indices, seed=request.seed,
                )  # fmt: skip
                result = session.result(partial(imported(entry.run), task), name)
                results.append(result.with_settings(session.settings(data)))
                advance(1, name)
            session.finish(side_by_side(results, label=request.out.name))

    return command
