"""The grammar of model names: `<architecture>_<layer>[_<option>…]`, without importing torch.

Options come in one order (activation, pooling, norm, units, training, width, p, q, b), and one that equals the default
of its layer is left out: `rohrer100k_scs_linear_maxabspool` is `rohrer100k_scs`. `p=…` fixes the exponent of a
sharpened layer, `q=…` is the q that an SCS layer starts with, `b=…` the B of a B-cos layer, `w=…` a width factor; any
number may be asked for, the listed names carry the papers'. `hardened` is the same network trained on attacked images,
and `bnbias` one whose norms have a bias, which is not listed either.

`NAME@3` is the network trained with seed 3 and `NAME` alone the one with seed 0.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, fields, replace
from itertools import product
from typing import Any

from scs_eval.errors import InputError


@dataclass(frozen=True)
class Variant:
    """One network of the zoo, as its name says it. A field is None where the network has no such choice."""

    architecture: str
    layer: str
    activation: str | None = None
    pooling: str | None = None
    norm: str | None = None
    units: str | None = None
    training: str | None = None
    width: float | None = None
    p: float | None = None
    q: float | None = None
    b: float | None = None


WORDS = ("activation", "pooling", "norm", "units", "training")
NUMBERS = {"w": "width", "p": "p", "q": "q", "b": "b"}
OPTIONAL = {"p": ("scs", "ssdp"), "q": ("scs", "cos")}  # layers of which a number may be said that has no default
LIMITS = {"w": (0.01, 16.0), "p": (0.1, 100.0), "q": (1e-6, 10.0), "b": (1.0, 10.0)}


@dataclass(frozen=True)
class Family:
    """Architectures that share a builder: what their names may say, and what is meant where they say nothing."""

    builder: str  # "module:function", called with (variant, num_classes)
    input_sizes: dict[str, int]
    defaults: dict[str, Variant]  # one per layer; `architecture` is filled in
    choices: dict[str, dict[str, tuple[str, ...]]]  # layer -> option -> words
    unlisted: dict[str, dict[str, tuple[str, ...]]] = field(default_factory=dict)  # further words, as `choices`
    listed: dict[str, tuple[float, ...]] = field(default_factory=dict)  # numeric option -> values worth listing
    hardened: tuple[str, ...] = ()  # stems, such as rohrer100k_conv, of which `_hardened` is listed too
    num_classes: int = 10  # unless another number is asked for; 1000 where the source is about ImageNet

    def words(self, layer: str) -> dict[str, tuple[str, ...]]:
        """All that a name may say of this layer, listed or not."""
        further = self.unlisted.get(layer, {})
        return {option: (*words, *further.get(option, ())) for option, words in self.choices[layer].items()}


def split_seed(name: str) -> tuple[str, int]:
    """`NAME@3` in two; without a number behind an @ all of it is the name, and the seed is 0."""
    base, at, seed = name.rpartition("@")
    return (base, int(seed)) if at and seed.isdecimal() else (name, 0)


def with_seed(name: str, seed: int) -> str:
    """The inverse of `split_seed`."""
    return f"{name}@{seed}" if seed else name


def spell(variant: Variant, default: Variant) -> str:
    """The name of a variant: what differs from its layer's default, in the fixed order."""
    named = variant.layer in variant.architecture.split("_")  # bcos_cnn9 does, convnext_tiny does not
    parts = [variant.architecture] if named else [variant.architecture, variant.layer]
    parts += [getattr(variant, word) for word in WORDS if getattr(variant, word) != getattr(default, word)]
    for letter, name in NUMBERS.items():
        value = getattr(variant, name)
        if value != getattr(default, name):
            parts.append(f"{letter}={value!r}".removesuffix(".0"))
    return "_".join(parts)


def variants(family: Family) -> list[tuple[str, Variant]]:
    """Every listed name of a family with its variant."""
    listed = [
        (spell(variant, default), variant)
        for architecture in family.input_sizes
        for layer, default in family.defaults.items()
        for variant in _combinations(replace(default, architecture=architecture), family, layer)
    ]
    hardened = [replace(variant, training="hardened") for name, variant in listed if name in family.hardened]
    return listed + [(spell(variant, family.defaults[variant.layer]), variant) for variant in hardened]


def _combinations(default: Variant, family: Family, layer: str) -> list[Variant]:
    words = {option: choices for option, choices in family.choices[layer].items() if option != "training"}
    numbers = {name: values for name, values in family.listed.items() if getattr(default, name) is not None}
    keys = [*words, *numbers]
    return [_with(default, zip(keys, chosen, strict=True)) for chosen in product(*words.values(), *numbers.values())]


def _with(variant: Variant, options: Iterable[tuple[str, Any]]) -> Variant:
    return replace(variant, **dict(options))


def parse(name: str, families: tuple[Family, ...]) -> tuple[Family, Variant] | None:
    """The family and variant that `name` spells, or None; a known network with an impossible option raises."""
    for family in families:
        for architecture in sorted(family.input_sizes, key=len, reverse=True):
            for layer, default in family.defaults.items():
                stem = spell(Variant(architecture, layer), Variant(architecture, layer))
                if name == stem or name.startswith(f"{stem}_"):
                    tokens = name[len(stem) + 1 :].split("_") if name != stem else []
                    start = replace(default, architecture=architecture)
                    return family, _read(name, tokens, start, family.words(layer))
    return None


def _read(name: str, tokens: list[str], variant: Variant, words: dict[str, tuple[str, ...]]) -> Variant:
    allowed = {word: option for option, choices in words.items() for word in choices}
    numeric = {letter: option for letter, option in NUMBERS.items() if _has_number(variant, option)}
    given: set[str] = set()
    option: str
    value: str | float
    for token in tokens:
        letter, equals, number = token.partition("=")
        if token in allowed:
            option, value = allowed[token], token
        elif equals and letter in numeric:
            option, value = numeric[letter], _number(name, token, number, *LIMITS[letter])
        else:
            known = ", ".join([*allowed, *(f"{letter}=…" for letter in numeric)]) or "none"
            raise InputError(f"unknown option {token!r} in model name {name!r}; options of this network: {known}")
        if option in given:
            raise InputError(f"model name {name!r} says its {option} twice; leave one out")
        given.add(option)
        variant = _with(variant, [(option, value)])
    return variant


def _has_number(variant: Variant, option: str) -> bool:
    return getattr(variant, option) is not None or variant.layer in OPTIONAL.get(option, ())


def _number(name: str, token: str, text: str, low: float, high: float) -> float:
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not low <= value <= high:
        raise InputError(f"expected a number from {low:g} to {high:g} in {token!r} of model name {name!r}")
    return value


assert {f.name for f in fields(Variant)} == {"architecture", "layer", *WORDS, *NUMBERS.values()}
