"""`scs-eval compare`: any models on the same images, one folder, one page."""

import json
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import click

from scs_eval.analyses.catalogue import compared
from scs_eval.cli.data_request import data_settings
from scs_eval.cli.finished_work import STORE, keeping
from scs_eval.cli.output import command_words, say
from scs_eval.cli.params import EPS, Radii, Whole, options_from
from scs_eval.cli.request import Request, Session, request_options
from scs_eval.errors import LONGEST_NAME, InputError, printable
from scs_eval.progress import CostProgress, progress

if TYPE_CHECKING:
    from scs_eval.analyses.compare.gates import Gate
    from scs_eval.analyses.compare.result import CompareResult
    from scs_eval.data import ImageData
    from scs_eval.report.write import FigureError

POOL = 1000
GATE_FAILED = 3  # exit code


class AnalysisSize(click.ParamType):  # type: ignore[type-arg,unused-ignore]
    """`ANALYSIS=N`."""

    name = "ANALYSIS=N"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, int]:
        """The analysis and its number."""
        name, _, number = str(value).partition("=")
        known = [analysis for analysis, entry in compared().items() if entry.size is not None]
        if name not in known or not number:
            raise InputError(f"expected --images as ANALYSIS=N with one of {', '.join(known)}, got {value!r}")
        return name, Whole(1).convert(number, param, ctx)


@dataclass(frozen=True, kw_only=True)
class CompareOptions:
    """What is compared, and what makes the command fail."""

    analyses: Annotated[str, f"Which, between commas: {', '.join(compared())}."] = "all"
    method: Annotated[str, "Attribution of localisation, attacked, faithfulness."] = "wx"
    metrics: Annotated[
        tuple[str, ...],
        "Of faithfulness, besides ours: a name of `scs-eval metrics` or quantus:NAME; repeatable.",
        {"flag": "--metric"},
    ] = ()
    attacks: Annotated[
        tuple[str, ...],
        "Of pgd: a name of `scs-eval attacks`, torchattacks:NAME or foolbox:NAME; repeatable.  [default: pgd]",
        {"flag": "--attack"},
    ] = ()
    eps: Annotated[
        Radii | None,
        "Distances of pgd: lo:hi (30 values), lo:hi:n, or 2/255,4/255.  [default: 0.5/255 … 8/255]",
        {"type": EPS},
    ] = None
    sizes: Annotated[
        tuple[tuple[str, int], ...],
        "Images of one analysis (grids, for localisation).  [default: pgd 200, saliency 100, …]",
        {"flag": "--images", "type": AnalysisSize(), "multiple": True},
    ] = ()
    conditions: Annotated[
        tuple[str, ...],
        "Exit with 3 if a model's value is like that, or MODEL:METRIC for one model; repeatable.",
        {"flag": "--fail-if", "metavar": "'METRIC < NUMBER'"},
    ] = ()
    afresh: Annotated[bool, "Do not use finished results of earlier runs."] = False
    as_json: Annotated[bool, "Print all numbers and tests for machines.", {"flag": "--json"}] = False


@click.command()
@request_options(
    "compare",
    together=True,
    n_help=f"Images that all analyses choose from, evenly over the classes.  [default: {POOL}]",
)
@options_from(CompareOptions, into="options")
@click.pass_context
def command(context: click.Context, request: Request, options: CompareOptions) -> None:
    """Compare MODELs on the same images: every analysis, paired tests, and one page to show others.

    MODEL is a name of the zoo, a pattern, a checkpoint, torchvision:NAME or module:factory; LABEL=MODEL names it. The
    folder has every table and figure, and report.html, which needs nothing else: a summary in which a better value is
    marked only where a paired test says so, curves, a gallery of explanations to sort and filter, the robustness
    scorecard, and how all of it was made. `attacked` is localisation and likeness of maps on attacked images.

    What is finished is kept: after Ctrl-C, or with one more model, the command does only what is left. A gate looks at
    the estimate, not at its interval: metrics are those of the table, such as accuracy, pgd@8/255, localisation@2/255.

    \b
    Examples:
      scs-eval compare rohrer100k_scs rohrer100k_conv
      scs-eval compare mine=runs/a/model.safetensors theirs=model.pt --arch resnet20_bcos --analyses accuracy,pgd
      scs-eval compare rohrer100k_scs --fail-if 'pgd@1/255 < 0.2' --fail-if 'accuracy < 0.7' --json
    """
    from scs_eval.analyses.attribution.methods import find_method
    from scs_eval.analyses.attribution.own_metrics import as_metrics
    from scs_eval.analyses.compare import EPS as DEFAULT_EPS
    from scs_eval.analyses.compare.gates import parse_gates
    from scs_eval.analyses.compare.steps import check_sizes
    from scs_eval.report.write import join_errors

    started, sizes = time.time(), check_sizes(dict(options.sizes))
    analyses = choose_analyses(options.analyses)
    eps = DEFAULT_EPS if options.eps is None else tuple(radius for radius in options.eps.values if radius > 0)
    find_method(options.method)  # raises now what would be raised later
    check_needs(options, analyses)
    gates = parse_gates(
        options.conditions, models=[asked.label for asked in request.models], analyses=analyses, eps=eps,
        own=as_metrics(options.metrics),
    )  # fmt: skip
    with request.open() as session:
        result = run(session, options, analyses=analyses, eps=eps, sizes=sizes)
        if request.only is not None:
            return
        data = session.images(result.models[0], default_n=POOL)
        result = described(result, session, data, sizes=sizes, seconds=time.time() - started)
        page, undrawn = write(session, result, gates)
        tell(result, page, gates, as_json=options.as_json)
    failures = [line for gate in gates for line in gate.failures(result)]
    for line in failures:
        say(f"Gate: {line}", err=True)
    if undrawn:
        raise join_errors(undrawn, page.parent)
    context.exit(GATE_FAILED if failures else 0)


def check_needs(options: CompareOptions, analyses: tuple[str, ...]) -> None:
    """Raise for what no analysis that was asked for would look at."""
    from scs_eval.analyses.attacks.own_attacks import as_attacks

    if options.attacks:
        as_attacks(options.attacks)
    needed = {need for name in analyses for need in compared()[name].needs}
    for flag, need, given in (("--metric", "metrics", options.metrics), ("--attack", "attacks", options.attacks)):
        if given and need not in needed:
            readers = ", ".join(name for name, entry in compared().items() if need in entry.needs)
            raise InputError(f"{flag} is for {readers}, which is not among the analyses; add it or leave {flag} out")


def choose_analyses(text: str) -> tuple[str, ...]:
    """The analyses, each once, in the order of the page."""
    asked = [part.strip() for part in text.split(",")]
    if wrong := [name for name in asked if name not in (*compared(), "all")]:
        raise InputError(f"expected --analyses of {', '.join(compared())}, got {wrong[0]!r}")
    return tuple(name for name in compared() if name in asked or "all" in asked)


def run(
    session: Session,
    options: CompareOptions,
    *,
    analyses: tuple[str, ...],
    eps: tuple[float, ...],
    sizes: Mapping[str, int],
) -> "CompareResult":
    """The comparison under a bar that shows how much of the whole is done."""
    from scs_eval.analyses.compare import compare
    from scs_eval.analyses.compare.steps import DEFAULT_ATTACKS
    from scs_eval.models.loading.sources import trained_twin
    from scs_eval.report.model_facts import known_facts

    request, models = session.request, session.models
    data = {name: session.images(name, default_n=POOL) for name in models}
    first = next(iter(data.values()))
    known = {name: known_facts(named.origin, named.architecture, data=first.source) for name, named in models.items()}
    needs_twin = any("twin" in compared()[name].needs for name in analyses)
    twins = {
        name: trained_twin(named.architecture, device=session.device) for name, named in models.items() if needs_twin
    }
    store, title = request.out.parent / STORE, printable(request.out.name)[:LONGEST_NAME] or "compare"
    with keeping(store, afresh=options.afresh) as cache, CostProgress("compare, %") as bar:
        return compare(
            {name: named.model for name, named in models.items()}, {name: some.images for name, some in data.items()},
            first.labels, classes=first.classes, indices=first.indices, analyses=analyses, method=options.method,
            metrics=options.metrics, attacks=options.attacks or DEFAULT_ATTACKS,
            eps=eps, sizes=sizes, seed=request.seed, label=title, store=cache,
            begin=bar.begin, advance=bar.advance, only=request.only,
            twins=twins, known=known, references=session.references(),
        )  # fmt: skip


def described(
    result: "CompareResult", session: Session, data: "ImageData", *, sizes: Mapping[str, int], seconds: float
) -> "CompareResult":
    """The result and its parts with where their images came from."""
    seed = session.request.seed

    def settings(name: str) -> dict[str, Any]:
        count = sizes[name] if compared()[name].unit == "image" else None
        return data_settings(data.subset(slice(0, count)), seed=seed)

    parts = {name: part.with_settings(settings(name)) for name, part in result.parts.items()}
    sized = ", ".join(f"{name} {min(count, len(data))}" for name, count in sizes.items() if name in parts)
    more = {"device": session.device, "sizes": sized, "seconds": round(seconds, 1)}
    return replace(result.with_settings({**data_settings(data, seed=seed), **more}), parts=parts)


def write(session: Session, result: "CompareResult", gates: "Sequence[Gate]") -> "tuple[Path, list[FigureError]]":
    """Write the folder; where its page is, and what could not be drawn."""
    from scs_eval.report.comparison import write_comparison
    from scs_eval.report.folder import available_target

    out, undrawn = available_target(session.request.out), list["FigureError"]()
    met = [(gate.text, bool(gate.failures(result))) for gate in gates]
    with progress("writing", len(result.parts)) as advance:
        page = write_comparison(
            result, out, models=session.models, gates=met, command=command_words(), failures=undrawn, progress=advance
        )
    return page, undrawn


def tell(result: "CompareResult", page: Path, gates: "Sequence[Gate]", *, as_json: bool) -> None:
    """The summary and where the page is, or everything as JSON."""
    if as_json:
        click.echo(json.dumps(machine_readable(result, page, gates), indent=1, allow_nan=False))
        return
    from scs_eval.report.markdown import markdown

    click.echo(markdown(result.summary()))
    for model, reference in result.without_reference.items():
        say(f"Not tested: {model}: {reference} is not among the models; add it, or --reference another", err=True)
    for what, why in result.left_out.items():
        say(f"Left out: {what}: {' '.join(why.split())}", err=True)
    click.echo(page)


def machine_readable(result: "CompareResult", page: Path, gates: "Sequence[Gate]") -> dict[str, Any]:
    """All numbers, tests and gates; null where there is none."""
    return {
        "models": list(result.models),
        "metrics": _records(result.table()),
        "tests": _records(result.tests()),
        "left_out": dict(result.left_out),
        "gates": [{"condition": gate.text, "failures": gate.failures(result)} for gate in gates],
        "report": str(page),
    }


def _records(table: Any) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = table.to_dict("records")
    return [
        {key: None if isinstance(value, float) and not math.isfinite(value) else value for key, value in row.items()}
        for row in rows
    ]
