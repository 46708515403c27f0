"""Factorial contrasts: pairs of networks that differ in the named factors alone: one seed, one recipe."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from scs_eval.models.loading.load import weights_index
from scs_eval.models.zoo.names import Variant, split_seed
from scs_eval.models.zoo.recipes import same_recipe
from scs_eval.models.zoo.registry import resolve

UNTRAINED = " (untrained)"  # behind the name of a network without training


@dataclass(frozen=True)
class Network:
    """A model of a study by its factors."""

    label: str
    variant: Variant
    seed: int
    trained: bool

    def factor(self, name: str) -> Any:
        """The level of a factor."""
        return self.trained if name == "trained" else getattr(self.variant, name)

    @property
    def recipe(self) -> Mapping[str, Any]:
        """How it was trained, as far as the index of weights says."""
        recipe: Mapping[str, Any] = weights_index().get(self.label, {}).get("recipe", {})
        return recipe


@dataclass(frozen=True)
class Pairs:
    """The pairs of a contrast by their labels, and how many there would be by other recipes."""

    labels: tuple[tuple[str, str], ...]
    other_recipes: int


def network_of(label: str) -> Network | None:
    """A label of the study by its factors; None for a model that is not of the zoo."""
    name = label.removesuffix(UNTRAINED)
    resolved = resolve(name, missing_ok=True)
    return None if resolved is None else Network(label, resolved[1], split_seed(name)[1], not label.endswith(UNTRAINED))


def find_pairs(labels: Sequence[str], of: Mapping[str, Any], against: Mapping[str, Any]) -> Pairs:
    """Networks at the levels `of`, each with the one that is at the levels `against` and the same in all else.

    Where nothing is said of `trained`, only trained networks count.
    """
    of, against = {"trained": True, **of}, {"trained": True, **against}
    networks = [network for label in labels if (network := network_of(label)) is not None]
    places = {(network.variant, network.seed, network.trained): network for network in networks}
    pairs, others = [], 0
    for first in networks:
        if any(first.factor(name) != _level(level) for name, level in of.items()):
            continue
        second = places.get(_counterpart(first, against))
        if second is None:
            continue
        if _alike(first, second):
            pairs.append((first.label, second.label))
        else:
            others += 1
    return Pairs(tuple(pairs), others)


def networks_at(labels: Sequence[str], levels: Mapping[str, Any]) -> list[str]:
    """Those of the networks that are at these levels; trained ones where nothing is said of that."""
    wanted = {"trained": True, **levels}
    networks = [network for label in labels if (network := network_of(label)) is not None]
    return [
        network.label
        for network in networks
        if all(network.factor(name) == _level(level) for name, level in wanted.items())
    ]


def _counterpart(network: Network, levels: Mapping[str, Any]) -> tuple[Variant, int, bool]:
    words = {name: _level(level) for name, level in levels.items() if name != "trained"}
    return replace(network.variant, **words), network.seed, levels.get("trained", network.trained)


def _level(level: Any) -> Any:
    """TOML has no word for nothing: "none" is a factor that a network does not have."""
    return None if level == "none" else level


def _alike(first: Network, second: Network) -> bool:
    """Whether both were trained by one recipe, or one of them, or both, not at all."""
    return not (first.trained and second.trained) or same_recipe(first.recipe, second.recipe)
