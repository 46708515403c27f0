"""What is typed: click types, and options that are made from the fields of a dataclass. No torch here."""

import csv
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields
from functools import wraps
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import click
from click.shell_completion import CompletionItem

from scs_eval.errors import InputError, shortened
from scs_eval.ranges import parse_number, parse_range

Function = TypeVar("Function", bound=Callable[..., Any])
DATA_NAMES = ("sample", "cifar10", "cifar100", "mnist", "fashion-mnist")
CHEAP_N, COSTLY_N = 100, 20  # images that maps are measured on, by what the method costs
LARGEST = 2**63 - 1  # of a whole number: what every library takes as a seed or a count


class ModelName(click.ParamType):  # type: ignore[type-arg,unused-ignore]  # generic only in newer click
    """The name of a zoo model, or a shell-style pattern of names."""

    name = "model"

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Names that start with what was typed."""
        from scs_eval.models.zoo.registry import list_models

        return [CompletionItem(name) for name in list_models() if name.startswith(incomplete)]


class Whole(click.ParamType):  # type: ignore[type-arg,unused-ignore]
    """A whole number in ASCII digits, of at most 64 bits: what looks like a digit elsewhere is no digit here."""

    name = "integer"

    def __init__(self, least: int | None = None) -> None:
        self.least = least

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """The number, if it is one and not too small."""
        number = value if isinstance(value, int) else self._parse(str(value), param)
        if self.least is not None and number < self.least:
            raise InputError(f"expected {_flag(param)} of at least {self.least}, got {number}")
        return number

    def _parse(self, text: str, param: click.Parameter | None) -> int:
        if re.fullmatch(r"[+-]?[0-9]{1,19}", text.strip()) and abs(int(text)) <= LARGEST:
            return int(text)
        raise InputError(f"expected {_flag(param)} as a whole number of at most 64 bits, got {shortened(text)}")


class Number(click.ParamType):  # type: ignore[type-arg,unused-ignore]
    """A finite number or a fraction such as 8/255."""

    name = "number"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """The number."""
        if isinstance(value, int | float) and math.isfinite(value):
            return float(value)
        try:
            return parse_number(str(value))
        except InputError:
            raise InputError(f"expected {_flag(param)} as a finite number, got {shortened(str(value))}") from None


class Indices(click.ParamType):  # type: ignore[type-arg,unused-ignore]
    """Whole numbers between commas, or a file of them: a line each, or a table with a column `index`."""

    name = "I,J,…|FILE"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, ...]:
        """The numbers in the order they were given, each once."""
        if isinstance(value, tuple):
            return value
        text = str(value)
        try:
            words = read_numbers(Path(text)) if is_there(text) else text.split(",")
            return tuple(dict.fromkeys(Whole().convert(part, param, ctx) for part in words))
        except InputError:
            raise InputError(
                f"expected {_flag(param)} as whole numbers such as 3,10 or a file of them, got {shortened(text)}"
            ) from None


def is_there(text: str) -> bool:
    """Whether the text is the path of a file."""
    try:
        return Path(text).is_file()
    except (OSError, ValueError):  # a name that no file can have
        return False


def read_numbers(path: Path) -> list[str]:
    """The words of a file of numbers; of a table with a heading `index`, that column."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"expected a text file of whole numbers, got {path} ({type(error).__name__})") from error
    heading = lines[0].split(",") if lines else []
    if "index" in heading:
        return [row["index"] or "" for row in csv.DictReader(lines)]
    return [word for line in lines for word in line.replace(",", " ").split()]


class OneOf(click.Choice):  # type: ignore[type-arg,unused-ignore]
    """One of the values of a Literal, which need not be text."""

    def __init__(self, values: Sequence[Any]) -> None:
        super().__init__([str(value) for value in values])
        self.values = {str(value): value for value in values}

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The value itself."""
        return self.values[super().convert(str(value), param, ctx)]


@dataclass(frozen=True)
class Radii:
    """Values of ε, rising, each once, and how they were typed."""

    text: str
    values: tuple[float, ...]


class Eps(click.ParamType):  # type: ignore[type-arg,unused-ignore]
    """Values of ε as `scs_eval.ranges` reads them; at least one must be above 0 and none below."""

    name = "range"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Radii:
        """The values."""
        if isinstance(value, Radii):
            return value
        values = tuple(sorted(set(parse_range(value))))
        if values[0] < 0:
            raise InputError(f"expected {_flag(param)} of at least 0, got {values[0]:g} in {shortened(value)}")
        if values[-1] == 0:
            raise InputError(f"expected an {_flag(param)} above 0; clean accuracy is in every curve")
        return Radii(value, values)


def _flag(param: click.Parameter | None) -> str:
    return "it" if param is None else param.opts[0]


MODEL, COUNT, SEED, NUMBER, INDICES, EPS = ModelName(), Whole(1), Whole(0), Number(), Indices(), Eps()
PATH = click.Path(path_type=Path)


def options_from(
    config: type,
    *,
    into: str,
    flags: Mapping[str, str] | None = None,
    helps: Mapping[str, str] | None = None,
    without: Sequence[str] = (),
    only_given: bool = False,
) -> Callable[[Function], Function]:
    """An option for every annotated field of a dataclass; the command gets an instance of it as `into`.

    A field says `Annotated[type, "help"]`, and may add a mapping of further arguments of `click.option`.
    flags, helps: where a command calls a field otherwise. only_given: the command gets a mapping of what was typed.
    """
    hints = {name: hint for name, hint in get_type_hints(config, include_extras=True).items() if name not in without}
    annotated = {name: get_args(hint) for name, hint in hints.items() if get_origin(hint) is Annotated}
    defaults = {item.name: None if item.default is MISSING else item.default for item in fields(config)}

    def decorate(function: Function) -> Function:
        @wraps(function)
        def wrapper(*arguments: Any, **options: Any) -> Any:
            values = {name: options.pop(name) for name in annotated}
            given = {name: value for name, value in values.items() if value is not None}
            return function(*arguments, **{into: given if only_given else config(**values)}, **options)

        for name, (kind, text, *more) in reversed(annotated.items()):
            flag = (flags or {}).get(name, f"--{name.replace('_', '-')}")
            default = None if only_given else defaults[name]
            text = (helps or {}).get(name, text)
            wrapper = _option(
                name, kind, {"flag": flag, "default": default, "help": text, **(more[0] if more else {})}
            )(wrapper)
        return wrapper  # type: ignore[return-value]

    return decorate


def _option(name: str, kind: Any, settings: dict[str, Any]) -> Callable[[Function], Function]:
    """settings: `flag`, perhaps a second one as `also`, and arguments of `click.option`."""
    flag, also, default = settings.pop("flag"), settings.pop("also", None), settings["default"]
    if kind is bool:
        flag = flag if default is False else f"{flag}/--no-{flag.removeprefix('--')}"
        settings = {"is_flag": True, **settings}
    else:
        settings = {"type": click_type(kind), "multiple": _is_tuple(kind) and "type" not in settings, **settings}
    shown = default not in (None, False, ())
    return click.option(*filter(None, (flag, also)), name, **{"show_default": shown, **settings})


def _is_tuple(kind: Any) -> bool:
    return get_origin(kind) is tuple


def click_type(kind: Any) -> Any:
    """The click type of an annotation: of `int | None` that of int, of a tuple that of its members."""
    if get_origin(kind) is Literal:
        return OneOf(get_args(kind))
    plain = get_args(kind)[0] if get_origin(kind) in (Union, UnionType, tuple) else kind
    if get_origin(plain) is Literal:
        return OneOf(get_args(plain))
    return {int: Whole(), float: NUMBER, Path: PATH, tuple[int, ...]: INDICES}.get(plain, plain)


def one_model(*, required: bool = True) -> Callable[[Function], Function]:
    """MODEL or --model MODEL, for commands that work on one; the command gets `model`."""

    def decorate(function: Function) -> Function:
        @wraps(function)
        def wrapper(*arguments: Any, bare: str | None, model: str | None, **options: Any) -> Any:
            if bare is not None and model is not None:
                raise click.UsageError(f"Expected one model, got {bare} and --model {model}.")
            if required and bare is None and model is None:
                raise click.UsageError("Missing argument 'MODEL'.")
            return function(*arguments, model=bare or model, **options)

        wrapper = click.option("--model", type=MODEL, metavar="MODEL", help="The same as MODEL.")(wrapper)
        return click.argument("bare", type=MODEL, required=False, metavar="MODEL")(wrapper)  # type: ignore[return-value]

    return decorate


def source_options(function: Function) -> Function:
    """Add --arch, --weights and --normalize: how models are loaded that do not say so themselves."""
    for flag, text in (
        ("--normalize", "Put a foreign model's normalisation inside: imagenet, cifar10, mean,std or six numbers."),
        ("--weights", "File of weights for a zoo name, torchvision:NAME or module:factory; none leaves it untrained."),
        ("--arch", "What a file holds that does not say so: a zoo name, torchvision:NAME or module:factory."),
    ):
        function = click.option(flag, help=text)(function)
    return function


def log_option(what: str) -> Callable[[Function], Function]:
    """Add --log; the command gets `log`."""
    return click.option("--log", type=click.Choice(["tensorboard"]), help=f"Also write events: {what}.")


def training_options(function: Function) -> Function:
    """Add `--recipe` and an option for every field of Job and Recipe; the command gets what was typed of either."""
    from scs_eval.training.job import Job
    from scs_eval.training.recipe import RECIPES, Recipe

    about = "Named set of the numbers below.  [default: the paper's: bcos-cifar for B-cos models, scs-resnet, else scs]"
    function = options_from(Job, into="settings", only_given=True)(function)
    function = options_from(Recipe, into="overrides", only_given=True)(function)
    return click.option("--recipe", "recipe_name", type=click.Choice(list(RECIPES)), help=about)(function)


def complete_source(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete the names of data sources, then folders."""
    names = [CompletionItem(name) for name in DATA_NAMES if name.startswith(incomplete)]
    return names or [CompletionItem(incomplete, type="dir")]


def choose_methods(asked: Sequence[str]) -> tuple[str, ...]:
    """Each attribution method once, `all` for every one; an unknown one raises."""
    from scs_eval.analyses.attribution.methods import METHODS, find_method

    chosen = tuple(dict.fromkeys(name for text in asked for name in (METHODS if text == "all" else [text])))
    for name in chosen:
        find_method(name)
    return chosen


def images_for(method: str) -> int:
    """How many images a method is measured on unless -n says."""
    from scs_eval.analyses.attribution.methods import find_method

    return CHEAP_N if find_method(method).cheap else COSTLY_N
