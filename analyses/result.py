"""What a result is: it keeps per-example outcomes, tabulates and plots itself, and can be saved and loaded.

An analysis returns a subclass of `Result`: a frozen dataclass whose fields are numpy arrays (per-example outcomes) or
JSON values (text, numbers, tuples, mappings). Everything else derives from them without running the model again.
Several results of one kind make a `Comparison`. `save` writes two files, `arrays.npz` (without pickle) and
`result.json`, from which `load_result` makes the same result again.
"""

import base64
import html
import io
import json
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar, get_args, get_origin
from zipfile import BadZipFile

import numpy as np
import pandas as pd

from scs_eval.errors import InputError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from typing_extensions import Self

ARRAYS = "arrays.npz"
DESCRIPTION = "result.json"


@dataclass(frozen=True, eq=False, kw_only=True)
class Result(ABC):
    """The outcome of one analysis for one model.

    name: the analysis, which is also its folder under results/.
    label: whose result this is: the name of a model or of a run.
    settings: what the outcome depends on besides the model (seed, data, device, options), as JSON values.
    """

    name: ClassVar[str]
    label: str
    settings: Mapping[str, Any] = field(default_factory=dict)

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls.__repr__ = Result.__repr__  # type: ignore[method-assign]  # a dataclass would print all its arrays

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.label!r}>"

    def __str__(self) -> str:
        return f"{self.name}: {self.label}\n{self.summary().to_string(index=False)}"

    @abstractmethod
    def table(self) -> pd.DataFrame:
        """All numbers, one row per thing compared, unrounded."""

    @abstractmethod
    def figure(self, ax: "Axes | None" = None) -> "Figure":
        """The picture a paper would print, on the given axes or on a new figure."""

    def summary(self) -> pd.DataFrame:
        """The table for a reader: few columns, text, rounded. Shown by the command line, in Jupyter and in table.md."""
        return self.table().map(lambda value: f"{value:.4g}" if isinstance(value, float) else str(value))

    def tables(self) -> dict[str, pd.DataFrame]:
        """All tables by file name; the main one is `table`."""
        return {"table": self.table()}

    def figures(self) -> dict[str, "Figure"]:
        """All figures by file name; the main one is `figure`."""
        return {"figure": self.figure()}

    def arrays(self) -> dict[str, np.ndarray]:
        """The per-example outcomes: every field that is an array."""
        values = {item.name: getattr(self, item.name) for item in fields(self)}
        return {key: value for key, value in values.items() if isinstance(value, np.ndarray)}

    def with_settings(self, more: Mapping[str, Any]) -> "Self":
        """The same result, with more known about how it came about."""
        return replace(self, settings={**self.settings, **more})

    def save(self, directory: str | Path) -> None:
        """Write arrays.npz and result.json into an existing directory."""
        np.savez_compressed(Path(directory) / ARRAYS, allow_pickle=False, **self.arrays())
        text = json.dumps(self._description(), indent=1, ensure_ascii=False, allow_nan=False, default=_plain)
        (Path(directory) / DESCRIPTION).write_text(text + "\n", encoding="utf-8")

    def _description(self) -> dict[str, Any]:
        values = {item.name: getattr(self, item.name) for item in fields(self)}
        return {
            "module": type(self).__module__.removeprefix("scs_eval.").removeprefix("analyses."),
            "class": type(self).__name__,
            "arrays": list(self.arrays()),
            "fields": {key: value for key, value in values.items() if not isinstance(value, np.ndarray)},
        }

    @classmethod
    def _from(cls, description: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> "Self":
        values: dict[str, Any] = {key: _tuples(value) for key, value in description["fields"].items()}
        values.update((key, arrays[key]) for key in description["arrays"])
        return cls(**values)

    def _repr_html_(self) -> str:
        """Jupyter: the summary, then the figure."""
        picture = io.BytesIO()
        self.figure().savefig(picture, format="png", dpi=110)
        source = base64.b64encode(picture.getvalue()).decode()
        caption = html.escape(f"{self.name}: {self.label}")
        table = self.summary().to_html(index=False, border=0)
        return f'{table}<img alt="{caption}" src="data:image/png;base64,{source}">'


R = TypeVar("R", bound=Result)
COMPARISONS: "dict[type[Result], type[Comparison[Any]]]" = {}  # what several results of a kind make


@dataclass(frozen=True, eq=False, kw_only=True)
class Comparison(Result, Generic[R]):
    """Results of one kind for several models, labels distinct: tables one below the other, one figure for all."""

    results: tuple[R, ...]

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        for base in getattr(cls, "__orig_bases__", ()):
            if get_origin(base) is Comparison:
                COMPARISONS[get_args(base)[0]] = cls

    def __post_init__(self) -> None:
        labels = [result.label for result in self.results]
        if not labels:
            raise InputError("expected results to compare, got none")
        if len(set(labels)) < len(labels):
            twice = next(label for label in labels if labels.count(label) > 1)
            raise InputError(f"expected distinct labels, got {twice!r} twice; name the models LABEL=SOURCE")

    @classmethod
    def of(cls, results: Sequence[R], *, label: str) -> "Self":
        """Compare results; the settings are those that all of them share."""
        first, *others = (result.settings for result in results) if results else [{}]
        shared = {key: value for key, value in first.items() if all(each.get(key) == value for each in others)}
        return cls(label=label, settings=shared, results=tuple(results))

    def table(self) -> pd.DataFrame:
        """The results' tables, one below the other."""
        return _stacked([result.table() for result in self.results])

    def summary(self) -> pd.DataFrame:
        """The results' summaries, one below the other; an empty cell where one has no such column."""
        return _stacked([result.summary() for result in self.results]).fillna("")

    def tables(self) -> dict[str, pd.DataFrame]:
        """Every table that some result has, one below the other."""
        each = [result.tables() for result in self.results]
        names = dict.fromkeys(name for tables in each for name in tables)
        stacked = {name: _stacked([tables[name] for tables in each if name in tables]) for name in names}
        return {**stacked, "table": self.table()}

    def arrays(self) -> dict[str, np.ndarray]:
        """The results' arrays, each under `label/name`."""
        return {f"{one.label}/{key}": array for one in self.results for key, array in one.arrays().items()}

    def with_settings(self, more: Mapping[str, Any]) -> "Self":
        """The same results, with more known about how all of them came about."""
        members = tuple(result.with_settings(more) for result in self.results)
        return replace(self, settings={**self.settings, **more}, results=members)

    def _description(self) -> dict[str, Any]:
        description = super()._description()
        members = [result._description() for result in self.results]
        return {**description, "fields": {**description["fields"], "results": members}, "arrays": []}

    @classmethod
    def _from(cls, description: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> "Self":
        own = {key: _tuples(value) for key, value in description["fields"].items() if key != "results"}
        members: tuple[Any, ...] = tuple(_member(each, arrays) for each in description["fields"]["results"])
        return cls(**own, results=members)


def side_by_side(results: Sequence[Result], *, label: str = "side by side") -> Result:
    """Several results of one kind as a comparison, one as it is; the method is in their labels if they differ in it."""
    kinds = {type(result) for result in results}
    if len(kinds) != 1:
        names = ", ".join(sorted(kind.__name__ for kind in kinds)) or "none"
        raise InputError(f"expected results of one kind to set side by side, got {names}")
    if len(results) == 1:
        return results[0]
    several = len({getattr(result, "method", None) for result in results}) > 1
    named = [replace(one, label=f"{one.model} {one.method}") if several else one for one in results]  # type: ignore[attr-defined]
    return COMPARISONS[kinds.pop()].of(named, label=label)


def load_result(directory: str | Path) -> Result:
    """The result that was saved in a directory."""
    try:
        description = json.loads((Path(directory) / DESCRIPTION).read_text(encoding="utf-8"))
        with np.load(Path(directory) / ARRAYS, allow_pickle=False) as stored:
            return _class_of(description)._from(description, dict(stored))
    except FileNotFoundError as error:
        raise InputError(f"no result in {directory}: {Path(error.filename).name} is missing") from error
    except (OSError, ValueError, KeyError, TypeError, AttributeError, ImportError, BadZipFile) as error:
        raise InputError(f"the result in {directory} is damaged: {type(error).__name__}: {error}") from error


def _class_of(description: Mapping[str, Any]) -> type[Result]:
    """The class a description names: only results of our analyses, whatever the file says."""
    module = description["module"]
    if not re.fullmatch(r"(benchmarks\.)?[a-z_]+", module):
        raise ValueError(f"{module!r} is no analysis")
    package = "scs_eval" if "." in module else "scs_eval.analyses"
    found = getattr(import_module(f"{package}.{module}"), description["class"])
    if not (isinstance(found, type) and issubclass(found, Result)):
        raise TypeError(f"{description['class']!r} is no result")
    return found


def _member(description: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> Result:
    prefix = f"{description['fields']['label']}/"
    return _class_of(description)._from(description, {k: arrays[prefix + k] for k in description["arrays"]})


def _stacked(tables: list[pd.DataFrame]) -> pd.DataFrame:
    return pd.concat(tables, ignore_index=True)


def _tuples(value: Any) -> Any:
    """JSON has lists only; a frozen result has tuples."""
    if isinstance(value, list):
        return tuple(_tuples(each) for each in value)
    return {key: _tuples(each) for key, each in value.items()} if isinstance(value, dict) else value


def _plain(value: Any) -> Any:
    """A numpy scalar as JSON's number."""
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"a result's fields are arrays or JSON values, got {type(value).__name__}")
