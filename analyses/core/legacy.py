"""Results that scs-eval 0.1 saved (schema 1), described as they are described today."""

from collections.abc import Mapping
from typing import Any

import numpy as np

# 0.1 named the module and the class. This table is all that a file of 0.1 can name.
KINDS_OF_0_1 = {
    ("accuracy", "AccuracyResult"): "accuracy",
    ("accuracy", "AccuracyComparison"): "accuracy-comparison",
    ("attacked_explanations", "AttackedResult"): "attacked",
    ("attacked_explanations", "AttackedComparison"): "attacked-comparison",
    ("benchmarks.result", "BenchResult"): "bench",
    ("compare_result", "CompareResult"): "compare",
    ("contributions_result", "ContributionsResult"): "contributions",
    ("contributions_result", "ContributionsComparison"): "contributions-comparison",
    ("dynamics", "RunDynamics"): "dynamics",
    ("dynamics", "Dynamics"): "dynamics-comparison",
    ("faithfulness", "FaithfulnessResult"): "faithfulness",
    ("faithfulness", "FaithfulnessComparison"): "faithfulness-comparison",
    ("localisation_result", "LocalisationResult"): "localisation",
    ("localisation_result", "LocalisationComparison"): "localisation-comparison",
    ("neurons_result", "NeuronsResult"): "neurons",
    ("neurons_result", "NeuronsComparison"): "neurons-comparison",
    ("robustness", "PgdResult"): "pgd",
    ("robustness", "PgdComparison"): "pgd-comparison",
    ("saliency_result", "SaliencyResult"): "saliency",
    ("saliency_result", "SaliencyComparison"): "saliency-comparison",
    ("scorecard", "Scorecard"): "scorecard",
}
CARD_FIELDS = {"card_eps": "eps", "card_checks": "checks", "card_attacks": "attacks"}
CARD_ARRAYS = {"card_right": "right", "card_reported": "reported", "card_broken": "is_adversarial"}
# Arrays that have another name today.
RENAMED = {
    "pgd": {"critical": "min_eps", "critical_8bit": "min_eps_8bit", "broken": "is_adversarial"},
    "scorecard": {"broken": "is_adversarial"},
}

Arrays = Mapping[str, np.ndarray]


def upgrade(description: dict[str, Any], arrays: Arrays) -> tuple[dict[str, Any], Arrays]:
    """A description of any schema as one of today's, with the arrays that it speaks of."""
    return (description if "schema" in description else _from_0_1(description, prefix="")), arrays


def _from_0_1(old: Mapping[str, Any], *, prefix: str) -> dict[str, Any]:
    """Schema 1 kept the members of a comparison among its fields, their arrays under `label/`."""
    values = dict(old["fields"])
    members = [_from_0_1(member, prefix=f"{member['fields']['label']}/") for member in values.pop("results", [])]
    kind = KINDS_OF_0_1[old["module"], old["class"]]
    renamed = RENAMED.get(kind, {})
    new: dict[str, Any] = {
        "kind": kind,
        "fields": values,
        "arrays": {renamed.get(name, name): prefix + name for name in old["arrays"]},
        "results": {"results": members} if members else {},
    }
    return _with_scorecard(new) if kind == "pgd" else new


def _with_scorecard(pgd: dict[str, Any]) -> dict[str, Any]:
    """Schema 1 spread the scorecard over fields of the sweep; it is a result of its own now."""
    values, arrays = pgd["fields"], pgd["arrays"]
    own = {name: values.pop(old, None) for old, name in CARD_FIELDS.items()}
    keys = {name: arrays.pop(old, None) for old, name in CARD_ARRAYS.items()}
    for old in CARD_ARRAYS:
        values.pop(old, None)  # None where there was no scorecard
    if own["eps"] is not None:
        shared = {name: values[name] for name in ("label", "settings", "norm")}
        pgd["results"]["scorecard"] = {"kind": "scorecard", "fields": own | shared, "arrays": keys, "results": {}}
    return pgd
