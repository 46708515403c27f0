"""Which of these models is better, in what, and is that more than chance? All analyses on the same images.

Every analysis of every model is a piece of work of its own with a key that says what it depends on: what is finished
is taken from the store, and what is interrupted goes on there.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from scs_eval.analyses.accuracy import AccuracyComparison, Known, accuracy
from scs_eval.analyses.attacked_explanations import AttackedComparison, attacked_explanations
from scs_eval.analyses.compare_metrics import distances, metrics_of, values_of
from scs_eval.analyses.compare_result import CompareResult, stacked
from scs_eval.analyses.contributions import ContributionsComparison, contributions
from scs_eval.analyses.faithfulness import FaithfulnessComparison, faithfulness
from scs_eval.analyses.finished import Finished, key_of
from scs_eval.analyses.game_grids import Grids, choose_grids, places_of
from scs_eval.analyses.layer_maps import UnsuitableError
from scs_eval.analyses.localisation import answers, localisation
from scs_eval.analyses.localisation_result import LocalisationComparison
from scs_eval.analyses.pgd import PgdComparison, pgd
from scs_eval.analyses.result import Comparison, Result
from scs_eval.analyses.saliency import SaliencyComparison, saliency
from scs_eval.analyses.state import device_of, evaluating
from scs_eval.errors import InputError

EPS = tuple(float(f"{step / 510:.12g}") for step in range(1, 17))  # 0.5/255, 1/255 … 8/255
SIDE = 3  # cells of a grid

COMPARISONS: dict[str, type[Comparison[Any]]] = {
    "accuracy": AccuracyComparison,
    "saliency": SaliencyComparison,
    "contributions": ContributionsComparison,
    "localisation": LocalisationComparison,
    "pgd": PgdComparison,
    "attacked": AttackedComparison,
    "faithfulness": FaithfulnessComparison,
}
ANALYSES = tuple(COMPARISONS)
# What an image (a grid, for localisation) costs, in forward passes of one image: only the time left depends on it.
COSTS = {"accuracy": 1, "saliency": 22, "contributions": 14, "localisation": 190, "pgd": 260, "attacked": 260}
COSTS |= {"faithfulness": 330}

Advance = Callable[[float, str], None]


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """How many images each analysis takes, at most; localisation: grids, whose images `attacked` attacks."""

    accuracy: int = 1000
    saliency: int = 100
    contributions: int = 48
    localisation: int = 16
    pgd: int = 200
    faithfulness: int = 24

    def __post_init__(self) -> None:
        for each in fields(self):
            if getattr(self, each.name) < 1:
                raise InputError(f"expected at least 1 image for {each.name}, got {getattr(self, each.name)}")


@dataclass(frozen=True, kw_only=True)
class Step:
    """A piece of work: which analysis of which model, its key, what it costs, and the work itself.

    `run` is given a function to call with the share of the step that is done more.
    """

    analysis: str
    model: str
    key: str
    cost: float
    run: Callable[[Callable[[float], None]], Result]


@dataclass(frozen=True, eq=False, kw_only=True)
class Setup:
    """What all steps share: see `compare`."""

    models: Mapping[str, nn.Module]
    images: Mapping[str, Tensor]
    labels: Tensor
    classes: tuple[str, ...]
    indices: Tensor
    method: str
    eps: tuple[float, ...]
    sizes: Sizes
    seed: int
    store: Finished | None
    known: Mapping[str, Known]
    twins: Mapping[str, tuple[str, nn.Module | None]]
    left_out: dict[str, str] = field(default_factory=dict)

    def part(self, model: str, count: int) -> dict[str, Any]:
        """The first `count` images for a model, as most analyses take them."""
        return {"images": self.images[model][:count], "labels": self.labels[:count]}

    def partial(self, key: str) -> Any:
        """Where a step keeps what it has done so far."""
        return None if self.store is None else self.store.unfinished(key)


def compare(
    models: Mapping[str, nn.Module],
    images: Tensor | Mapping[str, Tensor],
    labels: Tensor,
    *,
    classes: Sequence[str],
    analyses: Sequence[str] = ANALYSES,
    method: str = "wx",
    eps: Sequence[float] = EPS,
    sizes: Sizes = Sizes(),
    indices: Tensor | None = None,
    seed: int = 0,
    label: str = "compare",
    store: Finished | None = None,
    known: Mapping[str, Known] | None = None,
    twins: Mapping[str, tuple[str, nn.Module | None]] | None = None,
    begin: Callable[[float, int], None] | None = None,
    advance: Advance | None = None,
) -> CompareResult:
    """Compare models by label on the same images (n, 3, H, W) in [0, 1] with labels (n,).

    images: one tensor for all, or one for each label, where models take other sizes of the same images.
    analyses: some of ANALYSES. method: the attribution of localisation, attacked and faithfulness. eps: of the attacks.
    sizes: how many of the images, from the first, each analysis takes. store: where finished work is kept and found.
    known: further facts for the table of accuracy. twins: label → name and network for the scorecard's transfer attack.
    begin: told the cost of what is to be done and how many pieces of work are finished already; advance: told how much
    of that cost is done more, and what is being worked on.
    """
    setup = _setup(
        models, images, labels, classes=tuple(classes), analyses=analyses, method=method, eps=tuple(eps), sizes=sizes,
        indices=indices, seed=seed, store=store, known=known or {}, twins=twins or {},
    )  # fmt: skip
    steps = list(_steps(setup, analyses))
    results: dict[str, dict[str, Any]] = {name: {} for name in models}
    todo = []
    for step in steps:
        found = None if store is None else store.get(step.key)
        if found is None:
            todo.append(step)
        else:
            results[step.model][step.analysis] = found
    if begin is not None:
        begin(sum(step.cost for step in todo), len(steps) - len(todo))
    for step in todo:
        _do(step, setup, results, advance or (lambda cost, what: None))
    return _result(setup, analyses, results, label=label)


def _setup(
    models: Mapping[str, nn.Module],
    images: Tensor | Mapping[str, Tensor],
    labels: Tensor,
    *,
    analyses: Sequence[str],
    indices: Tensor | None,
    **options: Any,
) -> Setup:
    """The request, checked."""
    if not models:
        raise InputError("expected models to compare, got none")
    if unknown := [each for each in analyses if each not in ANALYSES]:
        raise InputError(f"expected analyses of {', '.join(ANALYSES)}, got {unknown[0]!r}")
    if not analyses:
        raise InputError("expected at least one analysis, got none")
    each = {name: images if isinstance(images, Tensor) else images[name] for name in models}
    if wrong := [name for name, found in each.items() if len(found) != len(labels)]:
        raise InputError(
            f"expected the same {len(labels)} images for every model, got {len(each[wrong[0]])} for {wrong[0]}"
        )
    places = torch.arange(len(labels)) if indices is None else indices
    return Setup(models=models, images=each, labels=labels, indices=places, **options)


def _steps(setup: Setup, analyses: Sequence[str]) -> Iterator[Step]:
    """All pieces of work, the cheap analyses first; without grids none that needs them."""
    grids = _grids(setup, analyses)
    seconds = {name: _seconds_per_image(model, setup.images[name]) for name, model in setup.models.items()}
    for analysis in (each for each in ANALYSES if each in analyses):
        if analysis in ("localisation", "attacked") and grids is None:
            continue
        for name in setup.models:
            yield _step(setup, analysis, name, grids, seconds[name])


def _step(setup: Setup, analysis: str, name: str, grids: Grids | None, seconds: float) -> Step:
    size = min(getattr(setup.sizes, analysis, 0), len(setup.labels))
    tensors = setup.images[name][: size or None], setup.labels[: size or None], setup.indices[: size or None]
    settings: dict[str, Any] = {"label": name, "seed": setup.seed, "classes": setup.classes, "size": size}
    if analysis in ("localisation", "attacked") and grids is not None:
        size = len(grids) if analysis == "localisation" else grids.indices.size
        tensors = setup.images[name], setup.labels, setup.indices
        settings |= {"grids": grids.indices.tolist(), "targets": grids.targets.tolist()}
    settings |= {"method": setup.method} if analysis in ("localisation", "attacked", "faithfulness") else {}
    settings |= {"eps": setup.eps, "twin": setup.twins.get(name, ("",))[0]} if analysis == "pgd" else {}
    settings |= {"eps": distances(setup.eps)} if analysis == "attacked" else {}
    settings |= {"known": dict(setup.known.get(name, {}))} if analysis == "accuracy" else {}
    key = key_of(analysis, setup.models[name], tensors, sorted(settings.items()))

    def run(advance: Callable[[float], None]) -> Result:
        return _WORK[analysis](setup, name, size, grids, key, advance)

    return Step(analysis=analysis, model=name, key=key, cost=COSTS[analysis] * size * seconds, run=run)


def _do(step: Step, setup: Setup, results: dict[str, dict[str, Any]], advance: Advance) -> None:
    """Do a piece of work and keep it; one that does not suit the model is left out with the reason."""
    done = 0.0

    def more(share: float) -> None:
        nonlocal done
        share = min(share, 1 - done)
        done += share
        advance(share * step.cost, f"{step.analysis} {step.model}")

    more(0)
    try:
        result = step.run(more)
    except UnsuitableError as error:
        setup.left_out[f"{step.analysis}, {step.model}"] = str(error)
    else:
        results[step.model][step.analysis] = result
        if setup.store is not None:
            setup.store.put(step.key, result)
    more(1 - done)


def _result(
    setup: Setup, analyses: Sequence[str], results: Mapping[str, Mapping[str, Any]], *, label: str
) -> CompareResult:
    metrics = metrics_of(analyses, setup.eps)
    columns = [[values_of(metric, results[name]) for name in setup.models] for metric in metrics]
    there = [m for m, row in enumerate(columns) if any(np.isfinite(values).any() for values in row)]
    parts = {
        analysis: COMPARISONS[analysis].of(found, label=label)
        for analysis in ANALYSES
        if (found := [results[name][analysis] for name in setup.models if analysis in results[name]])
    }
    return CompareResult(
        label=label,
        settings={"seed": setup.seed, "method": setup.method, "analyses": tuple(parts), "eps": setup.eps},
        models=tuple(setup.models),
        metrics=tuple(tuple(metrics[m]) for m in there),  # type: ignore[misc]
        outcomes=stacked([columns[m] for m in there]),
        left_out=setup.left_out,
        parts=parts,
    )


def _grids(setup: Setup, analyses: Sequence[str]) -> Grids | None:
    """The grids of the pointing game, the same for all models; None if nobody asks or there are too few images."""
    if not {"localisation", "attacked"} & set(analyses):
        return None
    logits = [answers(model, setup.images[name], classes=len(setup.classes)) for name, model in setup.models.items()]
    count = setup.sizes.localisation
    try:
        return choose_grids(logits, setup.labels, setup.indices, side=SIDE, count=count, seed=setup.seed)
    except InputError as error:
        setup.left_out["localisation, all models"] = str(error)
        return None


def _seconds_per_image(model: nn.Module, images: Tensor) -> float:
    """For a forward pass, to know how models share the time that is left."""
    some = images[:32].to(device_of(model))
    with evaluating(model), torch.inference_mode():
        model(some[:1])
        start = time.perf_counter()
        model(some)
    return (time.perf_counter() - start) / len(some)


def _accuracy(setup: Setup, name: str, size: int, grids: Any, key: str, advance: Any) -> Result:
    options = setup.part(name, size)
    return accuracy(setup.models[name], **options, classes=setup.classes, label=name, known=setup.known.get(name))


def _saliency(setup: Setup, name: str, size: int, grids: Any, key: str, advance: Any) -> Result:
    return saliency(
        setup.models[name], **setup.part(name, size), classes=setup.classes, label=name, seed=setup.seed,
        indices=setup.indices[:size],
    )  # fmt: skip


def _contributions(setup: Setup, name: str, size: int, grids: Any, key: str, advance: Any) -> Result:
    return contributions(
        setup.models[name], **setup.part(name, size), classes=setup.classes, label=name, indices=setup.indices[:size]
    )


def _localisation(setup: Setup, name: str, size: int, grids: Any, key: str, advance: Any) -> Result:
    return localisation(
        setup.models[name], setup.images[name], setup.labels, grids, classes=setup.classes, method=setup.method,
        indices=setup.indices, label=name, seed=setup.seed, partial=setup.partial(key),
        progress=lambda count: advance(count / size),
    )  # fmt: skip


def _pgd(setup: Setup, name: str, size: int, grids: Any, key: str, advance: Any) -> Result:
    twin_name, twin = setup.twins.get(name, ("", None))
    return pgd(
        setup.models[name], **setup.part(name, size), classes=setup.classes, eps=setup.eps, label=name, seed=setup.seed,
        indices=setup.indices[:size], twin=twin, twin_name=twin_name, checkpoint=setup.partial(key),
        progress=lambda count: advance(0.4 * count / size),  # the rest is the scorecard's, which does not tell
    )  # fmt: skip


def _attacked(setup: Setup, name: str, size: int, grids: Any, key: str, advance: Any) -> Result:
    """The images of the grids are attacked one by one, and set into the same grids."""
    cells = places_of(grids, setup.indices).flatten()
    labels, indices, radii = setup.labels[cells], setup.indices[cells], distances(setup.eps)
    options: dict[str, Any] = {"classes": setup.classes, "method": setup.method, "seed": setup.seed}

    def play(moved: Tensor) -> np.ndarray:
        return localisation(setup.models[name], moved, labels, grids, indices=indices, **options).grid_scores

    return attacked_explanations(
        setup.models[name], setup.images[name][cells], labels, eps=radii, play=play, floor=1 / SIDE**2,
        indices=indices, label=name, progress=lambda count: advance(count / (1 + len(radii))), **options,
    )  # fmt: skip


def _faithfulness(setup: Setup, name: str, size: int, grids: Any, key: str, advance: Any) -> Result:
    return faithfulness(
        setup.models[name], setup.images[name][:size], classes=setup.classes, method=setup.method, label=name,
        indices=setup.indices[:size], seed=setup.seed, watch=lambda _: advance(0.25),
    )  # fmt: skip


_WORK: dict[str, Callable[[Setup, str, int, Any, str, Callable[[float], None]], Result]] = {
    "accuracy": _accuracy,
    "saliency": _saliency,
    "contributions": _contributions,
    "localisation": _localisation,
    "pgd": _pgd,
    "attacked": _attacked,
    "faithfulness": _faithfulness,
}
