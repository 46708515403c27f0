"""Claims as rows: the contrast, its effect over trainings and images, and whether that supports or contradicts it."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from scs_eval.analyses.catalogue import ENTRIES
from scs_eval.analyses.compare.metrics import SummaryMetric, metrics_of, values_of
from scs_eval.analyses.core.reference_tests import LEVEL, same_examples
from scs_eval.analyses.core.result import Result
from scs_eval.analyses.core.statistics import holm
from scs_eval.analyses.core.trainings import FEWEST_TRAININGS, seeds_needed, training_effect
from scs_eval.analyses.study.contrasts import UNTRAINED, Pairs, find_pairs, networks_at
from scs_eval.analyses.study.plan import Claim
from scs_eval.models.zoo.names import split_seed

Results = Mapping[str, Mapping[str, Mapping[str, Result]]]  # part → analysis → model → result
SUPPORTED, CONTRADICTED, UNDECIDED = "supported", "contradicted", "undecided"
ALL = "all"
DIRECTED = ("higher", "lower")  # expectations that a test decides; others ask whether the interval is within a margin
NOTHING = dict.fromkeys(("effect", "low", "high", "p_value", "standardised", "seeds_for_half"), np.nan)
SHOWN = 12  # networks that a command names: all there are, unless a plan has very many


@dataclass(frozen=True)
class Evidence:
    """What a part has to say of a claim: pairs of networks, and their values (pairs, examples) of the metric.

    methods: of a claim over methods, both of them; channels: of their gradients, if not those of the image.
    """

    part: str
    pairs: Pairs
    of: np.ndarray
    against: np.ndarray
    example: Result
    methods: tuple[str, ...] = ()
    channels: int = 3

    @property
    def differences(self) -> np.ndarray:
        """(pairs, examples)."""
        return self.of - self.against


def claim_table(claims: Sequence[Claim], results: Results, eps: Sequence[float]) -> pd.DataFrame:
    """A main row for every claim, over all parts that have pairs for it, and one for each part where there are several.

    Holm's correction is over the main rows of what should be higher or lower. Below 3 pairs of trainings a claim about
    layers stays undecided, and `observed` says what these networks show.
    """
    rows = [row for number, claim in enumerate(claims, 1) for row in _rows(number, claim, results, eps)]
    table = pd.DataFrame(rows)
    if not len(table):
        return table
    table["p_holm"] = table["p_value"]
    directed = table["expect"].isin(DIRECTED)  # else the interval decides, and p of "no difference" says nothing
    table.loc[~directed, "p_holm"] = np.nan
    table.loc[table["main"] & directed, "p_holm"] = holm(table.loc[table["main"] & directed, "p_value"])
    judged = [_judge(claims[row["number"] - 1], row) for _, row in table.iterrows()]
    table.insert(4, "verdict", [verdict for verdict, _ in judged])
    table.insert(5, "observed", [observed for _, observed in judged])
    return table


def _rows(number: int, claim: Claim, results: Results, eps: Sequence[float]) -> Iterator[dict[str, Any]]:
    names = {"number": number, "source": claim.source, "claim": claim.text, "expect": claim.expect}
    if claim.elsewhere:
        empty = {"n": 0, "trainings": 0, "scope": "", "test": "not part of this study"}
        yield {**names, "part": "", "main": True, "metric": "", **NOTHING, **empty, "command": claim.elsewhere}
        return
    evidence = list(_all_evidence(claim, results, eps))
    there = [evidence_of for evidence_of in evidence if evidence_of.pairs.labels]
    pooled = _pooled(there)
    if not there:
        others = sum(evidence_of.pairs.other_recipes for evidence_of in evidence)
        why = f"{_pairs(others)} of two recipes" if others else "no such pair of networks"
        needed = f"scs-eval zoo train {','.join(claim.needs)} --data cifar10" if claim.needs else ""
        empty = {"n": 0, "trainings": 0, "scope": "", "test": why, "command": needed}
        yield {**names, "part": "", "main": True, "metric": claim.metric, **NOTHING, **empty}
    if pooled is not None:
        yield {**names, "part": ALL, "main": True, **_numbers(claim, pooled)}
    for evidence_of in there:
        yield {**names, "part": evidence_of.part, "main": pooled is None, **_numbers(claim, evidence_of)}


def _all_evidence(claim: Claim, results: Results, eps: Sequence[float]) -> Iterator[Evidence]:
    """That of every part with such a metric; a pair that is in several parts counts once."""
    seen: set[tuple[str, str]] = set()
    for part in claim.parts or tuple(results):
        if part not in results or (claim.given and "accuracy" not in results[part]):
            continue
        if (metric := _metric(claim.metric, results[part], eps)) is not None:
            evidence = _evidence(claim, part, results, metric, seen)
            seen |= set(evidence.pairs.labels)
            yield evidence


def _evidence(claim: Claim, part: str, results: Results, metric: SummaryMetric, seen: set[tuple[str, str]]) -> Evidence:
    """The pairs of a part with their values."""
    models = results[part][metric.analysis]
    others = results.get(claim.against_part or part, {}).get(metric.analysis, {})
    if claim.against_part:
        contrast = _same_networks(claim, models, others)
    else:
        contrast = find_pairs(list(models), claim.of, claim.against)
    pairs = Pairs(tuple(pair for pair in contrast.labels if pair not in seen), contrast.other_recipes)
    sides = [(models[first], others[second]) for first, second in pairs.labels]
    both = [[values_of(metric, {metric.analysis: result}) for result in side] for side in sides]
    values = np.array(both, dtype=float).transpose(1, 0, 2) if both else np.zeros((2, 0, 0))
    if claim.given:
        values = np.where(_both_right(pairs, results[part], values.shape[2]), values, np.nan)
    example = next(iter(models.values()))
    compared = (example, *others.values())[:2] if claim.against_part else ()
    methods = tuple(result.method for result in compared if hasattr(result, "method"))
    channels = max((getattr(result, "settings", {}).get("channels", 3) for result in compared), default=3)
    return Evidence(part, pairs, values[0], values[1], example, methods, channels)


def _same_networks(claim: Claim, models: Mapping[str, Result], others: Mapping[str, Result]) -> Pairs:
    """Networks at the levels `of`, each with itself by another method, on the same examples."""
    shared = [label for label in models if label in others and same_examples(models[label], others[label])]
    return Pairs(tuple((label, label) for label in networks_at(shared, claim.of)), 0)


def _metric(name: str, part: Mapping[str, Mapping[str, Result]], eps: Sequence[float]) -> SummaryMetric | None:
    return next((metric for metric in metrics_of(part, eps) if metric.name == name), None)


def _both_right(pairs: Pairs, part: Mapping[str, Mapping[str, Result]], n: int) -> np.ndarray:
    """(pairs, n) images that both networks have right when clean; all analyses take the first of the same images."""
    right = {label: np.asarray(result.correct)[:n] for label, result in part["accuracy"].items()}  # type: ignore[attr-defined]
    return np.array([right[a] & right[b] for a, b in pairs.labels]).reshape(len(pairs.labels), n)


def _pooled(evidence: Sequence[Evidence]) -> Evidence | None:
    """All pairs of several parts together, if they are about the same examples."""
    if len(evidence) < 2 or not all(same_examples(evidence[0].example, piece.example) for piece in evidence[1:]):
        return None
    labels = tuple(pair for piece in evidence for pair in piece.pairs.labels)
    others = sum(piece.pairs.other_recipes for piece in evidence)
    of, against = (np.concatenate([getattr(piece, side) for piece in evidence]) for side in ("of", "against"))
    return Evidence(ALL, Pairs(labels, others), of, against, evidence[0].example)


def _numbers(claim: Claim, evidence: Evidence) -> dict[str, Any]:
    differences = evidence.differences
    there = np.isfinite(differences).all(0)
    if not there.any():
        empty = {"n": 0, "trainings": len(differences), "scope": "", "test": "no image with a value of every network"}
        return {"metric": claim.metric, **NOTHING, **empty, "command": _command(claim, evidence)}
    effect = training_effect(differences)
    spread = float(np.std(evidence.against[:, there].mean(0), ddof=1)) if there.sum() > 1 else 0.0
    needed = seeds_needed(differences, effect.effect / 2)
    others = evidence.pairs.other_recipes
    return {
        "metric": claim.metric + (", both right" if claim.given else ""),
        "effect": effect.effect, "low": effect.low, "high": effect.high, "p_value": effect.p_value,
        "standardised": effect.effect / spread if spread else np.nan,
        "seeds_for_half": np.nan if needed is None else needed,
        "n": effect.examples, "trainings": effect.trainings, "scope": effect.scope,
        "test": effect.test + (f"; {_pairs(others)} of two recipes left out" if others else ""),
        "command": _command(claim, evidence),
    }  # fmt: skip


def _pairs(count: int) -> str:
    return f"{count} pair" if count == 1 else f"{count} pairs, each"


def _judge(claim: Claim, row: "pd.Series[Any]") -> tuple[str, str]:
    """The verdict on the layers, and what these networks show."""
    if np.isnan(row["effect"]):
        return UNDECIDED, row["test"]
    shows = _shows(claim, row)
    enough = row["trainings"] >= FEWEST_TRAININGS
    observed = {SUPPORTED: "as claimed", CONTRADICTED: "the other way", UNDECIDED: "not shown"}[shows]
    return (shows if enough else UNDECIDED), observed


def _shows(claim: Claim, row: "pd.Series[Any]") -> str:
    low, high, margin = row["low"], row["high"], claim.margin
    if claim.expect in DIRECTED:
        if not row["p_holm"] <= LEVEL:
            return UNDECIDED
        return SUPPORTED if (row["effect"] > 0) == (claim.expect == "higher") else CONTRADICTED
    within = {"same": -margin < low and high < margin, "not higher": high < margin, "not lower": low > -margin}
    beyond = {"same": low > margin or high < -margin, "not higher": low > margin, "not lower": high < -margin}
    return SUPPORTED if within[claim.expect] else CONTRADICTED if beyond[claim.expect] else UNDECIDED


def _command(claim: Claim, evidence: Evidence) -> str:
    """What shows the same numbers, network by network and by trainings."""
    analysis = evidence.example.name
    labels = [label for pair in evidence.pairs.labels for label in pair]
    untrained = all(label.endswith(UNTRAINED) for label in labels)
    plain = [label.removesuffix(UNTRAINED) for label in labels if untrained or not label.endswith(UNTRAINED)]
    names = list(dict.fromkeys(name if untrained else f"'{split_seed(name)[0]}@*'" for name in plain))
    named = " ".join(names[:SHOWN]) + (" …" if len(names) > SHOWN else "") + (" --weights none" if untrained else "")
    named += "".join(f" --method {method}" for method in evidence.methods)
    named += f" --channels {evidence.channels}" if evidence.channels != 3 else ""
    if ENTRIES[analysis].command:
        return f"scs-eval {analysis} {named}"
    return f"scs-eval compare {named} --analyses {analysis}"
