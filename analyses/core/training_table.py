"""Groups of trainings in a table: the mean and range of every headline, and the group against its reference's."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from scs_eval.analyses.catalogue import Headline
from scs_eval.analyses.core.reference_tests import (
    corrected,
    headlines,
    model_of,
    partner_of,
    recipe_of,
    same_examples,
    values_of_headline,
)
from scs_eval.analyses.core.trainings import range_of, seeds_needed, training_effect
from scs_eval.models.zoo.counterparts import references_of
from scs_eval.models.zoo.names import split_seed
from scs_eval.models.zoo.recipes import recipe_words, same_recipe
from scs_eval.models.zoo.registry import resolve

if TYPE_CHECKING:
    from scs_eval.analyses.core.result import Result

Pair = tuple["Result", "Result"]
EMPTY = {
    "effect": np.nan, "low": np.nan, "high": np.nan, "standardised": np.nan, "p_value": np.nan, "seeds_for_half": np.nan
}  # fmt: skip


def training_table(results: "Sequence[Result]", references: Mapping[str, str]) -> pd.DataFrame:
    """One row per network (and method) and headline, if some network was trained more than once; else empty.

    mean, least, largest: over its trainings. effect: the mean difference to the reference over pairs of one seed, with
    its interval; standardised: that over the reference's standard deviation among examples. seeds_for_half: how many
    pairs would show half the effect. scope: "5 trainings", or "this network only". Trainings by another recipe than the
    first are left out, and a reference by another recipe is not compared: `test` says so.
    """
    chosen = references or references_of({model_of(result): model_of(result) for result in results})
    groups: dict[tuple[str, Any], list[Result]] = {}
    for result in results:
        if resolve(model_of(result), missing_ok=True) is not None:
            key = split_seed(model_of(result))[0], getattr(result, "method", None)
            groups.setdefault(key, []).append(result)
    if all(len(members) < 2 for members in groups.values()):
        return pd.DataFrame()
    rows = [row for members in groups.values() for row in _rows(members, chosen, results)]
    return corrected(rows)


def training_summary(table: pd.DataFrame) -> pd.DataFrame:
    """The table for a reader: text, rounded."""
    rows = []
    for _, row in table.iterrows():
        method = {"method": row["method"]} if "method" in table else {}
        several = row["trainings"] > 1
        span = f" ({row['least']:.3f} to {row['largest']:.3f})" if several else ""
        against = f"{row['effect']:+.3f}" if np.isfinite(row["effect"]) else ""
        interval = f" [{row['low']:+.3f}, {row['high']:+.3f}]" if np.isfinite(row["low"]) else ""
        needed = "" if np.isnan(row["seeds_for_half"]) else f"{row['seeds_for_half']:.0f}"
        rows.append(
            {"network": row["network"], "metric": row["metric"], **method, "trainings": str(row["trainings"])}
            | {"mean (range)": f"{row['mean']:.3f}{span}", "− reference's": against + interval}
            | {"reference": row["reference"], "verdict": row["verdict"], "about": row["scope"]}
            | {"seeds for half of it": needed}
        )
    return pd.DataFrame(rows)


def _rows(members: "list[Result]", references: Mapping[str, str], results: "Sequence[Result]") -> list[dict[str, Any]]:
    first = recipe_of(members[0])
    alike = [member for member in members if len(members) == 1 or same_recipe(recipe_of(member), first)] or members[:1]
    names = {model_of(member): references.get(model_of(member)) for member in alike}
    partners = [(member, partner_of(member, name, results)) for member in alike if (name := names[model_of(member)])]
    pairs = [(member, other) for member, other in partners if other is not None and _comparable(member, other)]
    return [_row(alike, headline, pairs, _why_unpaired(partners, names)) for headline in headlines(members[0])]


def _row(members: "list[Result]", headline: Headline, pairs: "list[Pair]", why: str) -> dict[str, Any]:
    name = split_seed(model_of(members[0]))[0]
    means = [
        float(np.nanmean(values_of_headline(member, headline))) for member in members if _has_values(member, headline)
    ]
    mean, least, largest = range_of(means) if means else (np.nan,) * 3
    row: dict[str, Any] = {"network": name, "metric": headline.name, "recipe": recipe_words(recipe_of(members[0]))}
    if hasattr(members[0], "method"):
        row["method"] = members[0].method
    row |= {"trainings": len(members), "mean": float(mean), "least": float(least), "largest": float(largest)}
    less, more = headline.words_of_difference
    return {**row, "less": less, "more": more, **_against(pairs, headline, why)}


def _against(pairs: "list[Pair]", headline: Headline, why: str) -> dict[str, Any]:
    """The group against its reference's."""
    there = [pair for pair in pairs if all(_has_values(member, headline) for member in pair)]
    if not there:
        return {"reference": "", **EMPTY, "difference": np.nan, "n": 0, "pairs": 0, "scope": "", "test": why}
    mine, theirs = (np.stack([values_of_headline(pair[side], headline) for pair in there]) for side in (0, 1))
    effect = training_effect(mine - theirs)
    spread = float(np.nanstd(theirs.mean(0), ddof=1)) if theirs.shape[1] > 1 else np.nan
    needed = seeds_needed(mine - theirs, effect.effect / 2)
    return {
        "reference": split_seed(model_of(there[0][1]))[0],
        "effect": effect.effect, "low": effect.low, "high": effect.high,
        "standardised": effect.effect / spread if spread else np.nan, "p_value": effect.p_value,
        "seeds_for_half": np.nan if needed is None else needed, "difference": effect.effect, "n": effect.examples,
        "pairs": effect.trainings, "scope": effect.scope, "test": effect.test,
    }  # fmt: skip


def _why_unpaired(partners: "list[tuple[Result, Result | None]]", names: Mapping[str, str | None]) -> str:
    """Why a group is not compared, if it is not."""
    if not any(names.values()):
        return "the reference"
    if not any(other is not None for _, other in partners):
        return f"{next(filter(None, names.values()))} is not among the models"
    return "its reference has another recipe, or other examples"


def _comparable(first: "Result", other: "Result") -> bool:
    return same_recipe(recipe_of(first), recipe_of(other)) and same_examples(first, other)


def _has_values(result: "Result", headline: Headline) -> bool:
    return bool(np.isfinite(values_of_headline(result, headline)).any())
