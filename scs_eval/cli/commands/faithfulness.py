"""`scs-eval faithfulness`: whether the maps say what the model does."""

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated, Literal

import click

from scs_eval.analyses.attribution.metric_records import find_metric
from scs_eval.cli.data_request import targets_of
from scs_eval.cli.output import report_left_out
from scs_eval.cli.params import CHEAP_N, COSTLY_N, choose_methods, images_for, options_from
from scs_eval.cli.request import Request, Session, request_options
from scs_eval.errors import NotApplicableError
from scs_eval.progress import progress

if TYPE_CHECKING:
    from scs_eval.analyses.faithfulness import FaithfulnessResult

CONTROLS = 2  # the random map and the edge map


@dataclass(frozen=True, kw_only=True)
class FaithfulnessOptions:
    """Which maps are tested, and how."""

    methods: Annotated[tuple[str, ...], "Repeatable, or all.", {"flag": "--method"}] = ("grad", "ixg", "wx")
    metrics: Annotated[
        tuple[str, ...], "A metric besides ours, of a plugin or quantus:NAME; repeatable.", {"flag": "--metric"}
    ] = ()
    class_name: Annotated[str | None, "Only images of this class.", {"flag": "--class", "metavar": "NAME"}] = None
    target: Annotated[str, "Class to explain: predicted, label or a name."] = "predicted"
    baseline: Annotated[
        Literal["black", "mean", "blur"],
        "What replaces a pixel of the curves: black, the image's mean colour, or the blurred image.",
    ] = "black"
    order: Annotated[
        Literal["signed", "magnitude"],
        "Pixels of the curves: by the signed sum of the channels, or by the largest |value|.",
    ] = "signed"
    steps: Annotated[int, "Steps of the insertion and deletion curves."] = 32
    sigma: Annotated[float, "Infidelity: a pixel loses or gains this share of itself."] = 0.02


@click.command()
@request_options("faithfulness", n_help=f"Images.  [default: {CHEAP_N}; {COSTLY_N} if a method needs many passes]")
@options_from(FaithfulnessOptions, into="options")
def command(request: Request, options: FaithfulnessOptions) -> None:
    """Test whether maps say what the model does: insertion and deletion, infidelity, and forgetting with the model.

    Deletion and insertion replace or show pixels in the order of the map (area under the probability of the class);
    infidelity is the share of a logit's change under noise that the map does not predict; the cascade re-initialises
    the network layer by layer from the head and compares the maps with the original ones. A random map and an edge map
    stand beside every method. The table marks what differs from the random map by sign flips (Holm, 5 %): ✓ is
    better, ✗ worse, and ≠ of the cascade means that the maps keep something although nothing learned is left.

    Methods are those of `scs-eval saliency`. One that cannot serve a model is left out with a word why.

    \b
    Examples:
      scs-eval faithfulness --model rohrer100k_scs
      scs-eval faithfulness --model rohrer100k_scs --model rohrer100k_conv --method wx --method gradcam
      scs-eval faithfulness --model rohrer100k_scs --baseline blur --order magnitude -n 50
    """
    methods = choose_methods(options.methods)
    for name in options.metrics:
        find_metric(name)  # raises now what would be raised later
    with request.open() as session:
        from scs_eval.analyses.core.result import side_by_side

        results = run_all(session, options, methods)
        session.finish(side_by_side(results, label=request.out.name))


def run_all(session: Session, options: FaithfulnessOptions, methods: tuple[str, ...]) -> "list[FaithfulnessResult]":
    """A result for each model; a method, or a model to which no method applies, is left out with a line on stderr."""
    from scs_eval.analyses.faithfulness import faithfulness

    default_n = min(map(images_for, methods))
    results, reasons = [], []
    with progress("faithfulness", len(session.models) * (len(methods) + CONTROLS)) as advance:
        for name, named in session.models.items():
            advance(0, name)
            data = session.images(name, class_name=options.class_name, default_n=default_n)
            try:
                run = partial(
                    faithfulness, named.model, data.images, targets_of(data, options.target), classes=data.classes,
                    method=methods, baseline=options.baseline, order=options.order, steps=options.steps,
                    sigma=options.sigma, metrics=options.metrics,
                    label=name, indices=data.indices, seed=session.request.seed,
                    progress=advance,
                )  # fmt: skip
                result = session.result(run, name)
            except NotApplicableError as error:
                reasons.append(f"{name}: {error}")
                continue
            results.append(result.with_settings({**session.settings(data), "target": options.target}))
            reasons += [f"{name}, {method}: {why}" for method, why in result.left_out.items()]
    report_left_out(results, reasons)
    return results
