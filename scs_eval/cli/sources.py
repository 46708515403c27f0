"""Which models a command works on: names, patterns, files, torchvision, factories, each with a label if given one."""

from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar

import click

from scs_eval.cli.model_names import MODEL
from scs_eval.errors import InputError

if TYPE_CHECKING:
    from torch import nn

    from scs_eval.models.checkpoints import Loaded

Function = TypeVar("Function", bound=Callable[..., Any])
OPTIONS = {
    "arch": "What a file holds that does not say so: a zoo name, torchvision:NAME or module:factory.",
    "weights": "File of weights for a zoo name, torchvision:NAME or module:factory; none leaves it untrained.",
    "normalize": "Put a foreign model's normalisation inside: imagenet, cifar10, mean,std or six numbers.",
}
TORCHVISION_SIZE = 224


class ModelLabel(str):
    """What a model is called in figures and tables; it remembers the source it was asked for by."""

    source: str

    def __new__(cls, label: str, source: str) -> "ModelLabel":
        """A string with one more thing to know about it."""
        made = super().__new__(cls, label)
        made.source = source
        return made


def model_option(**options: Any) -> Callable[[Function], Function]:
    """Add --model, repeatable, and `source_options`; the command receives models."""
    text = "Name, pattern, file, torchvision:NAME or module:factory; repeatable."
    option = click.option("--model", "models", type=MODEL, multiple=True, help=text, **options)
    return lambda function: option(source_options(function))


def source_options(function: Function) -> Function:
    """Add --arch, --weights and --normalize, which `load_all` finds by itself."""
    for name, text in reversed(OPTIONS.items()):
        option = click.option(f"--{name}", help=text, expose_value=False, callback=remember)
        function = option(function)
    return function


def remember(context: click.Context, parameter: click.Parameter, value: Any) -> None:
    """For options that not the command itself asks about: keep the value where `said` finds it."""
    context.meta[f"scs_eval.{parameter.name}"] = value


def said(name: str) -> Any:
    """The value of such an option in this call, or what was kept under that name; None outside of a command."""
    context = click.get_current_context(silent=True)
    return context.meta.get(f"scs_eval.{name}") if context else None


class Asked(TypedDict):
    """How a model is to be loaded."""

    arch: str | None
    weights: str | None
    normalize: str | None


def asked_for() -> Asked:
    """The values of --arch, --weights and --normalize in this call."""
    arch, weights, normalize = (said(name) for name in OPTIONS)
    return Asked(arch=arch, weights=weights, normalize=normalize)


def choose_models(asked: Sequence[str]) -> list[str]:
    """What was asked for, each once: names and files as they are, patterns as the trained models that match.

    Nothing means all trained models. `LABEL=SOURCE` is known by its label.
    """
    chosen = [label for each in asked or "*" for label in _expanded(each)]
    sources: dict[str, str] = {}
    for label in chosen:
        if sources.setdefault(label, label.source) != label.source:
            raise InputError(f"two models are called {str(label)!r}; label them as A={label.source}")
    return [ModelLabel(label, source) for label, source in sources.items()]


def _expanded(text: str) -> list[ModelLabel]:
    label, source = split_label(text)
    if not any(sign in source for sign in "*?[") or Path(source).exists():
        name = _canonical(source)
        return [ModelLabel(label or (f"{name} (untrained)" if said("weights") == "none" else name), name)]
    if label:
        raise InputError(f"expected one model for the label {label!r}, got the pattern {source!r}")
    return [ModelLabel(name, name) for name in _matching(source)]


def split_label(text: str) -> tuple[str | None, str]:
    """`LABEL=SOURCE` in two; a zoo name (`…_b=1.5`) or a file with an equals sign in it stays whole."""
    label, equals, source = text.partition("=")
    if not equals or not label or not source or Path(text).exists() or _is_zoo(text):
        return None, text
    return label, source


def _is_zoo(name: str) -> bool:
    from scs_eval.models.registry import list_models, resolve

    try:
        return name in list_models() or resolve(name, missing_ok=True) is not None
    except InputError:  # a network of the zoo with an option it does not have: the loader says so
        return True


def _canonical(name: str) -> str:
    """A zoo name in its one spelling; anything else as it is."""
    from scs_eval.models.registry import canonical_name

    try:
        return canonical_name(name)
    except InputError:
        return name


def _matching(pattern: str) -> list[str]:
    found = [name for name in trained_models() if fnmatchcase(name, pattern)]
    if not found:
        raise InputError(f"no trained model matches {pattern!r}; `scs-eval models` shows which are trained")
    return found


def trained_models() -> list[str]:
    """Names of the models that weights are shipped for, in the order of the zoo."""
    from scs_eval.models.checkpoints import weights_index
    from scs_eval.models.registry import list_models

    index = weights_index()
    listed = [name for name in list_models() if name in index]
    return listed + [name for name in index if name not in listed]


def source_of(name: str) -> str:
    """What a label stands for; a plain name for itself."""
    return name.source if isinstance(name, ModelLabel) else name


def load_all(names: Sequence[str]) -> "dict[str, nn.Module]":
    """The models by label, loaded as --arch, --weights and --normalize say; what was done to a file goes to stderr."""
    options = _shared_out([source_of(name) for name in names])
    return {name: _load(name, options[source_of(name)]).model for name in names}


def _shared_out(sources: Sequence[str]) -> dict[str, Asked]:
    """--arch, --weights and --normalize for each source, if they are for it."""
    from scs_eval.cli.takers import takers_of_arch, takers_of_normalize, takers_of_weights

    arch, weights, normalize = asked_for().values()
    named = takers_of_arch(sources) if arch else set()
    filled = takers_of_weights(sources, str(weights)) if weights else set()
    foreign = takers_of_normalize(sources, filled) if normalize else set()

    def of(source: str) -> Asked:
        chosen = zip((arch, weights, normalize), (named, filled, foreign), strict=True)
        values = (value if source in takers else None for value, takers in chosen)
        return Asked(**dict(zip(OPTIONS, values, strict=True)))  # type: ignore[typeddict-item]

    return {source: of(source) for source in sources}


def _load(name: str, options: Asked) -> "Loaded":
    from scs_eval.models.checkpoints import open_source

    loaded = open_source(source_of(name), **options, num_classes=_classes_of_data())
    if context := click.get_current_context(silent=True):
        context.meta.setdefault("scs_eval.loaded", {})[source_of(name)] = loaded
    if loaded.notes:
        click.echo(f"{name}: {'; '.join(loaded.notes)}", err=True)
    return loaded


def _classes_of_data() -> int | None:
    """As many classes an untrained network gets; None where the command has no images or the network is trained."""
    context = click.get_current_context(silent=True)
    if context is None or "data" not in context.params or said("weights") != "none":
        return None
    from scs_eval.data.load import count_classes

    return count_classes(context.params["data"])


def classes_of_models() -> int | None:
    """How many classes the loaded models tell apart, if that is known and the same for all."""
    from scs_eval.models.outputs import count_outputs

    loaded: dict[str, Loaded] = said("loaded") or {}
    counts = {each.num_classes or count_outputs(each.model) for each in loaded.values()}
    return counts.pop() if len(counts) == 1 else None


def input_size_of(name: str) -> int | None:
    """The size a model was made for, if that is known; None takes the images as they are."""
    from scs_eval.models.registry import input_size

    architecture = architecture_of(name).partition(" as ")[0]  # what a converted network was
    if architecture.startswith("torchvision:"):
        return TORCHVISION_SIZE
    try:
        return input_size(architecture)
    except InputError:
        return None


def architecture_of(name: str) -> str:
    """What a file was found to hold, says it holds, or is said to hold; any other source itself."""
    from scs_eval.models.checkpoints import is_file

    source = source_of(name)
    if source in (loaded := said("loaded") or {}):
        return str(loaded[source].architecture)
    if not is_file(source):
        return source
    if arch := asked_for()["arch"]:
        return arch
    from scs_eval.models.state_files import metadata_of

    return metadata_of(Path(source)).get("name", "")
