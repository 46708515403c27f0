"""Which network of the zoo a state dict belongs to, by the names and shapes of its tensors."""

import math
from collections.abc import Mapping
from functools import cache
from typing import NamedTuple

import torch
from torch import Tensor

from scs_eval.models.zoo.names import Variant
from scs_eval.models.zoo.parameter_counts import parameter_count
from scs_eval.models.zoo.registry import create_model, input_size, list_models, resolve

DEEPER = ".linear.weight"  # what B-cos layers of the published package call their weight
FIRST = "0."  # the published B-cos transformers are the first of two modules
TRIED = 24  # networks nearest in size that are built, without memory, to be compared
Shapes = dict[str, tuple[int, ...]]


class Match(NamedTuple):
    """How well a state dict fits a network with that many classes."""

    name: str
    num_classes: int
    missing: tuple[str, ...]
    unexpected: tuple[str, ...]
    other_shape: tuple[str, ...]

    @property
    def exact(self) -> bool:
        """Whether it can be loaded strictly."""
        return not (self.missing or self.unexpected or self.other_shape)

    @property
    def misfits(self) -> int:
        """How many tensors do not fit."""
        return len(self.missing) + len(self.unexpected) + len(self.other_shape)


def fit(state: Mapping[str, Tensor], name: str, num_classes: int | None = None) -> Match:
    """How the tensors fit the network `name`; without a number of classes it is read off the head."""
    wrapped = all(key.startswith(FIRST) for key in state)
    got = {_canonical(key[len(FIRST) * wrapped :]): tuple(value.shape) for key, value in state.items()}
    classes = num_classes or _classes(got, tensor_shapes(name, 10))
    expected = tensor_shapes(name, classes)
    other = (key for key in expected.keys() & got.keys() if expected[key] != got[key])
    missing, unexpected = expected.keys() - got.keys(), got.keys() - expected.keys()
    return Match(name, classes, *(tuple(sorted(keys)) for keys in (missing, unexpected, other)))


def recognise(state: Mapping[str, Tensor]) -> list[Match]:
    """The networks that the state dict fits exactly; if none, the nearest of those about as large."""
    size = sum(value.numel() for value in state.values())
    matches = [fit(state, name) for name in _by_size(size)[:TRIED]]
    exact = [match for match in matches if match.exact]
    nearest = min(matches, key=lambda match: match.misfits)
    alike = [match._replace(name=name) for match in exact for name in _alike(match.name)]
    if any(key.endswith(DEEPER) for key in state):
        alike = [match for match in alike if _is_published(match)] or alike
    return alike or [nearest]


def _is_published(match: Match) -> bool:
    """Whether the package `bcos` has weights of that network: by default options, for ImageNet's classes and size."""
    variant = _variant(match.name)
    by_default = match.name == f"{variant.architecture}_{variant.layer}"
    return by_default and match.num_classes == 1000 and input_size(match.name) == 224


def _canonical(key: str) -> str:
    """B-cos layers of the published package keep their weight one level deeper than ours."""
    while key.endswith(DEEPER):
        key = key.removesuffix(DEEPER) + ".weight"
    return key


def _classes(got: Shapes, expected: Shapes) -> int:
    """As many as the head has outputs: the last tensor of the network, whose kernels may come several to a unit."""
    last = next(reversed(expected))
    if last not in got or not expected[last] or not got[last]:
        return 10
    return max(2, got[last][0] * 10 // expected[last][0])


@cache
def tensor_shapes(name: str, num_classes: int) -> Shapes:
    """The shapes of a network's tensors by name, without memory for them."""
    with torch.device("meta"):
        model = create_model(name, num_classes=num_classes)
    return {_canonical(key): tuple(value.shape) for key, value in model.state_dict().items()}


def _variant(name: str) -> Variant:
    resolved = resolve(name)
    assert resolved is not None
    return resolved[1]


def _signature(name: str) -> tuple[object, ...]:
    """What decides the names and shapes of a network's tensors; activation, pooling, p and b do not."""
    variant = _variant(name)
    return variant.architecture, variant.layer, variant.norm, variant.units, variant.width, variant.p


def _by_size(count: int) -> list[str]:
    """One name for each kind of state dict, those with about as many numbers first."""
    first: dict[tuple[object, ...], str] = {}
    for name in _zoo():
        first.setdefault(_signature(name), name)
    return sorted(first.values(), key=lambda name: abs(math.log(parameter_count(name) / max(count, 1))))


def _alike(name: str) -> list[str]:
    """The networks whose tensors have the same names and shapes."""
    return [other for other in _zoo() if _signature(other) == _signature(name)]


def _zoo() -> list[str]:
    """The listed names that the grammar spells, by their structure: not those of the user, not another training."""
    return [name for name in list_models() if resolve(name, missing_ok=True) and not _variant(name).training]
