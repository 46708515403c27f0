"""`scs-eval faithfulness`: whether the maps say what the model does."""

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Annotated

import click

from scs_eval.analyses.attribution.metric_records import find_metric
from scs_eval.analyses.faithfulness.options import FaithfulnessOptions
from scs_eval.cli.data_request import targets_of
from scs_eval.cli.output import report_left_out
from scs_eval.cli.params import CHEAP_N, COSTLY_N, choose_methods, images_for, options_from
from scs_eval.cli.request import Request, Session, request_options
from scs_eval.errors import NotApplicableError
from scs_eval.progress import progress

if TYPE_CHECKING:
    from scs_eval.analyses.faithfulness.result import FaithfulnessResult

CONTROLS = 3  # the random map, the edge map and the untrained network's


@dataclass(frozen=True, kw_only=True)
class FaithfulnessChoice:
    """Which maps are tested, by which metrics, of which images and class."""

    methods: Annotated[tuple[str, ...], "Repeatable, or all.", {"flag": "--method"}] = ("grad", "ixg", "wx")
    metrics: Annotated[
        tuple[str, ...], "A metric besides ours, of a plugin or quantus:NAME; repeatable.", {"flag": "--metric"}
    ] = ()
    class_name: Annotated[str | None, "Only images of this class.", {"flag": "--class", "metavar": "NAME"}] = None
    target: Annotated[str, "Class to explain: predicted, label or a name."] = "predicted"


@click.command()
@request_options("faithfulness", n_help=f"Images.  [default: {CHEAP_N}; {COSTLY_N} if a method needs many passes]")
@options_from(FaithfulnessChoice, into="choice")
@options_from(FaithfulnessOptions, into="options")
def command(request: Request, choice: FaithfulnessChoice, options: FaithfulnessOptions) -> None:
    """Test whether maps say what the model does: insertion and deletion, infidelity, and forgetting with the model.

    Deletion and insertion replace or show pixels in the order of the map (area under the probability of the class);
    infidelity is the share of a logit's change under noise that the map does not predict; the cascade re-initialises
    the network layer by layer from the head and compares the maps with the original ones. A random map, an edge map
    and input × gradient of the untrained network stand beside every method. The table marks what differs from the
    random map by sign flips (Holm, 5 %): ✓ is better, ✗ worse, and ≠ of the cascade means that the maps keep something
    although nothing learned is left. Of four methods or more, tables and figures also say which metrics agree, how
    methods rank over all of them, and which metrics a control wins.

    Methods are those of `scs-eval saliency`. One that cannot serve a model is left out with a word why.

    \b
    Examples:
      scs-eval faithfulness --model rohrer100k_scs
      scs-eval faithfulness --model rohrer100k_scs --model rohrer100k_conv --method wx --method gradcam
      scs-eval faithfulness --model rohrer100k_scs --baseline blur --order magnitude -n 50
    """
    choice = replace(choice, methods=choose_methods(choice.methods))
    for name in choice.metrics:
        find_metric(name)  # raises now what would be raised later
    with request.open() as session:
        from scs_eval.analyses.core.result import side_by_side

        results = run_all(session, choice, options)
        session.finish(side_by_side(results, label=request.out.name))


def run_all(session: Session, choice: FaithfulnessChoice, options: FaithfulnessOptions) -> "list[FaithfulnessResult]":
    """A result for each model; a method, or a model to which no method applies, is left out with a line on stderr."""
    from scs_eval.analyses.faithfulness import faithfulness

    default_n = min(map(images_for, choice.methods))
    results, reasons = [], []
    every = {name: session.images(name, class_name=choice.class_name, default_n=default_n) for name in session.models}
    with progress("faithfulness", sum(map(len, every.values())) * (len(choice.methods) + CONTROLS)) as advance:
        for name, named in session.models.items():
            advance(0, name)
            data = every[name]
            try:
                run = partial(
                    faithfulness, named.model, data, targets_of(data, choice.target), methods=choice.methods,
                    metrics=choice.metrics, options=options, label=name, seed=session.request.seed, progress=advance,
                )  # fmt: skip
                result = session.result(run, name)
            except NotApplicableError as error:
                reasons.append(f"{name}: {error}")
                continue
            results.append(result.with_settings({**session.settings(data), "target": choice.target}))
            reasons += [f"{name}, {method}: {why}" for method, why in result.left_out.items()]
    report_left_out(results, reasons)
    return results
