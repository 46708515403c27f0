"""Results as files: `result.json` says what a result is, `arrays.npz` (without pickle) holds its arrays.

A result is stored by its kind, which names its analysis and no module: files outlive the layout of the code. A field
is stored as what it is: an array, a result (or a tuple or mapping of results), or a JSON value. The schema is
described in docs/results.md.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import fields
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zipfile import BadZipFile

import numpy as np

from scs_eval.analyses.catalogue import ENTRIES
from scs_eval.analyses.core.legacy import upgrade
from scs_eval.errors import InputError
from scs_eval.files import newest, write_text

if TYPE_CHECKING:
    from scs_eval.analyses.core.result import Result

ARRAYS = "arrays.npz"
DESCRIPTION = "result.json"
SCHEMA = 2
KINDS: "dict[str, type[Result]]" = {}  # filled as result classes are defined


def save_result(result: "Result", directory: str | Path) -> None:
    """Write arrays.npz and result.json into a directory, which is made if need be."""
    text, arrays = _text_and_arrays(result)
    Path(directory).mkdir(parents=True, exist_ok=True)
    np.savez_compressed(Path(directory) / ARRAYS, allow_pickle=False, **arrays)
    write_text(Path(directory) / DESCRIPTION, text + "\n")


def load_result(directory: str | Path) -> "Result":
    """The result that was saved in a directory.

    >>> import scs_eval, tempfile
    >>> folder = tempfile.mkdtemp()
    >>> scs_eval.accuracy("rohrer25k_scs", scs_eval.load_data("sample", n=10), label="scs").save(folder)
    >>> scs_eval.load_result(folder)
    <AccuracyResult 'scs'>
    """
    try:
        description = json.loads(newest(Path(directory), DESCRIPTION).read_text(encoding="utf-8"))
        with np.load(newest(Path(directory), ARRAYS), allow_pickle=False) as stored:
            arrays = dict(stored)
        return _restore(*upgrade(_known_schema(description), arrays))
    except FileNotFoundError as error:
        raise InputError(f"no result in {directory}: {Path(error.filename).name} is missing") from error
    except (OSError, ValueError, KeyError, TypeError, AttributeError, ImportError, BadZipFile) as error:
        raise InputError(f"the result in {directory} is damaged: {type(error).__name__}: {error}") from error


def pack(result: "Result") -> dict[str, np.ndarray]:
    """A result as arrays alone, its description among them."""
    text, arrays = _text_and_arrays(result)
    return {**arrays, DESCRIPTION: np.array(text)}


def unpack(packed: Mapping[str, np.ndarray]) -> "Result":
    """The result that was packed."""
    return _restore(*upgrade(_known_schema(json.loads(str(packed[DESCRIPTION]))), packed))


def _text_and_arrays(result: "Result") -> tuple[str, dict[str, np.ndarray]]:
    """The content of the two files."""
    arrays: dict[str, np.ndarray] = {}
    description = {"schema": SCHEMA, **_describe(result, "", arrays)}
    return json.dumps(description, indent=1, ensure_ascii=False, allow_nan=False, default=_plain), arrays


def _known_schema(description: dict[str, Any]) -> dict[str, Any]:
    if description.get("schema", 1) > SCHEMA:
        raise ValueError(f"it has schema {description['schema']}, this version reads up to {SCHEMA}; upgrade scs-eval")
    return description


def _describe(result: "Result", prefix: str, arrays: dict[str, np.ndarray]) -> dict[str, Any]:
    """A result as JSON; its arrays go into `arrays` under `prefix` and the field's name."""
    kind: dict[str, Any] = {"kind": result.result_kind()}
    description = {**kind, "arrays": {}, "axes": {}, "results": {}, "fields": {}}
    for item in fields(result):
        value = getattr(result, item.name)
        if isinstance(value, np.ndarray):
            arrays[prefix + item.name] = value
            description["arrays"][item.name] = prefix + item.name
            description["axes"][item.name] = result.axes[item.name]
        elif _holds_results(value):
            description["results"][item.name] = _map_results(
                value, lambda member, key, name=item.name: _describe(member, f"{prefix}{name}/{key}", arrays)
            )
        else:
            description["fields"][item.name] = value
    return description


def _holds_results(value: Any) -> bool:
    inside = value.values() if isinstance(value, Mapping) else value if isinstance(value, tuple) else (value,)
    return any(hasattr(member, "result_kind") for member in inside)


def _map_results(value: Any, function: Callable[..., Any]) -> Any:
    """`function(result, key)` for a result, or for every one of a mapping or sequence of results."""
    if isinstance(value, Mapping) and "kind" not in value:
        return {key: function(member, f"{key}/") for key, member in value.items()}
    if isinstance(value, tuple | list):
        return [function(member, f"{index}/") for index, member in enumerate(value)]
    return function(value, "")


def _restore(description: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> "Result":
    values: dict[str, Any] = {key: _tuples(value) for key, value in description["fields"].items()}
    values |= {field: arrays[key] for field, key in description["arrays"].items()}
    for field, stored in description["results"].items():
        values[field] = _tuples(_map_results(stored, lambda member, _: _restore(member, arrays)))
    return _class_of(description["kind"])(**values)


def _class_of(kind: str) -> "type[Result]":
    """The class of a kind; only results of analyses in the catalogue and defined ones, whatever the file says."""
    if kind not in KINDS:
        analysis = kind.removesuffix("-comparison")
        if analysis not in ENTRIES:
            raise ValueError(f"{kind!r} is no kind of result")
        import_module(ENTRIES[analysis].kinds_module)
    return KINDS[kind]


def _tuples(value: Any) -> Any:
    """JSON has lists only; a frozen result has tuples."""
    if isinstance(value, list):
        return tuple(_tuples(member) for member in value)
    return {key: _tuples(member) for key, member in value.items()} if isinstance(value, dict) else value


def _plain(value: Any) -> Any:
    """A numpy scalar as JSON's number."""
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"a result's fields are arrays, results or JSON values, got {type(value).__name__}")
