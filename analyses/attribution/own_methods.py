"""Methods from outside: functions of (model, images, targets) and classes of captum.attr, registered or passed on."""

import inspect
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, overload

from scs_eval.analyses.attribution.methods import CAPTUM, METHODS, PASSED, MapOptions, Method, find_method
from scs_eval.errors import InputError, several
from scs_eval.own_functions import (
    NOT_SAID,
    check_traits,
    describe_function,
    register_function,
    renamed,
    trait_names,
)

if TYPE_CHECKING:
    from torch import Tensor, nn

MapFunction = Callable[..., "Tensor"]  # (model, images (N, 3, H, W), targets (N,)) -> (N, 3, H, W) or (N, H, W)
MethodLike = str | Method | MapFunction
TRAITS = trait_names(Method, "rule", "own")


@overload
def register_method(method: Method, name: str = ...) -> Method: ...
@overload
def register_method(method: MapFunction, name: str = ..., **traits: Any) -> MapFunction: ...
@overload
def register_method(method: str | None = ..., **traits: Any) -> Callable[[MapFunction], MapFunction]: ...
def register_method(method: Any = None, name: str = "", **traits: Any) -> Any:
    """Make an attribution method known to every analysis, to `scs-eval methods` and to the explorer.

    A function gets the model, images (N, 3, H, W) and targets (N,), the class of each, and gives (N, 3, H, W), or
    (N, H, W) for whole pixels; if it has an argument `seed`, it is told that too. traits: fields of `Method` (label,
    source, measures, fails, passes, quantity, resolution, class_specific, needs …); the first line of its docstring is
    what it measures. A name that is taken raises; a wrong shape or a NaN is reported with the method's name.

    >>> import torch, scs_eval
    >>> @scs_eval.register_method("signed-input", source="an example", passes=0)
    ... def signed_input(model, images, targets):
    ...     'The image around grey.'
    ...     return images - 0.5
    >>> model, data = scs_eval.load_model("rohrer25k_scs"), scs_eval.load_data("sample", n=4)
    >>> maps = scs_eval.attribute(model, data.images, data.labels, method="signed-input")
    >>> torch.equal(maps, data.images - 0.5)
    True
    """
    return register_function(METHODS, as_method, method, name, traits)


def method_name(method: MethodLike) -> str:
    """The name by which a method is known from now on: of a function or class that was passed, its own."""
    if isinstance(method, str):
        return find_method(method).name
    for known in METHODS.values():
        if known is method or (isinstance(known.function, PlainFunction) and known.function.function is method):
            return known.name
    record = method if isinstance(method, Method) else as_method(method)
    if record.name in METHODS:
        raise InputError(f"there is a method {record.name!r} already; rename the function that was passed")
    PASSED[record.name] = record
    return record.name


def as_method_names(methods: MethodLike | Sequence[MethodLike]) -> tuple[str, ...]:
    """The names of one method or several, each once."""
    asked = (methods,) if isinstance(methods, str | Method) or callable(methods) else methods
    names = tuple(dict.fromkeys(map(method_name, several(methods=asked))))
    if not names:
        raise InputError("expected a method, got none")
    return names


def as_method(function: Any, name: str = "", **traits: Any) -> Method:
    """The record of a plain function or a class of captum.attr; a record as it is."""
    if isinstance(function, Method):
        return renamed(function, name, own=True)
    check_traits(traits, TRAITS, noun="a method")
    if inspect.isclass(function) and function.__module__.startswith("captum."):
        from scs_eval.analyses.attribution.captum_methods import method_of

        known = method_of(function)
        return replace(known, name=name or f"{CAPTUM}{function.__name__}", **traits)
    expected = "a method by name, a function of (model, images, targets) or a class of captum.attr"
    described = describe_function(function, name, expected=expected)
    plain = PlainFunction(described.name, function)
    known = Method(
        name=described.name, label=described.name, source=described.source, function=plain,
        measures=described.text, fails=NOT_SAID, reads=("seed",) if plain.takes_seed else (), shares_passes=False,
        own=True,
    )  # fmt: skip
    return replace(known, **traits)


class PlainFunction:
    """A function of one class each, (model, images, targets), as the analyses call methods: of K classes each."""

    def __init__(self, name: str, function: MapFunction) -> None:
        self.name, self.function = name, function
        self.takes_seed = "seed" in _parameters(function)

    def __call__(self, model: "nn.Module", images: "Tensor", targets: "Tensor", options: MapOptions) -> "Tensor":
        """(N, K, C, H, W)."""
        import torch

        seed = {"seed": options.seed} if self.takes_seed else {}
        maps = []
        for classes in targets.unbind(1):
            torch.manual_seed(options.seed)  # put back by `evaluating`; no map depends on the maps before it
            maps.append(as_maps(self.function(model, images.clone(), classes, **seed), images, name=self.name))
        return torch.stack(maps, 1)


def as_maps(maps: object, images: "Tensor", *, name: str) -> "Tensor":
    """What a function gave, as (N, C, H, W); anything but a map for each image raises with the function's name."""
    from torch import Tensor

    if not isinstance(maps, Tensor):
        raise InputError(f"the method {name!r} gave {type(maps).__name__}, expected a tensor {tuple(images.shape)}")
    n, _, height, width = images.shape
    if maps.shape not in (images.shape, (n, height, width), (n, 1, height, width)):
        wanted = f"{tuple(images.shape)} or {(n, height, width)}"
        raise InputError(f"the method {name!r} gave shape {tuple(maps.shape)}, expected {wanted}")
    return maps.detach().to(images).view(n, -1, height, width).expand_as(images)


def _parameters(function: Callable[..., Any]) -> tuple[str, ...]:
    try:
        return tuple(inspect.signature(function).parameters)
    except (TypeError, ValueError):  # of some built-in functions
        return ()
