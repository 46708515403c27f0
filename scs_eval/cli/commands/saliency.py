"""`scs-eval saliency`: what each model looks at, as a figure and in numbers."""

import sys
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import TYPE_CHECKING, Annotated

import click

from scs_eval.analyses.saliency.options import SaliencyOptions
from scs_eval.cli.output import report_left_out, say
from scs_eval.cli.params import CHEAP_N, COSTLY_N, choose_methods, images_for, options_from
from scs_eval.cli.request import Request, Session, request_options
from scs_eval.errors import InputError, NotApplicableError
from scs_eval.progress import progress

if TYPE_CHECKING:
    from torch import nn

    from scs_eval.analyses.saliency.result import SaliencyResult
    from scs_eval.data import ImageData

ENOUGH = 50  # images of a class, from which its accuracy is worth printing


@dataclass(frozen=True, kw_only=True)
class SaliencyChoice:
    """Which methods, images and models."""

    methods: Annotated[tuple[str, ...], "Repeatable, or all.", {"flag": "--method"}] = ("grad",)
    class_name: Annotated[str | None, "Only images of this class.", {"flag": "--class", "metavar": "NAME"}] = None
    min_accuracy: Annotated[float | None, "Leave out models that are right less often, as recorded in training."] = None

    def __post_init__(self) -> None:
        """Refuse what is no share."""
        if self.min_accuracy is not None and not 0 <= self.min_accuracy <= 1:
            raise InputError(f"expected --min-accuracy between 0 and 1, got {self.min_accuracy:g}")


@click.command()
@request_options(
    "saliency", n_help=f"Images for the numbers.  [default: {CHEAP_N}; {COSTLY_N} for methods of many passes]"
)
@options_from(SaliencyChoice, into="choice")
@options_from(SaliencyOptions, into="options")
def command(request: Request, choice: SaliencyChoice, options: SaliencyOptions) -> None:
    """Show what each model looks at: saliency maps, and how sparse, class-specific and steady they are.

    The figure has a row for each image and a column for each model and method. The table has means over n images with
    95 % intervals; a paired test says whether maps are sparser than the reference's: the convolution network of its
    architecture, if that is among the models, or --reference.

    `scs-eval methods` lists the methods. One that cannot serve a model is left out with a word why; what additive ones
    leave out, and why a map is empty, is said beside the table.

    \b
    Examples:
      scs-eval saliency --model rohrer100k_scs
      scs-eval saliency --model 'rohrer100k*' --class airplane --min-accuracy 0.6
      scs-eval saliency --model rohrer100k_scs --method grad --method wx --indices 27,36
    """
    choice = replace(choice, methods=choose_methods(choice.methods))
    request = accurate(request, choice.min_accuracy)
    with request.open() as session:
        from scs_eval.analyses.core.result import side_by_side

        results = run_all(session, choice, options)
        session.finish(side_by_side(results, label=request.out.name))


def run_all(session: Session, choice: SaliencyChoice, options: SaliencyOptions) -> "list[SaliencyResult]":
    """The results of every model and method; what does not apply is left out with a line on stderr."""
    default_n = max(options.rows, *map(images_for, choice.methods))
    jobs = [(name, method) for name in session.models for method in choice.methods]

    @cache
    def own_accuracy(name: str, class_name: str) -> dict[str, float]:
        data = session.images(name, class_name=class_name, default_n=sys.maxsize)
        return class_accuracies(session.models[name].model, data)

    def run(name: str, method: str) -> "SaliencyResult":
        from scs_eval.analyses.saliency import saliency

        data = session.images(name, class_name=choice.class_name, default_n=default_n)
        indices = session.request.data.indices
        if session.request.data.n is None and indices is None:
            data = data.subset(slice(max(options.rows, images_for(method))))  # the first of what other methods get
        shown = len(indices or ()) or options.rows
        class_name = only_class(data.subset(slice(shown))) if choice.class_name or indices else None
        named = session.models[name]
        result = replace(
            saliency(
                named.model, data, method=method, options=replace(options, rows=shown), label=name,
                seed=session.request.seed,
            ),
            network=named.architecture, accuracy=named.origin.accuracy,
            class_accuracy=own_accuracy(name, class_name) if class_name else {},
        )  # fmt: skip
        return result.with_settings(session.settings(data))

    results, reasons = [], []
    with progress("saliency", len(jobs)) as advance:
        for name, method in jobs:
            advance(0, f"{name} {method}")
            try:
                results.append(session.result(partial(run, name, method), name, method))
            except NotApplicableError as error:
                reasons.append(f"{name}, {method}: {error}")
            advance(1)
    report_left_out(results, reasons)
    for line in (line for result in results for line in result.notes()):
        say(f"Note: {line}", err=True)
    return results


def accurate(request: Request, least: float | None) -> Request:
    """With the models that are right at least that often by the index or their own file, and those that do not say."""
    if least is None:
        return request
    shares = {asked.label: asked.accuracy for asked in request.models}
    low = {name: share for name, share in shares.items() if share is not None and share < least}
    if len(low) == len(shares):
        raise InputError(f"no model asked for has an accuracy of {least:g} or more; lower --min-accuracy")
    for name, share in low.items():
        say(f"Left out: {name}: its accuracy is {share:g}", err=True)
    return request.without(list(low))


def only_class(data: "ImageData") -> str | None:
    """The class that all of the images have, if they do."""
    labels = set(data.labels.tolist())
    return data.classes[labels.pop()] if len(labels) == 1 and data.labelled else None


def class_accuracies(network: "nn.Module", data: "ImageData") -> dict[str, float]:
    """How often the network is right on each class that has enough images."""
    from scs_eval.analyses.accuracy import accuracy

    classes = accuracy(network, data).per_class()
    enough = classes[classes["n"] >= ENOUGH]
    return {str(name): float(share) for name, share in zip(enough["class"], enough["accuracy"], strict=True)}
