"""Conditions of --fail-if, such as `pgd@8/255 < 0.2` or `rohrer100k_scs:accuracy <= 0.7`. Parsed, never evaluated."""

import math
import operator
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from scs_eval.errors import InputError, did_you_mean
from scs_eval.ranges import parse_number

if TYPE_CHECKING:
    from scs_eval.analyses.attribution.metric_records import Metric
    from scs_eval.analyses.compare.result import CompareResult

SIGNS: dict[str, Callable[[float, float], bool]] = {
    "<=": operator.le,
    ">=": operator.ge,
    "<": operator.lt,
    ">": operator.gt,
}


@dataclass(frozen=True, kw_only=True)
class Gate:
    """A condition that makes the command fail; without a model it is enough that one of them meets it."""

    text: str
    model: str | None
    metric: str
    sign: str
    limit: float

    def failures(self, result: "CompareResult") -> list[str]:
        """A line for each model that meets the condition; a value that is missing counts, for nobody has seen it."""
        values = {name: result.value(self.metric, name) for name in ([self.model] if self.model else result.models)}
        return [
            f"{name}: {self.metric} = {'missing' if math.isnan(value) else f'{value:.4g}'} ({self.text})"
            for name, value in values.items()
            if math.isnan(value) or SIGNS[self.sign](value, self.limit)
        ]


def parse_gates(
    conditions: Sequence[str],
    *,
    models: Sequence[str],
    analyses: Sequence[str],
    eps: Sequence[float],
    own: "Sequence[Metric]" = (),
) -> list[Gate]:
    """The gates, checked against what a comparison of these models by these analyses will know. own: of maps."""
    from scs_eval.analyses.compare.metrics import metrics_of

    metrics = [metric.name for metric in metrics_of(analyses, eps, own)]
    return [parse_gate(text, models=models, metrics=metrics) for text in conditions]


def parse_gate(text: str, *, models: Sequence[str], metrics: Sequence[str]) -> Gate:
    """`[MODEL:]METRIC SIGN NUMBER`; a fraction is a number, and a model's label may hold colons itself."""
    match = re.fullmatch(r"\s*(?P<what>.+?)\s*(?P<sign><=|>=|<|>)\s*(?P<limit>[^<>=]+?)\s*", text)
    if match is None:
        raise InputError(f"expected --fail-if as 'METRIC < NUMBER' or 'MODEL:METRIC >= NUMBER', got {text!r}")
    what = match["what"]
    model = next((name for name in sorted(models, key=len, reverse=True) if what.startswith(f"{name}:")), None)
    metric = _metric(
        what.removeprefix(f"{model}:").strip() if model else what, metrics=metrics, models=models, text=text
    )
    return Gate(text=text.strip(), model=model, metric=metric, sign=match["sign"], limit=_number(match["limit"], text))


def _metric(name: str, *, metrics: Sequence[str], models: Sequence[str], text: str) -> str:
    """A metric of the summary; a distance may be written in any way that means the same number."""
    from scs_eval.analyses.compare.metrics import spell_eps

    head, at, distance = name.partition("@")
    spelled = f"{head}@{spell_eps(_number(distance, text))}" if at else name
    if spelled in metrics:
        return spelled
    if ":" in name:
        raise InputError(f"no model {name.rpartition(':')[0]!r} in --fail-if {text!r}; models: {', '.join(models)}")
    hint = did_you_mean(spelled, metrics, otherwise=f"there are {', '.join(metrics)}")
    raise InputError(f"no metric {name!r} in this comparison; {hint}")


def _number(text: str, whole: str) -> float:
    try:
        return parse_number(text)
    except InputError:
        raise InputError(f"expected a number or a fraction in --fail-if, got {text!r} in {whole!r}") from None
