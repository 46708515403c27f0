"""What do layers do? A plan's analyses of many networks, its claims with their evidence, and a paper's exhibits remade.

A study is a list of independent pieces, one analysis of one network each, under keys that say what they depend on; what
is finished is found again. `run_pieces` may run any of them anywhere, and `merge` makes the result of all there are.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor, nn

from scs_eval.analyses.accuracy import Known
from scs_eval.analyses.attacks.sweep import check_eps_values
from scs_eval.analyses.compare.metrics import metrics_of, values_of
from scs_eval.analyses.compare.steps import Advance, Setup, Step, make_setup, make_steps, run_step
from scs_eval.analyses.core.cache import ResultCache
from scs_eval.analyses.core.result import Result, comparison_class
from scs_eval.analyses.core.validation import check_request
from scs_eval.analyses.study.accuracy_table import PaperTables
from scs_eval.analyses.study.plan import Part, Plan
from scs_eval.analyses.study.plan import read_plan as read_plan
from scs_eval.analyses.study.result import PARTED, StudyResult
from scs_eval.errors import InputError, check_text
from scs_eval.images import Images


@dataclass(frozen=True, eq=False, kw_only=True)
class PartInputs:
    """The networks of a part by label, their images (n, 3, H, W) in [0, 1], labels and indices (n,)."""

    models: Mapping[str, nn.Module]
    images: Images | Mapping[str, Images]
    labels: Tensor
    classes: tuple[str, ...]
    indices: Tensor
    known: Mapping[str, Known]
    twins: Mapping[str, tuple[str, nn.Module | None]]


@dataclass(frozen=True, eq=False)
class Piece:
    """One analysis of one network of one part."""

    part: str
    setup: Setup
    step: Step


def make_pieces(
    plan: Plan, inputs: Mapping[str, PartInputs], *, eps: Sequence[float], seed: int, store: ResultCache
) -> list[Piece]:
    """All pieces of a plan, in a fixed order."""
    return [
        Piece(part.name, setup, step)
        for part in plan.parts
        for setup in [_setup(part, inputs[part.name], eps=tuple(eps), seed=seed, store=store)]
        for step in make_steps(setup)
    ]


def _setup(part: Part, given: PartInputs, **options: Any) -> Setup:
    return make_setup(
        given.models, given.images, given.labels, analyses=list(part.sizes), indices=given.indices,
        sizes=dict(part.sizes), classes=given.classes, method=part.method, known=given.known, twins=given.twins,
        options=part.options,
        **options,
    )  # fmt: skip


def pending(pieces: Sequence[Piece], store: ResultCache) -> list[Piece]:
    """Those that are not finished; work that two parts share counts once."""
    once = {piece.step.key: piece for piece in reversed(pieces)}
    return [piece for piece in pieces if once[piece.step.key] is piece and store.get(piece.step.key) is None]


AfterPiece = Callable[[Piece, Result], None]


def run_pieces(pieces: Sequence[Piece], advance: Advance, after_piece: AfterPiece | None = None) -> None:
    """Run some pieces; their results go into the store, a reason for each that does not apply into its setup.

    after_piece: told of every piece that has a result.
    """
    for piece in pieces:
        results: dict[str, dict[str, Result]] = {piece.step.model: {}}
        run_step(piece.step, piece.setup, results, advance)
        result = results[piece.step.model].get(piece.step.analysis)
        if after_piece is not None and result is not None:
            after_piece(piece, result)


def headline_means(piece: Piece, result: Result) -> dict[str, float]:
    """The numbers of a piece for a tracker: "part/metric/model" → mean over its images."""
    examples = {
        f"{piece.part}/{metric.name}/{piece.step.model}": values_of(metric, {piece.step.analysis: result})
        for metric in metrics_of([result.name], piece.setup.eps)
    }
    return {name: float(np.nanmean(values)) for name, values in examples.items() if np.isfinite(values).any()}


def merge(
    plan: Plan,
    text: str,
    pieces: Sequence[Piece],
    store: ResultCache,
    *,
    eps: Sequence[float],
    seed: int,
    paper: PaperTables | None = None,
) -> StudyResult:
    """The result of all pieces that are finished. text: the TOML of the plan. paper: table → network → its numbers."""
    results: dict[str, list[Result]] = {}
    left_out: dict[str, str] = {}
    for piece in pieces:
        result = store.get(piece.step.key)
        if result is not None:
            results.setdefault(f"{piece.part}{PARTED}{piece.step.analysis}", []).append(result)
        left_out |= {f"{piece.part}, {what}": why for what, why in piece.setup.left_out.items()}
    if not results:
        raise InputError(f"nothing of the study {plan.name} is finished")
    together = {key: comparison_class(members[0]).of(members, label=key) for key, members in results.items()}
    return StudyResult(
        label=plan.name, settings={"seed": seed}, plan=text, results=together, eps=tuple(eps), left_out=left_out,
        paper=paper or {},
    )  # fmt: skip


def study(
    plan: Plan,
    text: str,
    inputs: Mapping[str, PartInputs],
    *,
    eps: Sequence[float],
    store: ResultCache,
    seed: int = 0,
    begin: Callable[[float, int], None] | None = None,
    advance: Advance | None = None,
    after_piece: AfterPiece | None = None,
) -> StudyResult:
    """Run what is not finished of a plan, and put everything together.

    plan: as it is to be run, `quickened` or `in_full` if that is wanted; text: its TOML, which the result keeps.
    inputs: part → its networks and images. store: where pieces are kept and found. begin: told the cost of what is to
    be done and how many pieces are finished; advance: how much of that cost is done more, and what is worked on.
    after_piece: told of every piece that was run, and its result; `headline_means` has its numbers.

    >>> import pathlib, scs_eval, tempfile
    >>> from scs_eval.analyses.core.cache import ResultCache
    >>> from scs_eval.analyses.study import PartInputs
    >>> from scs_eval.analyses.study.plan import parse_plan
    >>> text = '''
    ... title = "A small study"
    ... [[part]]
    ... name = "rohrer25k"
    ... models = ["rohrer25k_scs", "rohrer25k_conv"]
    ... sizes = { accuracy = 20 }
    ... '''
    >>> plan, data = parse_plan(text, name="small"), scs_eval.load_data("sample", n=20)
    >>> models = {name: scs_eval.load_model(name) for name in plan.parts[0].models}
    >>> inputs = PartInputs(
    ...     models=models, images=data.images, labels=data.labels, classes=data.classes, indices=data.indices, known={},
    ...     twins={},
    ... )
    >>> store = ResultCache(pathlib.Path(tempfile.mkdtemp()))
    >>> list(scs_eval.study(plan, text, {"rohrer25k": inputs}, eps=[0.01], store=store).results)
    ['rohrer25k/accuracy']
    """
    check_request(label=plan.name, seed=seed)
    check_eps_values(eps)
    check_text(text=text)
    pieces = make_pieces(plan, inputs, eps=eps, seed=seed, store=store)
    left = pending(pieces, store)
    if begin is not None:
        begin(sum(piece.step.cost for piece in left), len(pieces) - len(left))
    run_pieces(left, advance or (lambda cost, what: None), after_piece)
    return merge(plan, text, pieces, ResultCache(store.folder), eps=eps, seed=seed)
