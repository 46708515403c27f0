"""`scs-eval corruptions`: accuracy under noise, blur, weather and compression."""

from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import click

from scs_eval.cli.output import folder_name
from scs_eval.cli.params import COUNT, PATH, options_from
from scs_eval.cli.request import Request, Session, request_options
from scs_eval.cli.resume import resumable
from scs_eval.progress import progress

if TYPE_CHECKING:
    from scs_eval.analyses.corruptions import CorruptionsResult
    from scs_eval.data import ImageData

DEFAULT_N = 200
MODELS = ("rohrer100k_scs", "rohrer100k_ssdp", "rohrer100k_conv")


@dataclass(frozen=True, kw_only=True)
class CorruptionOptions:
    """Which corruptions, and where they come from."""

    names: Annotated[
        tuple[str, ...], "Which, e.g. brightness; repeatable.  [default: all 15]", {"flag": "--corruption"}
    ] = ()
    files: Annotated[
        Path | None, "Folder of the published CIFAR-10-C, instead of corruptions made here.", {"type": PATH}
    ] = None
    batch_size: Annotated[int, "Images at once.", {"type": COUNT}] = 50


@click.command()
@request_options(
    "corruptions", default=MODELS, n_help=f"Take this many images, evenly over the classes.  [default: {DEFAULT_N}]"
)
@options_from(CorruptionOptions, into="options")
def command(request: Request, options: CorruptionOptions) -> None:
    """Show each MODEL images under 15 common corruptions in 5 severities (Hendrycks and Dietterich 2019).

    They are made on the fly from --seed, with the published parameters of CIFAR-10-C up to 64 pixels and of ImageNet-C
    above. The mean corruption error is relative to the convolution network that the zoo compares a model with. Among
    several models, drop_tests.csv says which corruption costs one of them more.

    \b
    Examples:
      scs-eval corruptions
      scs-eval corruptions rohrer100k_scs rohrer100k_conv --corruption brightness --corruption contrast -n 1000
      scs-eval corruptions rohrer100k_scs --data cifar10 --files ~/CIFAR-10-C -n 10000
    """
    from scs_eval.analyses.corruptions import check_names
    from scs_eval.analyses.corruptions.corrupt import CORRUPTIONS

    names = check_names(options.names or tuple(CORRUPTIONS))
    with request.open() as session, resumable(request) as parts:
        from scs_eval.analyses.core.result import side_by_side

        results = []
        for name in session.models:
            data = session.images(name, default_n=DEFAULT_N)
            with progress(name, len(data)) as advance:
                work = partial(run, session, name, data, replace(options, names=names), parts, advance)
                results.append(session.result(work, name))
        session.finish(side_by_side(results, label=request.out.name))


def run(
    session: Session, name: str, data: "ImageData", options: CorruptionOptions, parts: Path, advance: Any
) -> "CorruptionsResult":
    """One model, beside its reference if that is trained."""
    from scs_eval.analyses.corruptions import corruptions
    from scs_eval.models.loading.sources import trained_reference

    named, more = session.models[name], dict[str, Any]()
    if options.files is not None:
        from scs_eval.data.cifar10c_files import Cifar10C

        published = Cifar10C(options.files)
        published.check(data.indices, data.labels)
        more = {"source": published, "source_name": str(options.files)}
    reference_name, reference = trained_reference(named.architecture, device=session.device)
    result = corruptions(
        named.model, data.images, data.labels, classes=data.classes, names=options.names,
        reference=reference, reference_name=reference_name, indices=data.indices, label=name, seed=session.request.seed,
        batch_size=options.batch_size, progress=advance, checkpoint=parts / f"{folder_name([name])}.npz", **more,
    )  # fmt: skip
    return result.with_settings(session.settings(data))
