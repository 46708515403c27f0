"""The steps of a comparison: one analysis of one model each, with the key under which its result is kept."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn

from scs_eval.analyses.accuracy import Known
from scs_eval.analyses.attacks.config import Attack
from scs_eval.analyses.attacks.own_attacks import AttackLike, as_attacks
from scs_eval.analyses.attribution.methods import find_method
from scs_eval.analyses.attribution.metric_records import Metric
from scs_eval.analyses.attribution.own_methods import MethodLike, method_name
from scs_eval.analyses.attribution.own_metrics import MetricLike, as_metrics
from scs_eval.analyses.catalogue import SHARED, Analysis, compared, imported
from scs_eval.analyses.compare.metrics import distances
from scs_eval.analyses.core.cache import ResultCache, key_of
from scs_eval.analyses.core.inputs import ArrayLike, ImagesLike, ModelLike, as_examples, as_model
from scs_eval.analyses.core.model_state import device_of, evaluating
from scs_eval.analyses.core.result import Result
from scs_eval.analyses.core.task import Task
from scs_eval.analyses.core.validation import UNLABELLED, check_answer, check_images, check_request
from scs_eval.errors import InputError, NotApplicableError, brief, check_whole, several
from scs_eval.images import Images, take_images
from scs_eval.plugins import code_digest

Advance = Callable[[float, str], None]
DEFAULT_ATTACKS = ("pgd",)
TIMED = 32  # images of the forward pass by which steps share the time that is left


@dataclass(frozen=True, eq=False, kw_only=True)
class Setup:
    """What all steps share: see `compare`."""

    models: Mapping[str, nn.Module]
    images: Mapping[str, Images]
    labels: Tensor
    classes: tuple[str, ...]
    indices: Tensor
    analyses: tuple[str, ...]
    method: str
    metrics: tuple[Metric, ...]
    attacks: tuple[Attack, ...]
    eps: tuple[float, ...]
    sizes: Mapping[str, int]
    seed: int
    store: ResultCache | None
    known: Mapping[str, Known]
    twins: Mapping[str, tuple[str, nn.Module | None]]
    options: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # analysis → what is chosen about it
    left_out: dict[str, str] = field(default_factory=dict)
    grids: list[Any] = field(default_factory=list)  # what `shared_mosaics` chose, once it has

    def image_indices(self, analysis: str) -> tuple[int, ...]:
        """Which images an analysis saw, in the set they come from."""
        entry = compared()[analysis]
        if entry.unit == "image":
            return tuple(self.indices[: self.sizes[analysis]].tolist())
        return tuple(self.indices[self.grids[0].cells(self.indices)].tolist())

    def task(self, name: str) -> Task:
        """Everything that an analysis of a model may need, with all images."""
        return Task(
            model=self.models[name], label=name, images=self.images[name], labels=self.labels, classes=self.classes,
            indices=self.indices, seed=self.seed, method=self.method, metrics=self.metrics, attacks=self.attacks,
            eps=self.eps,
            shown_eps=tuple(distances(self.eps)), twin=self.twins.get(name, ("", None)),
            facts=dict(self.known.get(name, {})),
        )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Step:
    """Which analysis of which model, the key of its result, what it costs, and the work itself.

    `run` is given a function to call with the share of the step that is done more.
    """

    analysis: str
    model: str
    key: str
    cost: float
    run: Callable[[Callable[[float], None]], Result]


def default_sizes() -> dict[str, int]:
    """How many images (grids, for localisation) each analysis takes."""
    return {name: entry.size for name, entry in compared().items() if entry.size is not None}


def check_sizes(asked: Mapping[str, int]) -> dict[str, int]:
    """The sizes of all analyses, with those that were asked for."""
    sizes = default_sizes()
    if not isinstance(asked, Mapping):
        raise InputError(f"expected sizes as a number of images by analysis, got {brief(asked)}")
    for name, count in asked.items():
        if name not in sizes:
            raise InputError(f"expected sizes of {', '.join(sizes)}, got {name!r}")
        check_whole(1, **{f"sizes[{name!r}]": count})
    return {**sizes, **asked}


def check_analyses(asked: Sequence[str] | None) -> tuple[str, ...]:
    """Each once, in the order of the catalogue; all for None."""
    known = tuple(compared())
    if asked is None:
        return known
    names = several(analyses=asked)
    if unknown := [name for name in names if name not in known]:
        raise InputError(f"expected analyses of {', '.join(known)}, got {unknown[0]!r}")
    if not names:
        raise InputError("expected at least one analysis, got none")
    return tuple(name for name in known if name in names)


def by_label(models: ModelLike | Sequence[str] | Mapping[str, ModelLike]) -> Mapping[str, ModelLike]:
    """The models by their labels: of a name itself, of a single network "model"."""
    if isinstance(models, nn.Module):
        return {"model": models}
    if isinstance(models, str):
        return {models: models}
    if isinstance(models, Sequence) and models and all(isinstance(model, str) for model in models):
        return {model: model for model in models}
    if not isinstance(models, Mapping) or not models:
        got = "none" if models is None or models == {} else brief(models)
        raise InputError(f"expected models to compare as names or by their labels ({{label: model}}), got {got}")
    return models


def make_setup(
    models: Mapping[str, ModelLike],
    images: ImagesLike | Mapping[str, Images],
    labels: ArrayLike | None,
    *,
    classes: Sequence[str] | None,
    analyses: Sequence[str] | None,
    indices: ArrayLike | None,
    sizes: Mapping[str, int],
    method: MethodLike = "wx",
    metrics: Sequence[MetricLike] = (),
    attacks: Sequence[AttackLike] = DEFAULT_ATTACKS,
    **options: Any,
) -> Setup:
    """The request, checked."""
    for name in models:
        check_request(label=name)
    loaded = {name: as_model(model) for name, model in models.items()}
    first = images[next(iter(models))] if isinstance(images, Mapping) else images
    data = as_examples(first, labels, classes=classes, indices=indices)
    by_model = {name: images[name] if isinstance(images, Mapping) else data.images for name in models}
    if wrong := [name for name, batch in by_model.items() if len(batch) != len(data.labels)]:
        count = len(by_model[wrong[0]])
        raise InputError(f"expected as many images as labels, {len(data.labels)}, got {count} for {wrong[0]}")
    names = data.class_names(next(iter(loaded.values())))
    for name, batch in by_model.items():
        check_images(batch)
        check_answer(loaded[name], batch, classes=len(names))
    return Setup(
        models=loaded, images=by_model, labels=data.labels, indices=data.indices, classes=names,
        analyses=check_analyses(analyses), sizes=check_sizes(sizes), method=method_name(method),
        metrics=as_metrics(metrics), attacks=as_attacks(attacks), **options,
    )  # fmt: skip


def make_steps(setup: Setup) -> Iterator[Step]:
    """All steps, analysis by analysis; none of an analysis that needs grids where there are too few images for one."""
    entries = [compared()[name] for name in setup.analyses]
    if (setup.labels == UNLABELLED).all():
        for entry in entries:
            if "labels" in entry.needs:
                setup.left_out[f"{entry.name}, all models"] = "it needs the images' classes, and they have none"
        entries = [entry for entry in entries if "labels" not in entry.needs]
    tasks = {name: setup.task(name) for name in setup.models}
    if any("grids" in entry.needs for entry in entries):
        grids = _grids(setup, list(tasks.values()))
        tasks = {name: replace(task, grids=grids) for name, task in tasks.items()}
    seconds = {name: _seconds_per_image(task) for name, task in tasks.items()}
    for entry in entries:
        for name, task in tasks.items():
            if task.grids is not None or "grids" not in entry.needs:
                yield _step(setup, entry, task, seconds[name])


def _grids(setup: Setup, tasks: list[Task]) -> Any:
    """The grids of the pointing game, the same for all models; None if there are too few images."""
    try:
        setup.grids.append(imported(SHARED["grids"])(tasks, count=setup.sizes["localisation"]))
    except InputError as error:
        setup.left_out["localisation, all models"] = str(error)
        return None
    return setup.grids[0]


def _step(setup: Setup, entry: Analysis, task: Task, seconds: float) -> Step:
    if entry.unit == "image":
        size = min(setup.sizes[entry.name], len(task.labels))
        task = replace(
            task, images=take_images(task.images, slice(size)), labels=task.labels[:size], indices=task.indices[:size]
        )
    else:
        size = task.grids.sizes[entry.unit]
    task = replace(task, options=setup.options.get(entry.name, {}))
    settings = {"label": task.label, "seed": task.seed, "classes": task.classes, "size": size, **_needed(entry, task)}
    if task.options:
        settings["options"] = sorted(task.options.items())
    if own := _own_code(entry, task):
        settings["code"] = own
    key = key_of(entry.name, task.model, (task.images, task.labels, task.indices), sorted(settings.items()))

    def run(advance: Callable[[float], None]) -> Result:
        checkpoint = None if setup.store is None else setup.store.unfinished(key)
        result: Result = imported(entry.run)(replace(task, checkpoint=checkpoint, progress=advance))
        return result

    return Step(analysis=entry.name, model=task.label, key=key, cost=entry.cost * size * seconds, run=run)


def _needed(entry: Analysis, task: Task) -> dict[str, Any]:
    """What the analysis depends on besides model, images and seed."""
    settings = {
        "method": lambda: {"method": task.method},
        "metrics": lambda: {"metrics": [metric.name for metric in task.metrics]} if task.metrics else {},
        "attacks": lambda: {} if task.attacks == as_attacks(DEFAULT_ATTACKS) else {"attacks": repr(task.attacks)},
        "eps": lambda: {"eps": task.eps},
        "shown eps": lambda: {"eps": task.shown_eps},
        "twin": lambda: {"twin": task.twin[0]},
        "facts": lambda: {"facts": task.facts},
        "grids": lambda: task.grids.settings,
    }
    return {key: value for need in entry.needs if need in settings for key, value in settings[need]().items()}


def _own_code(entry: Analysis, task: Task) -> list[str]:
    """Digests of the code from outside that the analysis runs: it may change between two runs, its name does not."""
    functions = [imported(entry.run)] if not entry.module.startswith("scs_eval.") else []
    if "method" in entry.needs and (method := find_method(task.method)).own:
        functions.append(getattr(method.function, "function", method.function))
    if "metrics" in entry.needs:
        functions += [metric.function for metric in task.metrics]
    if "attacks" in entry.needs:
        functions += [attack.kind.function for attack in task.attacks if attack.kind.function is not None]
    return [code_digest(function) for function in functions]


def run_step(step: Step, setup: Setup, results: dict[str, dict[str, Result]], advance: Advance) -> None:
    """Run a step and keep its result; an analysis that does not apply to the model is left out with the reason."""
    done = 0.0

    def more(share: float) -> None:
        nonlocal done
        share = min(share, 1 - done)
        done += share
        advance(share * step.cost, f"{step.analysis} {step.model}")

    more(0)
    try:
        result = step.run(more)
    except NotApplicableError as error:
        setup.left_out[f"{step.analysis}, {step.model}"] = str(error)
    else:
        results[step.model][step.analysis] = result
        if setup.store is not None:
            setup.store.put(step.key, result)
    more(1 - done)


def _seconds_per_image(task: Task) -> float:
    """For a forward pass, to know how models share the time that is left."""
    batch = task.images[:TIMED].to(device_of(task.model))
    with evaluating(task.model), torch.inference_mode():
        task.model(batch[:1])
        start = time.perf_counter()
        task.model(batch)
    return (time.perf_counter() - start) / len(batch)
