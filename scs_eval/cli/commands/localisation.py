"""`scs-eval localisation`: does the map of a class point at that class's image in a grid of several?"""

import shutil
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from scs_eval.analyses.localisation.options import BCOS_V2, COUNT, LocalisationOptions, MosaicOptions
from scs_eval.cli.output import folder_name, report_left_out, say
from scs_eval.cli.params import COUNT as AT_LEAST_ONE
from scs_eval.cli.params import choose_methods, options_from
from scs_eval.cli.request import Request, Session, request_options
from scs_eval.errors import InputError, NotApplicableError
from scs_eval.progress import Advance, progress

if TYPE_CHECKING:
    from torch import Tensor

    from scs_eval.analyses.localisation.mosaics import Mosaics
    from scs_eval.analyses.localisation.result import LocalisationResult

Failure = Exception | None


@click.command()
@request_options(
    "localisation", together=True, n_help=f"Grids to play, as far as there are images.  [default: {COUNT}]"
)
@click.option("--method", "methods", multiple=True, default=("wx",), show_default=True, help="Repeatable, or all.")
@options_from(LocalisationOptions, into="options")
@options_from(
    MosaicOptions,
    into="choice",
    flags={"side": "--grid", "replay": "--grids", "own": "--own-grids"},
    without=("count", "protocol"),
)
@click.option(
    "--images", "pool", type=AT_LEAST_ONE,
    help="Choose from this many images, evenly over the classes.  [default: all]",
)  # fmt: skip
def command(
    request: Request,
    methods: tuple[str, ...],
    options: LocalisationOptions,
    choice: MosaicOptions,
    pool: int | None,
) -> None:
    """Play the grid pointing game: images of different classes side by side, and the map of each class's logit.

    The score is the positive attribution in the class's own cell, as a share of all. Beside it stand chance and what
    smoothing leaves of a map that is even in its cell; a map that keeps away from the edges can score more. All models
    of one call see the same grids, a random sample of the images that every one of them has right. A model that cannot
    take a grid looks at it through overlapping windows of its own size; the table says which. An interrupted run
    goes on where it stopped when the same command is given again.

    \b
    Examples:
      scs-eval localisation --model rohrer100k_scs --model rohrer100k_conv --grid 2 -n 100
      scs-eval localisation --model resnet20_bcos --method wx --method ixg --method gradcam --top 0.025
      scs-eval localisation --model 'bcos_cnn9*' --data cifar10
    """
    methods = choose_methods(methods)
    if options.square is not None and not any(reads_square(method) for method in methods):
        raise InputError(f"--square is for occlusion, got {', '.join(methods)}; add --method occlusion or leave it out")
    choice = replace(choice, count=request.data.n, protocol=options.protocol)
    with request.open() as session:
        from scs_eval.analyses.core.result import side_by_side
        from scs_eval.analyses.localisation.choice import mosaics_of

        data = {name: session.all_images(name, n=pool) for name in session.models}
        logits = predict_all(session, data)
        mosaics = mosaics_of(logits, data, choice, seed=request.seed)
        warn(mosaics, logits, data, methods, choice)
        results, failure = run_all(session, data, logits, mosaics, methods, options)
        session.finish(side_by_side(results, label=request.out.name))
        if failure is not None:
            raise failure
        if request.only is None:
            shutil.rmtree(unfinished(request), ignore_errors=True)


def reads_square(method: str) -> bool:
    """Whether a method hides squares."""
    from scs_eval.analyses.attribution.methods import find_method

    return "square" in find_method(method).reads


def unfinished(request: Request) -> Any:
    """Where interrupted work is kept."""
    return request.out.with_name(f".{request.out.name}.partial")


def predict_all(session: Session, data: dict[str, Any]) -> "dict[str, Tensor]":
    """Every model's logits for all single images."""
    from scs_eval.analyses.localisation.runner import image_logits

    logits = {}
    with progress("predictions", sum(map(len, data.values()))) as advance:
        for name, named in session.models.items():
            advance(0, name)
            classes = len(data[name].classes)
            logits[name] = image_logits(named.model, data[name].images, classes=classes, progress=advance)
    return logits


def warn(
    mosaics: "dict[str, Mosaics]",
    logits: "dict[str, Tensor]",
    data: dict[str, Any],
    methods: Sequence[str],
    choice: MosaicOptions,
) -> None:
    """Say on stderr what one might not expect of the mosaics, and which methods are not the published ones."""
    from scs_eval.analyses.attribution.methods import METHODS, find_method
    from scs_eval.analyses.localisation.mosaics import count_misclassified

    lines = []
    for name, chosen in mosaics.items():
        if len(chosen) < chosen.requested:
            why = "the images ran out" if choice.replay is None else f"there are no more in {choice.replay}"
            whose = f" of {name}" if choice.each_its_own and choice.replay is None else ""
            lines.append(f"Only {len(chosen)} of {chosen.requested} grids{whose}: {why}")
        if wrong := count_misclassified(chosen, data[name], logits[name].argmax(1)):
            of = chosen.indices.size
            lines.append(f"Warning: {name} has {wrong} of the grids' {of} images wrong; they are scored as well")
    others = [method for method in methods if not find_method(method).published]
    if others and choice.protocol == BCOS_V2:
        theirs = ", ".join(name for name, method in METHODS.items() if method.published)
        lines.append(f"Warning: maps by {', '.join(others)} are ours; bcos-v2 is the published code's for {theirs}")
    for line in dict.fromkeys(lines):
        say(line, err=True)


def run_all(
    session: Session,
    data: dict[str, Any],
    logits: "dict[str, Tensor]",
    mosaics: "dict[str, Mosaics]",
    methods: Sequence[str],
    options: LocalisationOptions,
) -> "tuple[list[LocalisationResult], Failure]":
    """The results of every model and method, and the first failure; what does not apply is left out with a line."""
    from scs_eval.analyses.core.parallel import processes
    from scs_eval.analyses.localisation import localisation

    def run(name: str, method: str, advance: Advance) -> "LocalisationResult":
        chosen = replace(
            options, square=options.square if reads_square(method) else None, progress=advance,
            checkpoint=unfinished(session.request) / f"{folder_name([name, method])}.npz",
        )  # fmt: skip
        result = localisation(
            session.models[name].model, data[name], mosaics[name], chosen, method=method, label=name,
            seed=session.request.seed, predictions=logits[name].argmax(1),
        )  # fmt: skip
        return result.with_settings({**session.settings(data[name]), "look": result.seen})

    jobs = [(name, method) for name in session.models for method in methods if session.asked(name)]
    results, reasons, failures = [], [], []
    with progress("localisation", sum(len(mosaics[name]) for name, _ in jobs)) as advance:
        for name, method in jobs:
            advance(0, f"{name} {method}")
            try:
                results.append(session.result(partial(run, name, method, advance), name, method))
            except NotApplicableError as error:
                reasons.append(f"{name}, {method}: {error}")
                advance(len(mosaics[name]))
            except Exception as error:  # what is finished is to be written all the same
                if isinstance(error, InputError) or processes() > 1:  # a wrong request; others wait for this process
                    raise
                say(f"Failed: {name}, {method}: {type(error).__name__}: {error}", err=True)
                failures.append(error)
                advance(len(mosaics[name]))
    if not results and failures:
        raise failures[0]
    report_left_out(results, reasons)
    return results, failures[0] if failures else None
