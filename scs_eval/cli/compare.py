"""`scs-eval compare`: any models on the same images, one folder, one page."""

import json
import math
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from scs_eval.cli.cost_bar import CostBar
from scs_eval.cli.gates import EXIT_CODE, Gate, parse_gate
from scs_eval.cli.images import pick_images
from scs_eval.cli.model_names import MODEL
from scs_eval.cli.options import data_options
from scs_eval.cli.output import choose_device, choose_out, data_settings, output_options
from scs_eval.cli.progress import progress
from scs_eval.cli.sources import choose_models, input_size_of, load_all, source_of, source_options
from scs_eval.errors import InputError

if TYPE_CHECKING:
    from torch import nn

    from scs_eval.analyses.compare import Sizes
    from scs_eval.analyses.compare_result import CompareResult
    from scs_eval.data import ImageData

ANALYSES = ("accuracy", "saliency", "contributions", "localisation", "pgd", "attacked", "faithfulness")
POOL = 1000
STORE = ".scs-eval-finished"


@click.command()
@click.argument("models", nargs=-1, type=MODEL, required=True, metavar="MODEL...")
@source_options
@click.option("--analyses", default="all", show_default=True, help=f"Which, between commas: {', '.join(ANALYSES)}.")
@click.option("--method", default="wx", show_default=True, help="Attribution of localisation, attacked, faithfulness.")
@click.option("--eps", help="Distances of pgd: lo:hi (30 values), lo:hi:n, or 2/255,4/255.  [default: 0.5/255 … 8/255]")
@click.option(
    "--size", "sizes", multiple=True, metavar="ANALYSIS=N",
    help="Images of one analysis (grids, for localisation).  [default: pgd 200, saliency 100, …]",
)  # fmt: skip
@click.option(
    "--fail-if", "conditions", multiple=True, metavar="'METRIC < NUMBER'",
    help="Exit with 3 if a model's value is like that, or MODEL:METRIC for one model; repeatable.",
)  # fmt: skip
@click.option("--afresh", is_flag=True, help="Do not use finished results of earlier runs.")
@click.option("--json", "as_json", is_flag=True, help="Print all numbers and tests for machines.")
@data_options(f"Images that all analyses choose from, evenly over the classes.  [default: {POOL}]")
@output_options
@click.pass_context
def command(
    context: click.Context,
    models: tuple[str, ...],
    analyses: str,
    method: str,
    eps: str | None,
    sizes: tuple[str, ...],
    conditions: tuple[str, ...],
    afresh: bool,
    as_json: bool,
    data: str,
    data_dir: str | None,
    n: int | None,
    seed: int,
    skip_bad: bool,
    out: Path | None,
    device: str,
) -> None:
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
    started = time.time()
    chosen = choose_analyses(analyses)
    radii = choose_distances(eps)
    counts = choose_sizes(sizes)
    check_method(method)
    names = choose_models(models)
    gates = choose_gates(conditions, names, chosen, radii)
    out = choose_out(out, analysis="compare", names=models)
    device = choose_device(device)
    networks = {name: network.to(device) for name, network in load_all(names).items()}

    @cache
    def images(size: int | None) -> "ImageData":
        options: dict[str, Any] = {"data_dir": data_dir, "seed": seed, "skip_bad": skip_bad, "size": size}
        return pick_images(data, n=n, usual=POOL, **options)

    pictures = {name: images(input_size_of(name)) for name in names}
    first = pictures[names[0]]
    options: dict[str, Any] = {"analyses": chosen, "method": method, "eps": radii, "sizes": counts, "seed": seed}
    with keeping(out.parent / STORE, afresh=afresh) as store:
        result = run(networks, pictures, store=store, label=out.name, device=device, **options)
    result = described(result, first, seed=seed, device=device, sizes=counts, seconds=time.time() - started)
    failures = [line for gate in gates for line in gate.failures(result)]
    write_all(result, out, networks=networks, pictures=first, sizes=counts, gates=gates)
    tell(result, out, gates, as_json=as_json)
    for line in failures:
        click.echo(f"Gate: {line}", err=True)
    context.exit(EXIT_CODE if failures else 0)


def choose_analyses(text: str) -> tuple[str, ...]:
    """The analyses, each once, in the order of the page."""
    asked = [part.strip() for part in text.split(",")]
    if wrong := [each for each in asked if each not in (*ANALYSES, "all")]:
        raise InputError(f"expected --analyses of {', '.join(ANALYSES)}, got {wrong[0]!r}")
    return tuple(each for each in ANALYSES if each in asked or "all" in asked)


def choose_distances(text: str | None) -> tuple[float, ...]:
    """The values of --eps above 0, rising."""
    from scs_eval.analyses.compare import EPS
    from scs_eval.cli.pgd import choose_eps

    return EPS if text is None else tuple(each for each in choose_eps(text) if each > 0)


def choose_sizes(asked: Sequence[str]) -> "Sizes":
    """--size ANALYSIS=N."""
    from dataclasses import fields

    from scs_eval.analyses.compare import Sizes

    known = [each.name for each in fields(Sizes)]
    given = {}
    for text in asked:
        name, _, number = text.partition("=")
        if name not in known or not number.isdigit():
            raise InputError(f"expected --size as ANALYSIS=N with one of {', '.join(known)}, got {text!r}")
        given[name] = int(number)
    return Sizes(**given)


def check_method(name: str) -> None:
    """Raise now what would be raised later."""
    from scs_eval.analyses.attribution import find_method

    find_method(name)


def choose_gates(
    conditions: Sequence[str], models: Sequence[str], analyses: Sequence[str], eps: Sequence[float]
) -> list[Gate]:
    """The gates, checked against what this comparison will know."""
    from scs_eval.analyses.compare_metrics import metrics_of

    metrics = [metric.name for metric in metrics_of(analyses, eps)]
    return [parse_gate(text, models=models, metrics=metrics) for text in conditions]


@contextmanager
def keeping(folder: Path, *, afresh: bool) -> Iterator[Any]:
    """The store of finished work; after Ctrl-C, a line that says so."""
    from scs_eval.analyses.finished import Finished

    try:
        yield Finished(folder, read=not afresh)
    except KeyboardInterrupt:
        if folder.is_dir() and any(folder.iterdir()):
            click.echo(f"What is finished is kept in {folder}; the same command goes on from there.", err=True)
        raise


def run(
    networks: "Mapping[str, nn.Module]",
    pictures: "Mapping[str, ImageData]",
    *,
    store: Any,
    label: str,
    device: str,
    **options: Any,
) -> "CompareResult":
    """The comparison under a bar that shows how much of the whole is done."""
    from scs_eval.analyses.compare import compare
    from scs_eval.cli.accuracy import known_of
    from scs_eval.cli.pgd import trained_twin

    first = next(iter(pictures.values()))
    twins = {name: trained_twin(name) for name in networks} if "pgd" in options["analyses"] else {}
    moved = {name: (twin, None if network is None else network.to(device)) for name, (twin, network) in twins.items()}
    with CostBar("compare, %") as bar:
        return compare(
            networks, {name: found.images for name, found in pictures.items()}, first.labels, classes=first.classes,
            indices=first.indices, label=label, store=store, twins=moved, begin=bar.begin, advance=bar.advance,
            known={name: known_of(source_of(name), data=first.source) for name in networks}, **options,
        )  # fmt: skip


def described(
    result: "CompareResult", data: "ImageData", *, seed: int, device: str, sizes: "Sizes", seconds: float
) -> "CompareResult":
    """The result and its parts with where their images came from."""
    from dataclasses import asdict, replace

    parts = {
        name: part.with_settings(data_settings(data.subset(slice(0, getattr(sizes, name, None))), seed=seed))
        if name not in ("localisation", "attacked")
        else part.with_settings(data_settings(data, seed=seed))
        for name, part in result.parts.items()
    }
    used = {name: count for name, count in asdict(sizes).items() if name in result.parts}
    sized = ", ".join(f"{name} {min(count, len(data))}" for name, count in used.items())
    settings = {**data_settings(data, seed=seed), "device": device, "sizes": sized, "seconds": round(seconds, 1)}
    return replace(result.with_settings(settings), parts=parts)


def write_all(
    result: "CompareResult",
    out: Path,
    *,
    networks: "Mapping[str, nn.Module]",
    pictures: "ImageData",
    sizes: "Sizes",
    gates: Sequence[Gate],
) -> None:
    """The folder: the comparison's own files, one folder for each analysis, and the page."""
    from scs_eval.cli.cards import card
    from scs_eval.report.page import page
    from scs_eval.report.write import write

    words = ["scs-eval", *sys.argv[1:]]
    cards = {name: card(name, network, result) for name, network in networks.items()}
    checked = [(gate.text, bool(gate.failures(result))) for gate in gates]

    def beside(folder: Path, made: dict[str, Any]) -> None:
        with progress("writing", len(result.parts)) as advance:
            for name, part in result.parts.items():
                write(part, folder / name, command=words)
                advance(1, name)
        seen = indices_of(result, pictures, sizes)
        text = page(result, folder=folder, cards=cards, run=made, images=seen, gates=checked)
        (folder / "report.html").write_text(text, encoding="utf-8")

    write(result, out, command=words, beside=beside)


def indices_of(result: "CompareResult", data: "ImageData", sizes: "Sizes") -> dict[str, list[int]]:
    """Which images each analysis saw."""
    found = {name: data.indices[: getattr(sizes, name, 0)].tolist() for name in result.parts if hasattr(sizes, name)}
    for name in ("localisation", "attacked"):
        if part := result.parts.get(name):
            found[name] = part.results[0].indices.ravel().tolist()  # type: ignore[attr-defined]
    return found


def tell(result: "CompareResult", out: Path, gates: Sequence[Gate], *, as_json: bool) -> None:
    """The summary and where the page is, or everything as JSON."""
    if as_json:
        click.echo(json.dumps(machine_readable(result, out, gates), indent=1, ensure_ascii=False, allow_nan=False))
        return
    from scs_eval.report.markdown import markdown

    click.echo(markdown(result.summary()))
    for what, why in result.left_out.items():
        click.echo(f"Left out: {what}: {' '.join(why.split())}", err=True)
    click.echo(out / "report.html")


def machine_readable(result: "CompareResult", out: Path, gates: Sequence[Gate]) -> dict[str, Any]:
    """All numbers, tests and gates; null where there is none."""
    return {
        "models": list(result.models),
        "metrics": _records(result.table()),
        "tests": _records(result.tests()),
        "left_out": dict(result.left_out),
        "gates": [{"condition": gate.text, "failures": gate.failures(result)} for gate in gates],
        "report": str(out / "report.html"),
    }


def _records(table: Any) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = table.to_dict("records")
    return [
        {key: None if isinstance(value, float) and not math.isfinite(value) else value for key, value in row.items()}
        for row in rows
    ]
