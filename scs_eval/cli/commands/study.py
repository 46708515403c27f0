"""`scs-eval study`: a plan's analyses of many networks, its claims, and a paper's tables and figures, on one page."""

import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import click

from scs_eval.cli.cluster_request import cluster_options, submit_shares
from scs_eval.cli.data_request import DataRequest, data_settings
from scs_eval.cli.finished_work import STORE, keeping
from scs_eval.cli.output import checked_out, command_words, out_option, say
from scs_eval.cli.params import COUNT, SEED, log_option, options_from
from scs_eval.cli.request import device_option
from scs_eval.devices import choose_device
from scs_eval.errors import InputError
from scs_eval.progress import CostProgress, progress
from scs_eval.ranges import parse_range

if TYPE_CHECKING:
    from scs_eval.analyses.study import AfterPiece, PartInputs, Piece
    from scs_eval.analyses.study.plan import Part, Plan
    from scs_eval.analyses.study.result import StudyResult
    from scs_eval.data import ImageData
    from scs_eval.models.loading.sources import ModelSource


class PieceOf(click.ParamType):  # type: ignore[type-arg,unused-ignore]
    """`I/N`, from 1."""

    name = "I/N"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, int]:
        """Which of how many shares."""
        first, _, count = str(value).partition("/")
        if not (first.isdecimal() and count.isdecimal() and 1 <= int(first) <= int(count)):
            raise InputError(f"expected --piece as I/N with 1 ≤ I ≤ N, got {value!r}")
        return int(first), int(count)


@dataclass(frozen=True, kw_only=True)
class StudyOptions:
    """How much of a plan is done, and what of it is there already."""

    quick: Annotated[bool, "Fewer parts and images, as the plan says."] = False
    parts: Annotated[tuple[str, ...], "Only this part of the plan; repeatable.", {"flag": "--part"}] = ()
    piece: Annotated[
        tuple[int, int] | None,
        "Only compute the I-th of N shares of the work, for a job array; then run without it to put all together.",
        {"type": PieceOf()},
    ] = None
    jobs: Annotated[int, "With --cluster: jobs that share the work.", {"type": COUNT}] = 8
    afresh: Annotated[bool, "Do not use finished results of earlier runs."] = False
    findings: Annotated[
        Path | None,
        "Also write the claims as sentences into this Markdown page, between the plan's marks, and the rows beside it.",
        {"type": click.Path(path_type=Path)},
    ] = None


@click.command()
@click.argument("plan_source", metavar="PLAN")
@options_from(StudyOptions, into="options")
@options_from(DataRequest, into="data", without=("n",))
@click.option("--seed", type=SEED, default=0, show_default=True, help="Seed of every random choice.")
@device_option
@cluster_options
@log_option("every finished piece's numbers, to OUT.tensorboard")
@out_option
def command(
    plan_source: str,
    options: StudyOptions,
    data: DataRequest,
    seed: int,
    device: str,
    cluster: str | None,
    cluster_option: tuple[str, ...],
    log: str | None,
    out: Path | None,
) -> None:
    """Run the study that PLAN describes: scs-paper, bcos-paper, or a TOML file of your own (docs/study.md).

    Networks are compared over all their trainings (NAME@*), in pairs that differ in the named factors alone: one
    architecture, seed and recipe. Every claim is a row: supported, contradicted or undecided, with its effect,
    interval, images, trainings, test and the command that shows it. report.html has these rows, and the paper's tables
    and figures with ours beside them.

    What is finished is kept: after Ctrl-C, or with more trained networks, the command does only what is left. With more
    images than the sample (--data cifar10) the plan's full sizes count.

    \b
    Examples:
      scs-eval study scs-paper --quick
      scs-eval study bcos-paper --data cifar10
      scs-eval study scs-paper --cluster slurm --jobs 40 --cluster-option slurm_partition=gpu
    """
    from scs_eval.analyses.study.plan import plan_text, read_plan
    from scs_eval.report.findings import around, write_findings

    started, plan = time.time(), read_plan(plan_source)
    target = checked_out(out, analysis="study", names=[plan.name])
    plan = chosen_plan(plan, options, data)
    if options.findings is not None:
        around(plan.name, options.findings)  # raises before the work
    if cluster is not None:
        submit_shares(target, options.jobs, cluster, cluster_option)
        return
    if cluster_option:
        raise InputError("--cluster-option needs --cluster slurm or local")
    eps = tuple(radius for radius in parse_range(plan.eps) if radius > 0)
    with keeping(target.parent / STORE, afresh=options.afresh) as store:
        from scs_eval.analyses.study import make_pieces

        images = data.read(n=None, seed=seed)
        inputs = load_inputs(plan, images, device=choose_device(device))
        plan = plan.only(list(inputs))
        pieces = make_pieces(plan, inputs, eps=eps, seed=seed, store=store)
        run(pieces, store, options, after_piece=tracking(pieces, log, target))
        if options.piece is not None:
            return
        result = put_together(plan, plan_text(plan_source), pieces, store, eps=eps, seed=seed)
        more = {"device": device, "quick": options.quick, "seconds": round(time.time() - started, 1)}
        finish(result.with_settings({**data_settings(images, seed=seed), **more}), target)
        if options.findings is not None:
            say(f"Claims: {write_findings(result.table(), plan.name, options.findings)}", err=True)


def chosen_plan(plan: "Plan", options: StudyOptions, data: DataRequest) -> "Plan":
    """The plan as it is to be run: quick, in full, or parts of it."""
    if wrong := [part for part in options.parts if part not in [known.name for known in plan.parts]]:
        names = ", ".join(part.name for part in plan.parts)
        raise InputError(f"expected --part of {names}, got {wrong[0]!r}")
    plan = plan.quickened() if options.quick else plan if data.source == "sample" else plan.in_full()
    return plan.only(options.parts) if options.parts else plan


def load_inputs(plan: "Plan", images: "ImageData", *, device: str) -> "dict[str, PartInputs]":
    """The networks and images of every part; a part that no trained network matches is left out with a line."""
    inputs, opened = {}, {}
    with progress("loading", len(plan.parts)) as advance:
        for part in plan.parts:
            advance(0, part.name)
            try:
                sources = sources_of(part)
            except InputError as error:
                say(f"Left out: part {part.name}: {error}", err=True)
            else:
                for asked in sources:
                    if asked not in opened:
                        opened[asked] = asked.open(num_classes=len(images.classes), device=device)
                inputs[part.name] = part_inputs(part, {asked.label: opened[asked] for asked in sources}, images, device)
            advance(1)
    if not inputs:
        raise InputError(f"no part of the plan {plan.name} has trained networks; `scs-eval models` shows which are")
    return inputs


def sources_of(part: "Part") -> "list[ModelSource]":
    """The models of a part: trained ones, and the untrained networks of the same names and seeds."""
    from dataclasses import replace

    from scs_eval.analyses.study.contrasts import UNTRAINED as SUFFIX
    from scs_eval.models.loading.sources import UNTRAINED, parse_sources

    trained = parse_sources(part.models) if part.models else ()
    control = parse_sources(part.untrained) if part.untrained else ()
    return [*trained, *(replace(source, label=f"{source.label}{SUFFIX}", weights=UNTRAINED) for source in control)]


def part_inputs(part: "Part", models: dict[str, Any], images: "ImageData", device: str) -> "PartInputs":
    """What a part's analyses are given; every network takes the same images, enlarged if the part says so."""
    from scs_eval.analyses.study import PartInputs
    from scs_eval.models.loading.sources import trained_twin
    from scs_eval.report.model_facts import known_facts

    count = max(part.sizes.values()) if part.side else None  # large images are not made for nothing
    return PartInputs(
        models={label: named.model for label, named in models.items()},
        images=enlarged(images.images[:count], part.side) if part.side else images.images[:count],
        labels=images.labels[:count], classes=images.classes, indices=images.indices[:count],
        known={
            label: known_facts(named.origin, named.architecture, data=images.source) for label, named in models.items()
        },
        twins={label: trained_twin(named.architecture, device=device) for label, named in models.items()}
        if part.needs_twins
        else {},
    )  # fmt: skip


def enlarged(images: Any, side: int) -> Any:
    """(n, 3, H, W) images in [0, 1] at another size."""
    from torch.nn.functional import interpolate

    return interpolate(images[:], size=(side, side), mode="bilinear", antialias=True).clamp(0, 1)


def tracking(pieces: "list[Piece]", log: str | None, target: Path) -> "AfterPiece | None":
    """What --log asks for: a piece's numbers at its place among all, which is the same whoever runs it."""
    if log is None:
        return None
    from scs_eval.analyses.study import headline_means
    from scs_eval.training.trackers import tensorboard

    track = tensorboard(target.with_name(f"{target.name}.tensorboard"))
    steps = {piece.step.key: number for number, piece in enumerate(pieces, 1)}
    return lambda piece, result: track(steps[piece.step.key], headline_means(piece, result))


def run(pieces: "list[Piece]", store: Any, options: StudyOptions, *, after_piece: "AfterPiece | None" = None) -> None:
    """What is not finished, or this process's share of it, under a bar over the whole."""
    from scs_eval.analyses.study import pending, run_pieces

    first, count = options.piece or (1, 1)
    mine = pieces[first - 1 :: count]
    left = pending(mine, store)
    with CostProgress("study, %") as bar:
        bar.begin(sum(piece.step.cost for piece in left), len(mine) - len(left))
        if after_piece is not None:
            for piece in mine:
                if (result := store.get(piece.step.key)) is not None:
                    after_piece(piece, result)
        run_pieces(left, bar.advance, after_piece)


def put_together(plan: "Plan", text: str, pieces: "list[Piece]", store: Any, **options: Any) -> "StudyResult":
    """The result of all pieces; what is missing is said."""
    from scs_eval.analyses.core.cache import ResultCache
    from scs_eval.analyses.study import merge
    from scs_eval.reference.scs_paper import paper_tables

    result = merge(plan, text, pieces, ResultCache(store.folder), paper=paper_tables(), **options)
    for what, why in result.left_out.items():
        say(f"Left out: {what}: {' '.join(why.split())}", err=True)
    return result


def finish(result: "StudyResult", target: Path) -> None:
    """Write the folder and its page; print the claims and, last, where the page is."""
    from scs_eval.report.folder import available_target
    from scs_eval.report.markdown import markdown
    from scs_eval.report.study import write_study
    from scs_eval.report.write import FigureError, join_errors

    failures: list[FigureError] = []
    with progress("writing", len(result.results)) as advance:
        page = write_study(
            result, available_target(target), command=command_words(), failures=failures, progress=advance
        )
    shown = (
        result.summary()[["claim", "verdict", "observed", "effect", "n", "trainings"]] if len(result.table()) else None
    )
    if shown is not None:
        click.echo(markdown(shown))
    counts = ", ".join(f"{count} {word}" for word, count in result.counts().items())
    say(f"Claims: {counts}", err=True)
    click.echo(page)
    if failures:
        raise join_errors(failures, page.parent)
