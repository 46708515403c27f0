"""Whether two networks were trained alike, as far as the index of weights says."""

from collections.abc import Mapping
from typing import Any

QUALIFIERS = {"pgd_steps", "ema_every"}  # say how something is done that may not be done at all


def same_recipe(first: Mapping[str, Any], second: Mapping[str, Any]) -> bool:
    """Whether all numbers of two recipes agree; an option that one does not know must be off in the other."""
    if not first or not second:
        return False
    keys = (first.keys() | second.keys()) - QUALIFIERS
    return all(first.get(key) == second.get(key) or not (first.get(key) or second.get(key)) for key in keys)


def recipe_words(recipe: Mapping[str, Any]) -> str:
    """A recipe in a few words: its optimiser, learning rate and epochs."""
    return f"{recipe['optimizer']}, lr {recipe['lr']:g}, {recipe['epochs']} epochs" if recipe else "not recorded"
