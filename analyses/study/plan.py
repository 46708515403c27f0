"""A plan: which networks, which analyses of how many images, which claims, and what of a paper is remade.

A plan is a small TOML file; docs/study.md describes it. Two come with the package. Analyses and metrics are those of
the catalogue, so a new one can be named in a plan without further edits.
"""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args

from scs_eval.analyses.catalogue import compared
from scs_eval.errors import InputError, did_you_mean
from scs_eval.models.zoo.names import Variant

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib  # type: ignore[import-not-found,unused-ignore]

Expectation = Literal["higher", "lower", "same", "not higher", "not lower"]
FACTORS = (*(item.name for item in fields(Variant)), "trained")
Entry = TypeVar("Entry", "Part", "Claim", "Exhibit")


@dataclass(frozen=True, kw_only=True)
class Part:
    """Networks that are analysed on the same images, and play the same grids.

    models: names or patterns of trained networks (`rohrer100k_*@*` with all seeds). untrained: names, as a control.
    sizes: analysis → how many images (grids, for localisation). quick: the same for a quick study, in which a part
    without any is left out; full: for data of which there are more than in the sample, where that is not as `sizes`.
    method: the attribution of localisation, attacked and faithfulness. side: to how many pixels a side images are
    enlarged, if at all. options: analysis → what is chosen about it; the catalogue says what can be.
    """

    name: str
    sizes: Mapping[str, int]
    models: tuple[str, ...] = ()
    quick: Mapping[str, int] = field(default_factory=dict)
    full: Mapping[str, int] = field(default_factory=dict)
    untrained: tuple[str, ...] = ()
    method: str = "wx"
    side: int = 0
    options: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    @property
    def needs_twins(self) -> bool:
        """Whether networks are also attacked by way of their twins."""
        return "pgd" in self.sizes and self.options.get("pgd", {}).get("scorecard") != "none"


@dataclass(frozen=True, kw_only=True)
class Claim:
    """A sentence that a contrast can support or contradict.

    of, against: factor → level (architecture, layer, activation, pooling, … and trained): networks that differ in these
    factors, and in nothing else, are compared in pairs of one seed and one recipe. metric: a headline of the catalogue,
    pgd@8/255 for one at a distance. expect: how `of` stands to `against`; margin: of "same" and "not …", up to which a
    difference does not matter. given: "both right" counts only images that both networks of a pair have right when
    clean, so that clean accuracy is held constant. parts: where to look; everywhere by default. against_part: compare
    the networks `of` of the one part with themselves in this part, which has another method.
    needs: networks that it takes, where there are none. elsewhere: the command that answers it, where a study does not.
    """

    source: str
    text: str
    metric: str = ""
    of: Mapping[str, Any] = field(default_factory=dict)
    against: Mapping[str, Any] = field(default_factory=dict)
    expect: Expectation = "higher"
    margin: float = 0.0
    given: Literal["", "both right"] = ""
    parts: tuple[str, ...] = ()
    against_part: str = ""
    needs: tuple[str, ...] = ()
    elsewhere: str = ""


@dataclass(frozen=True, kw_only=True)
class Exhibit:
    """A table or figure of the paper, remade: how, from which part's results, and a sentence.

    kind: a name of `exhibits.KINDS`. analysis, figure: whose figure, of what name. models: patterns of those that are
    shown, by default all. tables: of the SCS paper, whose networks these are; paper: network → the accuracy that
    another paper reports, in per cent; needs: further networks that the paper shows. saved: a result of the package.
    elsewhere: what makes it, where a study does not.
    """

    name: str
    words: str
    kind: str = "elsewhere"
    parts: tuple[str, ...] = ()
    analysis: str = ""
    figure: str = "figure"
    models: tuple[str, ...] = ()
    tables: tuple[int, ...] = ()
    paper: Mapping[str, float] = field(default_factory=dict)
    needs: tuple[str, ...] = ()
    saved: str = ""
    elsewhere: str = ""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What a study does. eps: the range of attacks, as the command line takes it."""

    name: str
    title: str
    parts: tuple[Part, ...]
    claims: tuple[Claim, ...] = ()
    exhibits: tuple[Exhibit, ...] = ()
    eps: str = "0.001:0.03"

    def quickened(self) -> "Plan":
        """The same with the parts and sizes of a quick study."""
        parts = tuple(replace(part, sizes=part.quick) for part in self.parts if part.quick)
        if not parts:
            raise InputError(f"expected a part with `quick` sizes in the plan {self.name}, got none")
        return replace(self, parts=parts)

    def in_full(self) -> "Plan":
        """The same with the sizes for more images than the sample has."""
        return replace(self, parts=tuple(replace(part, sizes={**part.sizes, **part.full}) for part in self.parts))

    def only(self, parts: Sequence[str]) -> "Plan":
        """The same with these parts alone."""
        return replace(self, parts=tuple(part for part in self.parts if part.name in parts))


def bundled_plans() -> list[str]:
    """The names of the plans that come with the package."""
    folder = files("scs_eval.analyses.study") / "plans"
    return sorted(path.name.removesuffix(".toml") for path in folder.iterdir() if path.name.endswith(".toml"))


def read_plan(source: str) -> Plan:
    """The plan of that name, or in that file."""
    return parse_plan(plan_text(source), name=Path(source).stem)


def plan_text(source: str) -> str:
    """The TOML of the plan of that name, or in that file."""
    if source in bundled_plans():
        return (files("scs_eval.analyses.study") / "plans" / f"{source}.toml").read_text(encoding="utf-8")
    try:
        return Path(source).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        hint = did_you_mean(source, bundled_plans(), otherwise=f"plans of the package: {', '.join(bundled_plans())}")
        raise InputError(f"expected a plan, got {source!r}; {hint}") from error


def parse_plan(text: str, *, name: str) -> Plan:
    """The plan that a TOML text describes; anything unknown in it raises."""
    try:
        raw = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"expected TOML in the plan {name}: {error}") from error
    entries = {
        "parts": tuple(_entry(Part, entry, name) for entry in _list(raw, "part", name)),
        "claims": tuple(_entry(Claim, entry, name) for entry in _list(raw, "claim", name)),
        "exhibits": tuple(_entry(Exhibit, entry, name) for entry in _list(raw, "exhibit", name)),
    }
    if not entries["parts"]:
        raise InputError(f"expected at least one [[part]] in the plan {name}, got none")
    unknown = raw.keys() - {"title", "eps", "part", "claim", "exhibit"}
    if unknown:
        raise InputError(f"expected title, eps, part, claim and exhibit in the plan {name}, got {min(unknown)!r}")
    plan = Plan(name=name, title=str(raw.get("title", name)), eps=str(raw.get("eps", Plan.eps)), **entries)  # type: ignore[arg-type]
    _check(plan)
    return plan


def _list(raw: Mapping[str, Any], key: str, name: str) -> list[Mapping[str, Any]]:
    value = raw.get(key, [])
    if not isinstance(value, list) or not all(isinstance(entry, dict) for entry in value):
        raise InputError(f"expected [[{key}]] tables in the plan {name}, got {key} = {value!r}")
    return value


def _entry(kind: type[Entry], raw: Mapping[str, Any], name: str) -> Entry:
    """A part, claim or exhibit from its table."""
    known = {item.name for item in fields(kind)}
    what = kind.__name__.lower()
    if unknown := sorted(raw.keys() - known):
        raise InputError(f"expected {', '.join(sorted(known))} of a {what} in the plan {name}, got {unknown[0]!r}")
    values: dict[str, Any] = {key: tuple(value) if isinstance(value, list) else value for key, value in raw.items()}
    try:
        return kind(**values)
    except TypeError as error:
        missing = str(error).rpartition(": ")[2]
        raise InputError(f"a {what} in the plan {name} lacks {missing}") from error


def _check(plan: Plan) -> None:
    """Raise for what no study could do: unknown analyses, parts, factors or expectations."""
    names = [part.name for part in plan.parts]
    for part in plan.parts:
        for analysis in (*part.sizes, *part.quick, *part.full, *part.options):
            if analysis not in compared():
                hint = did_you_mean(analysis, list(compared()), otherwise=f"analyses: {', '.join(compared())}")
                raise InputError(f"unknown analysis {analysis!r} in part {part.name} of the plan {plan.name}; {hint}")
        for analysis, options in part.options.items():
            if analysis in compared():
                _known(list(options), compared()[analysis].options, f"options of {analysis} in part {part.name}")
    of_claims = [(*claim.parts, claim.against_part or claim.parts[0]) for claim in plan.claims if claim.parts]
    for parts in of_claims + [exhibit.parts for exhibit in plan.exhibits]:
        if wrong := [part for part in parts if part not in names]:
            raise InputError(f"expected parts of {', '.join(names)} in the plan {plan.name}, got {wrong[0]!r}")
    for claim in plan.claims:
        _check_claim(claim, plan.name)


def _check_claim(claim: Claim, name: str) -> None:
    if claim.elsewhere:
        return
    where = f"of the claim {claim.text!r} in the plan {name}"
    _known([*claim.of, *claim.against], FACTORS, f"factors {where}")
    _known([claim.expect], get_args(Expectation), f"an expectation {where}")
    if claim.against_part and (claim.against or len(claim.parts) != 1):
        raise InputError(f"expected one part, and no `against`, beside `against_part` {where}")
    if not claim.against_part and (not claim.of or claim.of.keys() != claim.against.keys()):
        raise InputError(f"expected the same factors in `of` and `against` {where}")
    metrics = [metric.name for entry in compared().values() for metric in entry.metrics]
    _known([claim.metric.partition("@")[0]], metrics, f"a metric {where}")


def _known(values: Sequence[str], allowed: Sequence[str], what: str) -> None:
    if wrong := [value for value in values if value not in allowed]:
        raise InputError(f"expected {what} to be of {', '.join(dict.fromkeys(allowed))}, got {wrong[0]!r}")
