"""`scs-eval certify`: proven radii by randomised smoothing, and what an attack finds beyond them."""

import click

from scs_eval.analyses.certify.options import CertifyOptions
from scs_eval.cli.output import folder_name
from scs_eval.cli.params import options_from
from scs_eval.cli.request import Request, request_options
from scs_eval.cli.resume import resumable
from scs_eval.progress import progress

DEFAULT_N = 50
MODELS = ("rohrer100k_scs", "rohrer100k_conv")


@click.command()
@request_options(
    "certify", default=MODELS, n_help=f"Take this many images, evenly over the classes.  [default: {DEFAULT_N}]"
)
@options_from(CertifyOptions, into="options")
def command(request: Request, options: CertifyOptions) -> None:
    """Prove how far images can be changed before the smoothed MODEL says otherwise, and attack it.

    Randomised smoothing (Cohen et al. 2019) takes the class that the model gives to most noisy copies of an image, and
    proves by counting an L2 radius within which it stays the same. An attack on the same smoothed model finds a
    distance at which it does not: the truth lies between. Networks that were not trained with noise have small radii.

    \b
    Examples:
      scs-eval certify
      scs-eval certify rohrer100k_scs --sigma 0.06 --sigma 0.12 --sigma 0.25 --no-attack -n 200
      scs-eval certify mine.safetensors --sigma 0.25 --samples 100000 --data cifar10 -n 500
    """
    with request.open() as session, resumable(request) as parts:
        from scs_eval.analyses.certify import certify
        from scs_eval.analyses.core.result import side_by_side

        results = []
        for name, named in session.models.items():
            data = session.images(name, default_n=DEFAULT_N)
            steps = len(data) * len(options.sigma) * (1 + 2 * options.attack)
            with progress(name, steps) as advance:
                result = certify(
                    named.model, data.images, data.labels, classes=data.classes, options=options,
                    indices=data.indices, label=name, seed=request.seed, progress=advance,
                    checkpoint=parts / f"{folder_name([name])}.npz",
                )  # fmt: skip
            results.append(result.with_settings(session.settings(data)))
        session.finish(side_by_side(results, label=request.out.name))
