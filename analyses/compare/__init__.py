"""Which of these models is better, in what, and is that more than chance? All analyses on the same images.

Every analysis of every model is a step of its own with a key that says what it depends on: what is finished is taken
from the cache, and what is interrupted goes on there.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np
from torch import nn

from scs_eval.analyses.accuracy import Known
from scs_eval.analyses.attacks.own_attacks import AttackLike
from scs_eval.analyses.attacks.sweep import check_eps_values
from scs_eval.analyses.attribution.own_methods import MethodLike
from scs_eval.analyses.attribution.own_metrics import MetricLike
from scs_eval.analyses.compare.metrics import metrics_of, values_of
from scs_eval.analyses.compare.result import CompareResult, padded_stack
from scs_eval.analyses.compare.steps import DEFAULT_ATTACKS, Advance, Setup, by_label, make_setup, make_steps, run_step
from scs_eval.analyses.core.cache import ResultCache
from scs_eval.analyses.core.inputs import ArrayLike, ImagesLike, ModelLike
from scs_eval.analyses.core.result import Result, comparison_class
from scs_eval.analyses.core.validation import check_request
from scs_eval.errors import check_one_of
from scs_eval.images import Images

EPS = tuple(float(f"{step / 510:.12g}") for step in range(1, 17))  # 0.5/255, 1/255 … 8/255
Results = dict[str, dict[str, Result]]  # model → analysis → result


def compare(
    models: ModelLike | Sequence[str] | Mapping[str, ModelLike],
    images: ImagesLike | Mapping[str, Images],
    labels: ArrayLike | None = None,
    *,
    classes: Sequence[str] | None = None,
    analyses: Sequence[str] | None = None,
    method: MethodLike = "wx",
    metrics: Sequence[MetricLike] = (),
    attacks: Sequence[AttackLike] = DEFAULT_ATTACKS,
    eps: Sequence[float] = EPS,
    sizes: Mapping[str, int] | None = None,
    indices: ArrayLike | None = None,
    seed: int = 0,
    label: str = "compare",
    store: ResultCache | None = None,
    known: Mapping[str, Known] | None = None,
    twins: Mapping[str, tuple[str, nn.Module | None]] | None = None,
    references: Mapping[str, str] | None = None,
    begin: Callable[[float, int], None] | None = None,
    advance: Advance | None = None,
    only: str | None = None,
) -> CompareResult:
    """Compare models, by names or {label: model}, on the same images (n, 3, H, W) in [0, 1] with labels (n,).

    images: for all models, as arrays or as data that bring labels, classes and indices; or arrays for each label, where
    models take other sizes of the same images. Of {label: model} a model may be a name.
    analyses: some of those that the catalogue has `run` for; by default all. method: the attribution of localisation,
    attacked and faithfulness, as `attribute` takes it. metrics: of maps, besides ours, as `faithfulness` takes them.
    attacks: as `pgd` takes them. eps: of the attacks.
    sizes: analysis → how many of the images, from the first, it takes (localisation: grids), where that is not as the
    catalogue says. store: where finished work is kept and found.
    known: further facts for the table of accuracy. twins: label → name and network for the scorecard's transfer attack.
    references: label → label of the model that it is compared with; by default as the rule of `references_of` has it.
    begin: told the cost of what is to be done and how many steps are finished already; advance: told how much of that
    cost is done more, and what is being worked on. only: do the steps of this model alone, for a store that others
    fill as well; grids are still chosen for all, and the result is of this model.

    >>> import scs_eval
    >>> data = scs_eval.load_data("sample", n=40)
    >>> result = scs_eval.compare(["rohrer25k_scs", "rohrer25k_conv"], data, analyses=["accuracy"])
    >>> result.models, result.to_dataframe()["metric"].unique().tolist()
    (('rohrer25k_scs', 'rohrer25k_conv'), ['accuracy'])
    """
    check_request(label=label, seed=seed)
    check_eps_values(eps)
    models = by_label(models)
    if only is not None:
        check_one_of(models, only=only)
    setup = make_setup(
        models, images, labels, classes=classes, analyses=analyses, method=method, metrics=metrics,
        attacks=attacks, eps=tuple(eps),
        sizes=sizes or {}, indices=indices, seed=seed, store=store, known=known or {}, twins=twins or {},
    )  # fmt: skip
    steps = [step for step in make_steps(setup) if only in (None, step.model)]
    results: Results = {name: {} for name in models}
    pending = []
    for step in steps:
        finished = None if store is None else store.get(step.key)
        if finished is None:
            pending.append(step)
        else:
            results[step.model][step.analysis] = finished
    if begin is not None:
        begin(sum(step.cost for step in pending), len(steps) - len(pending))
    for step in pending:
        run_step(step, setup, results, advance or (lambda cost, what: None))
    if only is not None:
        results, references = {only: results[only]}, {}
    return _result(setup, results, label=label, references=dict(references or {}))


def _result(setup: Setup, results: Results, *, label: str, references: dict[str, str]) -> CompareResult:
    metrics = metrics_of(setup.analyses, setup.eps, setup.metrics)
    columns = [[values_of(metric, results[name]) for name in results] for metric in metrics]
    parts = {
        analysis: replace(comparison_class(members[0]).of(members, label=label), references=references)
        for analysis in setup.analyses
        if (members := [results[name][analysis] for name in results if analysis in results[name]])
    }
    measured = [m for m, row in enumerate(columns) if any(np.isfinite(values).any() for values in row)]
    return CompareResult(
        label=label,
        settings={"seed": setup.seed, "method": setup.method, "analyses": tuple(parts), "eps": setup.eps},
        models=tuple(results),
        metrics=tuple(tuple(metrics[m]) for m in measured),  # type: ignore[misc]
        outcomes=padded_stack([columns[m] for m in measured]),
        left_out=setup.left_out,
        parts=parts,
        image_indices={analysis: setup.image_indices(analysis) for analysis in parts},
        references=references,
    )
