"""`scs-eval detect`: are adversarial and foreign images noticed?"""

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from scs_eval.analyses.detect.options import DetectOptions
from scs_eval.cli.output import folder_name
from scs_eval.cli.params import EPS, Radii, options_from
from scs_eval.cli.request import Request, Session, request_options
from scs_eval.cli.resume import resumable
from scs_eval.progress import progress

if TYPE_CHECKING:
    from scs_eval.data import ImageData

DEFAULT_N, FIT_N = 400, 2000
MODELS = ("rohrer100k_scs", "rohrer100k_conv")
NOISE = "noise"


@click.command()
@request_options(
    "detect", default=MODELS, n_help=f"Take this many images, evenly over the classes.  [default: {DEFAULT_N}]"
)
@click.option(
    "--eps", type=EPS, default="2/255,8/255", show_default=True, help="Adversarial images at these distances."
)
@click.option(
    "--other",
    "others",
    multiple=True,
    default=(NOISE,),
    show_default=True,
    help="Other images: noise, or a source as for --data, such as a folder; repeatable.",
)
@click.option(
    "--hold-out",
    "held_out",
    multiple=True,
    metavar="CLASS",
    help="Images of this class are others: for a model that was trained without it; repeatable.",
)
@click.option(
    "--fit",
    "fit_split",
    type=click.Choice(["train", "half"]),
    default=None,
    help="Images for the Gaussians: the train split, or half of the images.  [default: train of cifar10, else half]",
)
@options_from(DetectOptions, into="options")
def command(
    request: Request, eps: Radii, others: tuple[str, ...], held_out: tuple[str, ...], fit_split: str | None,
    options: DetectOptions,
) -> None:  # fmt: skip
    """Measure whether adversarial images, and images of another kind, can be told from clean ones.

    Four detectors: maximum softmax, energy, ODIN, and the Mahalanobis distance of Lee et al. (2018) to Gaussians of the
    classes, at the last stage and by a regression over all stages, which is trained with images of the same kind. The
    Gaussians, the regression and the test have different images each.

    \b
    Examples:
      scs-eval detect
      scs-eval detect rohrer100k_scs --data cifar10 -n 1000 --eps 1/255,2/255,4/255,8/255
      scs-eval detect mine.safetensors --data photos --other noise --other textures --eps 8/255
    """
    options = replace(options, eps=tuple(radius for radius in eps.values if radius > 0))
    with request.open() as session, resumable(request) as parts:
        from scs_eval.analyses.core.result import side_by_side
        from scs_eval.analyses.detect import detect
        from scs_eval.analyses.detect.runner import steps

        results = []
        for name, named in session.models.items():
            data, kinds = split_off(session.images(name, default_n=DEFAULT_N), held_out)
            kinds |= {other: read_other(session, name, other, data) for other in others}
            fit = read_fit(session, name, fit_split)
            total = steps(len(data), kinds, options, fitted_elsewhere=fit is not None)
            with progress(name, total) as advance:
                result = detect(
                    named.model, data, others=kinds, fit=fit, options=options, label=name, seed=request.seed,
                    progress=advance, checkpoint=parts / f"{folder_name([name])}.npz",
                )  # fmt: skip
            results.append(result.with_settings(session.settings(data)))
        session.finish(side_by_side(results, label=request.out.name))


def split_off(data: "ImageData", held_out: tuple[str, ...]) -> tuple["ImageData", dict[str, Any]]:
    """The data without images of the held-out classes, and those as another kind."""
    if not held_out:
        return data, {}
    import torch

    from scs_eval.analyses.core.validation import class_position

    away = torch.isin(data.labels, torch.tensor([class_position(name, data.classes) for name in held_out]))
    return data.subset(~away), {f"held out: {', '.join(held_out)}": data.subset(away).images}


def read_other(session: Session, name: str, source: str, data: "ImageData") -> Any:
    """Images of another kind at the model's size: noise, or so many of a source."""
    if source == NOISE:
        from scs_eval.analyses.detect.parts import noise_images

        return noise_images(len(data) // 2, data.images.shape[1:], seed=session.request.seed)
    request = replace(session.request.data, source=source)
    size = int(data.images.shape[2])
    return request.read_some(default_n=DEFAULT_N // 2, seed=session.request.seed, size=size).images


def read_fit(session: Session, name: str, split: str | None) -> "ImageData | None":
    """The training images for the Gaussians; None where half of the images is taken."""
    request = session.request.data
    if split == "half" or (split is None and request.source != "cifar10"):
        return None
    from scs_eval.data import load_data

    size = request.size or session.models[name].input_size
    return load_data(
        request.source, split="train", n=FIT_N, seed=session.request.seed, size=size, data_dir=request.data_dir
    )
