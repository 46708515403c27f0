"""Every model against its reference: the headlines of its analysis on the same examples, and one correction for all.

The reference is chosen by the rule of `references_of`, never by which other models happen to be there.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from scs_eval.analyses.catalogue import ENTRIES, Headline
from scs_eval.analyses.core.statistics import RESAMPLES, holm, mcnemar, paired_test, share_difference, too_few
from scs_eval.models.loading.load import weights_index
from scs_eval.models.zoo.counterparts import references_of
from scs_eval.models.zoo.recipes import same_recipe

if TYPE_CHECKING:
    from scs_eval.analyses.core.result import Result

LEVEL = 0.05  # of p, after Holm's correction
UNITS = {"image": "images", "grid": "grids", "cell": "images"}
NUMBERS = ("difference", "low", "high", "p_value")


def compare_pair(
    first: np.ndarray, second: np.ndarray, *, shares: bool = False, unit: str = "images", resamples: int = RESAMPLES
) -> dict[str, Any]:
    """Two models' values (n,) of the same examples, NaN where there is none: n, difference, interval, test and p.

    shares: right or wrong, McNemar's test and Bonett and Price's interval; else sign flips. Without a test, `test` says
    why.
    """
    both = np.isfinite(first) & np.isfinite(second)
    n = int(both.sum())
    if n == 0:
        return {"n": 0, **dict.fromkeys(NUMBERS, np.nan), "test": f"no {unit[:-1]} with a value of both"}
    a, b = first[both], second[both]
    numbers = paired_test(a, b, resamples=resamples)
    why = too_few(n, unit)
    if shares and not why:
        _, low, high = share_difference(a, b)
        numbers = numbers._replace(low=float(low), high=float(high), p_value=mcnemar(a, b).p_value)
    test = why or ("McNemar" if shares else "sign flips")
    return {"n": n, **dict(zip(NUMBERS, numbers, strict=True)), "test": test}


def reference_tests(results: "Sequence[Result]", references: Mapping[str, str]) -> pd.DataFrame:
    """A row for every result that has a reference and every headline of its analysis, with a verdict in words.

    references: model → the model that it is compared with, by label; by default as the rule finds them by the labels.
    Results are paired if they are by the same method, of the same examples. A row without a test says why; `recipes`
    says whether both were trained alike.
    """
    chosen = references or references_of({model_of(result): model_of(result) for result in results})
    rows = []
    for result in results:
        if (name := chosen.get(model_of(result))) is None:
            continue
        partner = partner_of(result, name, results)
        rows += [_row(result, name, partner, headline) for headline in headlines(result)]
    return corrected(rows)


def headlines(result: "Result") -> list[Headline]:
    """What its analysis is summed up by, but for what depends on an ε that somebody would have to choose."""
    return [headline for headline in ENTRIES[result.name].metrics if not headline.at_eps]


def corrected(rows: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    """The rows with Holm's correction over all of them, and the verdict."""
    table = pd.DataFrame(rows)
    if len(table):
        table["p_holm"] = holm(table["p_value"])
        table["verdict"] = [verdict(row) for _, row in table.iterrows()]
        table = table.drop(columns=["less", "more"])
    return table


def verdict(row: "pd.Series[Any]") -> str:
    """What the test shows; why there is none where there is none."""
    if np.isnan(row["p_value"]):
        return str(row["test"])
    if row["p_holm"] > LEVEL:
        return "no difference shown"
    return str(row["more"] if row["difference"] > 0 else row["less"])


def recipe_of(result: "Result") -> Mapping[str, Any]:
    """How the zoo's network of that name was trained; empty for other models."""
    recipe: Mapping[str, Any] = weights_index().get(model_of(result), {}).get("recipe", {})
    return recipe


def model_of(result: "Result") -> str:
    """The model's label, where the result's own also names the method."""
    return str(getattr(result, "model", result.label))


def _row(result: "Result", reference: str, partner: "Result | None", headline: Headline) -> dict[str, Any]:
    names: dict[str, Any] = {"model": model_of(result), "reference": reference, "metric": headline.name}
    if hasattr(result, "method"):
        names["method"] = result.method
    less, more = headline.words_of_difference
    names |= {"less": less, "more": more}
    mine = values_of_headline(result, headline)
    if partner is None:
        names["recipes"] = ""
        why = f"{reference} is not among the models"
        return {**names, "n": len(mine), **dict.fromkeys(NUMBERS, np.nan), "test": why}
    names["recipes"] = "the same" if same_recipe(recipe_of(result), recipe_of(partner)) else "differ, or not recorded"
    if not same_examples(result, partner):
        return {**names, "n": 0, **dict.fromkeys(NUMBERS, np.nan), "test": f"{reference} has other examples"}
    unit = UNITS[ENTRIES[result.name].unit]
    return names | compare_pair(mine, values_of_headline(partner, headline), shares=headline.shares, unit=unit)


def values_of_headline(result: "Result", headline: Headline) -> np.ndarray:
    """(n,) the value of every example."""
    return np.asarray(headline.values(result), dtype=float)


def partner_of(result: "Result", reference: str, results: "Sequence[Result]") -> "Result | None":
    """The reference's result by the same method."""
    return next(
        (other for other in results if model_of(other) == reference and _question(other) == _question(result)), None
    )


def _question(result: "Result") -> tuple[Any, ...]:
    return tuple(getattr(result, key, None) for key in ("method", "methods", "setting", "reduce", "target"))


def same_examples(first: "Result", second: "Result") -> bool:
    """By their indices; where a result keeps none, by their labels."""
    for key in ("indices", "labels"):
        if hasattr(first, key):
            return np.array_equal(getattr(first, key), getattr(second, key))
    return True
