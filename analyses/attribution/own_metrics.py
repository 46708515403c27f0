"""Metrics from outside: a function of (model, images, targets, maps), registered or passed along."""

import inspect
from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from scs_eval.analyses.attribution.metric_records import METRICS, PASSED, Metric, MetricFunction, find_metric
from scs_eval.errors import InputError, several
from scs_eval.own_functions import check_traits, describe_function, register_function, renamed, trait_names

if TYPE_CHECKING:
    from torch import Tensor, nn

MetricLike = str | Metric | MetricFunction
TRAITS = trait_names(Metric, "family")


@overload
def register_metric(metric: Metric, name: str = ...) -> Metric: ...
@overload
def register_metric(metric: MetricFunction, name: str = ..., **traits: Any) -> MetricFunction: ...
@overload
def register_metric(metric: str | None = ..., **traits: Any) -> Callable[[MetricFunction], MetricFunction]: ...
def register_metric(metric: Any = None, name: str = "", **traits: Any) -> Any:
    """Make a metric of maps known by its name: to `faithfulness` and to `scs-eval metrics`.

    A function gets the model, images (n, 3, H, W), targets (n,) and maps (n, 3, H, W), and gives a number for each
    image, NaN where it has none; if it has an argument `explain`, that is a function of (model, images, targets) that
    makes the method's maps, and `seed` the seed. traits: fields of `Metric` (head, formula, source, better, words,
    cost, needs). A name that is taken raises; a wrong shape is reported with the metric's name.

    >>> import scs_eval
    >>> @scs_eval.register_metric("positive_share", better=0)
    ... def positive_share(model, images, targets, maps):
    ...     return (maps > 0).flatten(1).float().mean(1)
    >>> model, data = scs_eval.load_model("rohrer25k_scs"), scs_eval.load_data("sample", n=5)
    >>> result = scs_eval.faithfulness(
    ...     model, data, methods="grad", metrics=["positive_share"], options=scs_eval.FaithfulnessOptions(steps=4)
    ... )
    >>> result.tables()["own_metrics"]["metric"].unique().tolist()
    ['positive_share']
    """
    return register_function(METRICS, as_metric, metric, name, traits)


def as_metric(function: Any, name: str = "", **traits: Any) -> Metric:
    """The record of a plain function; a record as it is."""
    if isinstance(function, Metric):
        return renamed(function, name, family="own")
    known = describe_function(
        function, name, expected="a metric by name or a function of (model, images, targets, maps)"
    )
    check_traits(traits, TRAITS, noun="a metric")
    record = Metric(name=known.name, head=known.name, formula=known.text, function=function, source=known.source)
    return replace(record, **traits)


def as_metrics(metrics: Sequence[MetricLike]) -> tuple[Metric, ...]:
    """The metrics from outside that were asked for, each once; ours are always measured."""
    chosen = [_metric(asked) for asked in several(metrics=metrics)]
    return tuple({metric.name: metric for metric in chosen if metric.family == "own"}.values())


def _metric(asked: MetricLike) -> Metric:
    if isinstance(asked, Metric):
        return asked
    if isinstance(asked, str):
        return find_metric(asked)
    for known in METRICS.values():
        if asked is not None and known.function is asked:
            return known
    record = as_metric(asked)
    if record.name in METRICS:
        raise InputError(f"there is a metric {record.name!r} already; rename the function that was passed")
    PASSED[record.name] = record
    return record


def remembered(metric: Metric) -> dict[str, Any]:
    """What a result keeps of a metric, so that it needs no plugin to be read."""
    return {item.name: getattr(metric, item.name) for item in fields(metric) if item.name != "function"}


def measure(
    metric: Metric,
    model: "nn.Module",
    images: "Tensor",
    targets: "Tensor",
    maps: "Tensor",
    *,
    explain: "Callable[[nn.Module, Tensor, Tensor], Tensor]",
    seed: int,
) -> np.ndarray:
    """(n,) the metric of maps (n, 3, H, W); anything but a number for each image raises with the metric's name."""
    assert metric.function is not None
    known = inspect.signature(metric.function).parameters
    told = {key: value for key, value in {"explain": explain, "seed": seed}.items() if key in known}
    values = metric.function(model, images.clone(), targets, maps.clone(), **told)
    array = np.asarray(values.detach().cpu() if hasattr(values, "detach") else values)
    if array.shape != (len(images),) or array.dtype.kind not in "fiub":
        raise InputError(
            f"the metric {metric.name!r} gave shape {array.shape}, expected a number for each of {len(images)} images"
        )
    return array.astype(np.float64)
