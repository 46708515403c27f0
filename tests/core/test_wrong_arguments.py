"""Every analysis of the catalogue refuses every bad value of every plain option, in one line that names the option.

What is bad follows from the annotation of the argument, or of the field of its options; an annotation that is not
known here fails. So a new analysis is covered by being listed; one that asks for more than a model and images needs a
line in `ALSO`.
"""

import ast
import dataclasses
import inspect
import math
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path
from types import NoneType
from typing import Any, Literal, get_args, get_origin, get_type_hints

import pytest
from torch import nn

import scs_eval
from scs_eval import InputError
from scs_eval.analyses.catalogue import ENTRIES, Analysis
from scs_eval.analyses.core.cache import ResultCache
from scs_eval.analyses.study.plan import parse_plan

NAN, INFINITY = math.nan, math.inf
NOT_TEXT = [-1, 0, 1.5, NAN, [], True]
NO_LIST = ["x", 5, NAN, True]
BAD: dict[str, list[Any]] = {  # annotation → values that nothing so annotated can have
    "int": [-1, 0, 1.5, "x", None, NAN, True],
    "int | None": [-1, 0, 1.5, "x", NAN, True],
    "float": [-1.0, 0.0, "x", None, NAN, INFINITY, True],
    "float | None": [-1.0, 0.0, "x", NAN, INFINITY, True],
    "bool": [-1, 1.5, "x", None, NAN],
    "str": [*NOT_TEXT, None],
    "str | None": NOT_TEXT,
    "str | int": [-1, 1.5, None, NAN, "nobody"],
    "Path | None": [5, NAN, True],
    "str | Path | None": [5, NAN, True],
    "Card | None": ["x", 5, NAN, True],
    "Sequence[str]": [*NO_LIST, None, [5], [None]],
    "Sequence[str] | None": [*NO_LIST, [5], [None]],
    "Sequence[str | Path]": [*NO_LIST, None, [5], [None]],
    "tuple[str, ...]": [*NO_LIST, None, [5], [None]],
    "Sequence[float]": [*NO_LIST, None, ["x"], [NAN], [-0.1], [None]],
    "tuple[float, ...]": [*NO_LIST, None, ["x"], [NAN], [-0.1], [0.0], [None]],
    "Sequence[int]": [*NO_LIST, None, ["x"], [NAN], [1.5], [-1], [True]],
    "ArrayLike | None": ["x", 5, NAN, [0.5], [1, 2], [None]],
    "Tensor | None": ["x", 5, NAN, [0.5], [1, 2]],
    "MethodLike": [5, NAN, None, "x"],
    "MethodLike | None": [5, NAN, "x"],
    "Sequence[MethodLike] | None": [5, NAN, [5], [None]],
    "MethodLike | Sequence[MethodLike]": [5, NAN, None, [5], [None]],
    "Sequence[MetricLike]": [5, NAN, None, [5], [None]],
    "Sequence[AttackLike]": [5, NAN, None, [5], [None], [], "x"],
    "Mapping[str, int] | None": [5, "x", NAN, {"accuracy": 0}, {"accuracy": 1.5}, {"accuracy": None}, {"x": 1}],
}
# Models, images and what belongs to them, results and functions: no plain options. Their rooms test what they refuse.
OBJECTS = re.compile(
    r"(Mapping\[str, )?(ModelLike|nn\.Module( \| str)?|ImagesLike|LabelledImages|Mosaics|Known|Source|ResultCache|Plan"
    r"|PartInputs|Progress|Advance|AfterPiece|Callable|str\]|tuple\[|\w+Options)"
)
ZERO_IS_MEANT = {
    *((entry, "seed") for entry in ENTRIES), ("saliency", "samples"), ("pgd", "shown"), ("pgd", "kept"),
    ("neurons", "directions"), ("detect", "noise"),
}  # fmt: skip
# Messages name some things as the field does, or by what is in the list.
ALSO_CALLED = {"method": "method", "methods": "methods?", "metrics": "metrics?", "attacks": "attacks?", "eps": "eps|ε"}
ALSO_CALLED |= {"classes": "classes|class name", "analyses": "analyses|analysis", "names": "names|corruption"}
ALSO_CALLED |= {"target": "target|class"}

MODEL = nn.Sequential(nn.Flatten(), nn.Linear(3 * 32 * 32, 10)).eval()
PLAN = 'title = "t"\n[[part]]\nname = "p"\nmodels = ["rohrer25k_scs"]\nsizes = { accuracy = 2 }\n'


def base_call(entry: Analysis, folder: Path) -> dict[str, Any]:
    """Arguments that the analysis can work with."""
    if entry.name == "study":
        return {
            "plan": parse_plan(PLAN, name="p"),
            "text": PLAN,
            "inputs": {},
            "eps": [0.1],
            "store": ResultCache(folder),
        }
    if entry.name == "dynamics":
        return {"directories": [folder]}
    data = scs_eval.load_data("sample", n=20)
    if entry.name == "compare":
        return {"models": {"m": MODEL}, "images": data, "analyses": ["accuracy"]}
    also = {"neurons": {"layer": "1", "channels": [0]}, "pgd": {"eps": [0.1]}, "scorecard": {"eps": 0.1}}
    given = {"data": data} if entry.name == "localisation" else {"images": data}
    return {"model": MODEL, **given, **also.get(entry.name, {})}


def annotations(function: Any) -> dict[str, str]:
    """Arguments and their annotations as they are written."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(function))).body[0]
    assert isinstance(tree, ast.FunctionDef)
    written = [*tree.args.args, *tree.args.kwonlyargs]
    return {arg.arg: ast.unparse(arg.annotation).strip("'\"") for arg in written if arg.annotation is not None}


def bad_values(hint: Any) -> list[Any]:
    """Of a field of options."""
    parts = get_args(hint)
    choices = [choice for part in (hint, *parts) if get_origin(part) is Literal for choice in get_args(part)]
    if choices:
        missing = [] if NoneType in parts else [None]
        return [value for value in (-1, 0, 1.5, "x", NAN, True, *missing) if value not in choices]
    name = hint.__name__ if isinstance(hint, type) and not parts else str(hint).replace("pathlib.", "")
    return [] if "tuple[str, typing.Any]" in name or "Callable" in name else BAD[name]


def options_of(function: Any, wanted: str) -> type | None:
    name = wanted.removesuffix(" | None")
    return getattr(inspect.getmodule(function), name, None) if name.endswith("Options") else None


def cases() -> Iterator[Any]:
    """Every analysis, option and bad value."""
    for entry in ENTRIES.known().values():
        if not entry.function:
            continue
        function = getattr(scs_eval, entry.function)
        for name, wanted in annotations(inspect.unwrap(function)).items():
            options = options_of(function, wanted)
            if options is not None:
                hints = get_type_hints(options)
                found = [(f.name, options, bad_values(hints[f.name])) for f in dataclasses.fields(options)]
            else:
                assert wanted in BAD or OBJECTS.match(wanted), f"{entry.name}: what is a bad {name}: {wanted}?"
                found = [(name, None, [] if OBJECTS.match(wanted) else BAD[wanted])]
            for option, kind, values in found:
                for value in values:
                    if not ((entry.name, option) in ZERO_IS_MEANT and isinstance(value, int | float) and value == 0):
                        yield pytest.param(entry, option, kind, value, id=f"{entry.name}-{option}-{value!r}")


@pytest.mark.parametrize(("entry", "option", "kind", "value"), list(cases()))
def test_a_bad_value_is_refused_in_a_line_that_names_the_option(
    entry: Analysis, option: str, kind: type | None, value: Any, tmp_path: Path
) -> None:
    function, call = getattr(scs_eval, entry.function), base_call(entry, tmp_path)
    with pytest.raises(InputError) as caught:
        function(**(call | ({option: value} if kind is None else {"options": kind(**{option: value})})))
    message = str(caught.value)
    assert re.search(rf"(?<!\w)({ALSO_CALLED.get(option, re.escape(option))})(?!\w)", message), message
    assert "\n" not in message
