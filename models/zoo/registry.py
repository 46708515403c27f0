"""The zoo by name. Listing names imports no torch; building a model imports its family."""

from collections.abc import Callable
from fnmatch import fnmatchcase
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple, overload

from scs_eval.errors import InputError, did_you_mean
from scs_eval.models.zoo.catalogue import FAMILIES
from scs_eval.models.zoo.names import Family, Variant, parse, spell, split_seed, variants, with_seed
from scs_eval.plugins import Registry

if TYPE_CHECKING:
    from torch import nn

Builder = Callable[[int], "nn.Module"]  # num_classes -> a network that takes RGB in [0, 1]


class OwnModel(NamedTuple):
    """A network from outside: what builds it, the side of its images, and whether it comes with its weights."""

    build: Builder
    input_size: int
    trained: bool


OWN: Registry[OwnModel] = Registry("a model", group="scs_eval.models", register=f"{__name__}:register_model")
_LISTED: dict[str, tuple[Family, Variant]] = {}


def _add(name: str, family: Family, variant: Variant) -> None:
    if name in _LISTED:
        raise ValueError(f"two networks are called {name!r}")
    _LISTED[name] = family, variant


for _family in FAMILIES:
    for _name, _variant in variants(_family):
        _add(_name, _family, _variant)


@overload
def register_model(model: Builder, name: str = ..., *, input_size: int = ..., trained: bool = ...) -> Builder: ...
@overload
def register_model(
    model: str | None = ..., *, name: str = ..., input_size: int = ..., trained: bool = ...
) -> Callable[[Builder], Builder]: ...
def register_model(model: Any = None, name: str = "", *, input_size: int = 32, trained: bool = False) -> Any:
    """Add a network of one's own to the zoo, by the function of the number of classes that builds it.

    The network takes RGB in [0, 1] of input_size × input_size pixels. trained: the function loads the weights itself,
    so that the name needs no file of them. A name that exists raises.

    >>> import scs_eval
    >>> from torch import nn
    >>> @scs_eval.register_model("tiny_linear", input_size=8)
    ... def tiny_linear(num_classes):
    ...     return nn.Sequential(nn.Flatten(), nn.Linear(3 * 8 * 8, num_classes))
    >>> scs_eval.create_model("tiny_linear")[1]
    Linear(in_features=192, out_features=10, bias=True)
    """
    if model is None or isinstance(model, str):
        return lambda build: register_model(build, model or name, input_size=input_size, trained=trained)
    called = name or model.__name__
    if resolve(called, missing_ok=True) is not None:
        raise InputError(f"there is a model {called!r} already; choose another name")
    OWN.add(called, OwnModel(model, input_size, trained), origin=model)
    return model


def list_models(pattern: str = "*") -> list[str]:
    """Names that match a shell-style pattern (`rohrer*`), in the order of the catalogue.

    >>> import scs_eval
    >>> scs_eval.list_models("rohrer25k_cos*")
    ['rohrer25k_cos_relu_maxpool', 'rohrer25k_cos_relu', 'rohrer25k_cos_maxpool', 'rohrer25k_cos']
    """
    return [name for name in (*_LISTED, *OWN) if fnmatchcase(name, pattern)]


def resolve(name: str, *, missing_ok: bool = False) -> tuple[Family, Variant] | None:
    """What a name spells, whatever its seed; an unknown one raises and suggests the nearest."""
    name, _ = split_seed(name)
    resolved = _LISTED.get(name) or parse(name, FAMILIES)
    if resolved is None and not missing_ok:
        hint = did_you_mean(name, list_models(), otherwise="list them with `scs-eval models`")
        raise InputError(f"unknown model {name!r}; {hint}")
    return resolved


def canonical_name(name: str) -> str:
    """The one spelling of a model's name, without options that are its defaults and without @0."""
    network, seed = split_seed(name)
    if network in OWN:
        return with_seed(network, seed)
    resolved = resolve(network)
    assert resolved is not None
    family, variant = resolved
    return with_seed(spell(variant, family.defaults[variant.layer]), seed)


def input_size(name: str) -> int:
    """Height and width of the images the model is made for."""
    name, _ = split_seed(name)
    if name in OWN:
        return OWN[name].input_size
    resolved = resolve(name)
    assert resolved is not None
    family, variant = resolved
    return family.input_sizes[variant.architecture]


def default_classes(name: str) -> int:
    """How many classes a network has by default: 1000 for those made for ImageNet, 10 for all others."""
    resolved = None if split_seed(name)[0] in OWN else resolve(name)
    return resolved[0].num_classes if resolved else 10


def create_model(name: str, *, num_classes: int | None = None, seed: int | None = None) -> "nn.Module":
    """An untrained network, in training mode. Same seed, same weights, throughout the variants of an architecture.

    Without a number of classes it has its `default_classes`; without a seed, that of the name (`NAME@3`), else 0. The
    random state of the caller is left as it was.

    >>> import scs_eval
    >>> sum(parameter.numel() for parameter in scs_eval.create_model("rohrer25k_scs").parameters())
    24974
    """
    import torch

    name, named_seed = split_seed(name)
    seed = named_seed if seed is None else seed

    num_classes = default_classes(name) if num_classes is None else num_classes
    if num_classes < 2:
        raise InputError(f"expected at least 2 classes, got {num_classes}")
    resolved = None if name in OWN else resolve(name)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        if resolved is None:
            return OWN[name].build(num_classes)
        family, variant = resolved
        module, function = family.builder.split(":")
        build: Callable[[Variant, int], nn.Module] = getattr(import_module(module), function)
        return build(variant, num_classes)
