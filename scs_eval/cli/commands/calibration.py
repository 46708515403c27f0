"""`scs-eval calibration`: is a model right as often as it says?"""

from functools import partial

import click

from scs_eval.cli.output import folder_name
from scs_eval.cli.params import COUNT
from scs_eval.cli.request import Request, request_options
from scs_eval.cli.resume import resumable
from scs_eval.progress import progress

MODELS = ("rohrer100k_scs", "rohrer100k_ssdp", "rohrer100k_conv")


@click.command()
@request_options("calibration", default=MODELS)
@click.option("--bins", type=COUNT, default=15, show_default=True, help="Bins of equal mass.")
@click.option("--batch-size", type=COUNT, default=250, show_default=True, help="Images at once.")
def command(request: Request, bins: int, batch_size: int) -> None:
    """Measure whether each MODEL is right as often as it says.

    The expected calibration error is the mean distance between confidence and accuracy over bins of equal mass, without
    the bias that bins with few images have. Brier score and log loss are means over images. A temperature is fitted on
    each half of the images and tested on the other.

    \b
    Examples:
      scs-eval calibration
      scs-eval calibration rohrer100k_scs rohrer100k_conv --data cifar10 --bins 20
    """
    with request.open() as session, resumable(request) as parts:
        from scs_eval.analyses.calibration import calibration
        from scs_eval.analyses.core.result import side_by_side

        results = []
        for name, named in session.models.items():
            data = session.all_images(name, n=request.data.n)
            with progress(name, len(data)) as advance:
                run = partial(
                    calibration, named.model, data.images, data.labels, classes=data.classes, label=name, bins=bins,
                    seed=request.seed, indices=data.indices, batch_size=batch_size, progress=advance,
                    checkpoint=parts / f"{folder_name([name])}.npz",
                )  # fmt: skip
                result = session.result(run, name)
            results.append(result.with_settings(session.settings(data)))
        session.finish(side_by_side(results, label=request.out.name))
