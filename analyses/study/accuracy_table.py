"""A paper's table of accuracies: its numbers, and those of our trainings of the same networks."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from scs_eval.analyses.core.result import Result
from scs_eval.analyses.study.contrasts import network_of
from scs_eval.analyses.study.plan import Exhibit
from scs_eval.models.loading.load import weights_index
from scs_eval.models.zoo.names import split_seed
from scs_eval.models.zoo.recipes import recipe_words

PaperTables = Mapping[str, Mapping[str, Mapping[str, float]]]  # table → network → accuracy, seconds of an epoch
Groups = Mapping[str, Sequence[Any]]  # network → its trainings
PHASES = {"training": "train_seconds", "evaluation": "eval_seconds"}


def trained_groups(results: Iterable[Result]) -> Groups:
    """Results of `accuracy` by network, without those of untrained networks."""
    groups: dict[str, list[Result]] = {}
    for result in results:
        network = network_of(result.label)
        if network is not None and network.trained:
            groups.setdefault(split_seed(result.label)[0], []).append(result)
    return groups


def has_weights(name: str) -> bool:
    """Whether somebody has trained it, with some seed."""
    return any(split_seed(trained)[0] == name for trained in weights_index())


def accuracy_rows(names: Sequence[str], groups: Groups, exhibit: Exhibit, paper: PaperTables) -> pd.DataFrame:
    """A row per network; what nobody trained says so. Seconds of an epoch are each on its own machine."""
    rows = [{"network": name, **_row(name, groups.get(name, ()), exhibit, paper)} for name in names]
    return pd.DataFrame(rows).fillna("")


def _row(name: str, members: Sequence[Any], exhibit: Exhibit, paper: PaperTables) -> dict[str, Any]:
    theirs = next((paper[str(table)][name] for table in exhibit.tables if name in paper.get(str(table), {})), {})
    accuracy = exhibit.paper.get(name, 100 * theirs["accuracy"] if theirs else np.nan)
    recipes = dict.fromkeys(recipe_words(_recipe(member.label)) for member in members)
    return {
        "paper %": "" if np.isnan(accuracy) else f"{accuracy:.1f}",
        "ours %": _accuracy(members),
        "trainings": len(members),
        "images": len(members[0].labels) if members else "",
        "recipe": "; ".join(recipes) if members else "not in this study" if has_weights(name) else "not trained",
        **dict(_seconds(theirs, members)),
    }


def _accuracy(members: Sequence[Any]) -> str:
    """The mean with the range over trainings; of one training with Wilson's interval, in brackets."""
    shares = [100 * float(member.accuracy.estimate) for member in members]
    if not members:
        return ""
    if len(members) > 1:
        return f"{np.mean(shares):.1f} ({min(shares):.1f} to {max(shares):.1f})"
    return f"{shares[0]:.1f} [{100 * members[0].accuracy.low:.1f}, {100 * members[0].accuracy.high:.1f}]"


def _seconds(theirs: Mapping[str, float], members: Sequence[Any]) -> Iterator[tuple[str, str]]:
    """Of an epoch: the paper's and ours, where either is known."""
    for phase, key in PHASES.items():
        known = [member.known[f"{key}_per_epoch"] for member in members if f"{key}_per_epoch" in member.known]
        ours = f"{np.median(known):.3g}" if known else "–"
        if theirs or known:
            yield f"{phase} s/epoch: paper, ours", f"{theirs[key]:.3g}, {ours}" if key in theirs else f"–, {ours}"


def _recipe(label: str) -> Mapping[str, Any]:
    recipe: Mapping[str, Any] = weights_index().get(label, {}).get("recipe", {})
    return recipe
