"""The one engine that swaps layers: declared rules, applied to every layer of a network."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import torch
from torch import nn

Kinds = tuple[type[nn.Module], ...]


def is_exactly(module: nn.Module, kinds: Kinds) -> bool:
    """Whether the layer is of one of the kinds and not of a subclass, which may be another layer."""
    return type(module) in kinds


class SwapRule(NamedTuple):
    """Layers of which kinds make way, and for what.

    build: the new layer for an old one; None where the old one stays.
    matches: whether a layer is of these kinds: `isinstance`, `is_exactly`, or `is_equivalent` (equivalence.py).
    """

    kinds: Kinds
    build: Callable[[Any], nn.Module | None]
    matches: Callable[[nn.Module, Kinds], bool] = isinstance


def swap_layers(
    root: nn.Module, rules: Iterable[SwapRule], *, keep: Callable[[str], bool] = lambda name: False
) -> dict[str, str]:
    """Replace the layers below `root` by the first rule that matches them, in place; name to "old → new".

    A layer that occurs twice is replaced by one new layer. What stays is looked into, unless `keep` says of its name
    that it is to be left alone. New layers take over device and training mode.
    """
    return dict(_swapped(root, tuple(rules), keep, {}, ""))


def _swapped(
    parent: nn.Module, rules: tuple[SwapRule, ...], keep: Callable[[str], bool], done: dict[int, nn.Module], prefix: str
) -> Iterator[tuple[str, str]]:
    for key, child in [(key, child) for key, child in parent._modules.items() if child is not None]:
        name = f"{prefix}{key}"
        if keep(name):
            continue
        new = done[id(child)] if id(child) in done else _replacement(child, rules)
        if new is None:
            yield from _swapped(child, rules, keep, done, f"{name}.")
        else:
            done[id(child)] = new
            setattr(parent, key, new.to(_device(child)).train(child.training))
            yield name, _change(child, new)


def _replacement(module: nn.Module, rules: tuple[SwapRule, ...]) -> nn.Module | None:
    rule = next((rule for rule in rules if rule.matches(module, rule.kinds)), None)
    return None if rule is None else rule.build(module)


def _change(old: nn.Module, new: nn.Module) -> str:
    channels = getattr(old, "in_channels", 0), getattr(new, "in_channels", 0)
    widened = f" {channels[0]} → {channels[1]} channels" if all(channels) and channels[0] != channels[1] else ""
    return f"{type(old).__name__} → {type(new).__name__}{widened}"


def _device(module: nn.Module) -> torch.device | None:
    return next((parameter.device for parameter in module.parameters()), None)
