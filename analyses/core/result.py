"""What a result is: it keeps per-example outcomes, tabulates and plots itself, and can be saved and loaded.

An analysis returns a subclass of `Result`: a frozen dataclass whose fields are numpy arrays (per-example outcomes),
other results, or JSON values (text, numbers, tuples, mappings). Everything else derives from them without running the
model again. Several results of one kind make a `Comparison`. docs/results.md describes all kinds.
"""

import base64
import html
import io
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar, get_args, get_origin

import numpy as np
import pandas as pd

from scs_eval.analyses.core.page import page
from scs_eval.analyses.core.provenance import described_images
from scs_eval.analyses.core.reference_tests import reference_tests
from scs_eval.analyses.core.storage import KINDS, save_result
from scs_eval.analyses.core.storage import load_result as load_result
from scs_eval.analyses.core.training_table import training_table
from scs_eval.errors import InputError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from typing_extensions import Self


def _saying_which_images(method: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """`table` or `tables` whose frames say in their `attrs` which images they are about."""

    @wraps(method)
    def wrapped(self: Any) -> Any:
        made = method(self)
        for frame in made.values() if isinstance(made, dict) else [made]:
            if isinstance(frame, pd.DataFrame):
                frame.attrs = dict(described_images(self.settings).items())
        return made

    return wrapped


@dataclass(frozen=True, eq=False, kw_only=True)
class Result(ABC):
    """The outcome of one analysis for one model.

    name: the analysis, which is also its folder under results/.
    label: whose result this is: the name of a model or of a run.
    settings: what the outcome depends on besides the model (seed, data, device, options), as JSON values.
    axes: field → the names of its array's axes. An axis has one length within a result.

    >>> import scs_eval
    >>> result = scs_eval.accuracy("rohrer25k_scs", scs_eval.load_data("sample", n=10))
    >>> isinstance(result, scs_eval.Result), result.arrays()["predictions"].shape, result.to_dict()["label"]
    (True, (10,), 'model')
    """

    name: ClassVar[str]
    axes: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    label: str
    settings: Mapping[str, Any] = field(default_factory=dict)

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "figure" in cls.__dict__ and "draw" not in cls.__dict__:  # an analysis from outside that calls it so
            cls.draw = cls.__dict__["figure"]  # type: ignore[method-assign]
            del cls.figure
        for method in {"table", "tables"} & cls.__dict__.keys():
            setattr(cls, method, _saying_which_images(cls.__dict__[method]))
        cls.__repr__ = Result.__repr__  # type: ignore[method-assign]  # a dataclass would print all its arrays
        if "name" in cls.__dict__:
            KINDS[cls.result_kind()] = cls

    def __post_init__(self) -> None:
        _check_axes(self)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.label!r}>"

    def __str__(self) -> str:
        return f"{self.name}: {self.label}\n{self.summary().to_string(index=False)}"

    @abstractmethod
    def table(self) -> pd.DataFrame:
        """All numbers, one row per thing compared, unrounded."""

    @abstractmethod
    def draw(self, ax: "Axes | None" = None) -> "Figure":
        """What `figure` gives, on the given axes or on a new figure."""

    def figure(
        self, ax: "Axes | None" = None, *, caption: bool = True, size: tuple[float, float] | None = None
    ) -> "Figure":
        """The picture a paper would print, on the given axes or on a new figure.

        caption: without it, the sentences below are left to the paper. size: width and height in inches. Fonts and
        their size are those of matplotlib's rcParams where the user has set them. The others of `figures` are drawn
        likewise inside `with scs_eval.page(caption=False, size=(3.3, 2)):`.
        """
        with page(caption=caption, size=size):
            return self.draw(ax)

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

    def to_dataframe(self) -> pd.DataFrame:
        """All numbers, one row per thing compared: the same as `table`, by the name that other packages use."""
        return self.table()

    def to_dict(self) -> dict[str, Any]:
        """Everything it knows by field, nested results as mappings themselves; arrays are copies."""
        return {item.name: _as_plain(getattr(self, item.name)) for item in fields(self)}

    def __getstate__(self) -> dict[str, Any]:
        """The fields alone, for pickle and copy: what was derived and kept is derived again."""
        return {item.name: getattr(self, item.name) for item in fields(self)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)

    def seconds_taken(self) -> dict[str, float]:
        """How long it took, by label, where it was measured: no part of the tables, which two equal runs share."""
        seconds = getattr(self, "seconds", None)
        return {} if seconds is None else {self.label: seconds}

    def with_settings(self, more: Mapping[str, Any]) -> "Self":
        """The same result, with more known about how it came about."""
        return replace(self, settings={**self.settings, **more})

    @classmethod
    def result_kind(cls) -> str:
        """What a saved result says that it is."""
        return cls.name

    def save(self, directory: str | Path) -> None:
        """Write arrays.npz and result.json, from which `load_result` makes the same result again."""
        save_result(self, directory)

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
    """Results of one kind for several models, labels distinct: tables one below the other, one figure for all.

    references: model → the model that it is compared with; without them, as the rule of `references_of` has it.

    >>> import scs_eval
    >>> data = scs_eval.load_data("sample", n=10)
    >>> names = ("rohrer25k_scs", "rohrer25k_conv")
    >>> both = scs_eval.side_by_side([scs_eval.accuracy(name, data, label=name) for name in names])
    >>> isinstance(both, scs_eval.Comparison), both.tests()["n"].tolist()
    (True, [10])
    """

    results: tuple[R, ...]
    references: Mapping[str, str] = field(default_factory=dict)

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        for base in getattr(cls, "__orig_bases__", ()):
            if get_origin(base) is Comparison:
                COMPARISONS[get_args(base)[0]] = cls

    def __post_init__(self) -> None:
        super().__post_init__()
        labels = [result.label for result in self.results]
        if not labels:
            raise InputError("expected results to compare, got none")
        if len(set(labels)) < len(labels):
            twice = next(label for label in labels if labels.count(label) > 1)
            raise InputError(f"expected distinct labels, got {twice!r} twice; name the models LABEL=SOURCE")

    @classmethod
    def result_kind(cls) -> str:
        """The kind of several results of one analysis."""
        return f"{cls.name}-comparison"

    @classmethod
    def of(cls, results: Sequence[R], *, label: str) -> "Self":
        """Compare results; the settings are those that all of them share."""
        first, *others = (result.settings for result in results) if results else [{}]
        shared = {key: value for key, value in first.items() if all(settings.get(key) == value for settings in others)}
        return cls(label=label, settings=shared, results=tuple(results))

    def table(self) -> pd.DataFrame:
        """The results' tables, one below the other."""
        return _stacked([result.table() for result in self.results])

    def summary(self) -> pd.DataFrame:
        """The results' summaries, one below the other; an empty cell where one has no such column."""
        return _stacked([result.summary() for result in self.results]).fillna("")

    def tests(self) -> pd.DataFrame:
        """Every model against its reference, by every headline of the analysis; Holm's correction over all."""
        return reference_tests(self.results, self.references)

    def trainings(self) -> pd.DataFrame:
        """Networks that were trained several times: mean and range of every headline, and against the reference's."""
        return training_table(self.results, self.references)

    def tables(self) -> dict[str, pd.DataFrame]:
        """Every table that some result has, one below the other; tests, if a model has a reference; trainings."""
        by_result = [result.tables() for result in self.results]
        derived = {"tests": self.tests(), "trainings": self.trainings()}
        names = dict.fromkeys(name for tables in by_result for name in tables)
        stacked = {name: _stacked([tables[name] for tables in by_result if name in tables]) for name in names}
        return {**stacked, "table": self.table(), **{name: table for name, table in derived.items() if len(table)}}

    def arrays(self) -> dict[str, np.ndarray]:
        """The results' arrays, each under `label/name`."""
        return {f"{result.label}/{key}": array for result in self.results for key, array in result.arrays().items()}

    def seconds_taken(self) -> dict[str, float]:
        """The results' seconds, by label."""
        return {label: seconds for result in self.results for label, seconds in result.seconds_taken().items()}

    def with_settings(self, more: Mapping[str, Any]) -> "Self":
        """The same results, with more known about how all of them came about."""
        members = tuple(result.with_settings(more) for result in self.results)
        return replace(self, settings={**self.settings, **more}, results=members)


@dataclass(frozen=True, eq=False, kw_only=True)
class PlainComparison(Comparison[Result]):
    """Of an analysis from outside that has no comparison of its own: every result's picture, side by side."""

    @property
    def name(self) -> str:  # type: ignore[override]  # it is whatever its results are
        """The analysis."""
        return self.results[0].name

    @classmethod
    def result_kind(cls) -> str:
        """The kind of several results of any analysis."""
        return "plain-comparison"

    def draw(self, ax: "Axes | None" = None) -> "Figure":
        """A panel for each result."""
        from matplotlib.figure import Figure

        pictures = [_drawn(result) for result in self.results]
        if ax is not None:
            high = min(len(picture) for picture in pictures)
            ax.imshow(np.concatenate([picture[:high] for picture in pictures], axis=1))
            return ax.get_figure(root=True)  # type: ignore[return-value]
        figure = Figure(figsize=(5 * len(pictures), 4), layout="constrained")
        panels = figure.subplots(1, len(pictures), squeeze=False)[0]
        for panel, picture, result in zip(panels, pictures, self.results, strict=True):
            panel.imshow(picture)
            panel.set_title(result.label)
            panel.set_axis_off()
        return figure


def _drawn(result: Result) -> np.ndarray:
    """(H, W, 3) a result's figure, whatever it was drawn with."""
    from PIL import Image

    file = io.BytesIO()
    result.figure().savefig(file, format="png", dpi=150)
    return np.asarray(Image.open(file).convert("RGB"))


def comparison_class(result: Result) -> "type[Comparison[Any]]":
    """What several results of that kind make."""
    return COMPARISONS.get(type(result), PlainComparison)


def side_by_side(results: Sequence[Result], *, label: str = "side by side") -> Result:
    """Several results of one kind as a comparison, one as it is; the method is in their labels if they differ in it.

    A comparison among them stands for the results that it holds.

    >>> import scs_eval
    >>> data = scs_eval.load_data("sample", n=20)
    >>> several = [
    ...     scs_eval.accuracy(scs_eval.load_model(name), data.images, data.labels, classes=data.classes, label=name)
    ...     for name in ("rohrer25k_scs", "rohrer25k_conv")
    ... ]
    >>> scs_eval.side_by_side(several).to_dataframe()["model"].tolist()
    ['rohrer25k_scs', 'rohrer25k_conv']
    """
    single = [
        member for result in results for member in (result.results if isinstance(result, Comparison) else (result,))
    ]
    kinds = {type(result) for result in single}
    if len(kinds) != 1:
        names = ", ".join(sorted(kind.__name__ for kind in kinds)) or "none"
        raise InputError(f"expected results of one kind to set side by side, got {names}")
    if len(single) == 1:
        return results[0]
    several = len({getattr(result, "method", None) for result in single}) > 1
    named = [replace(member, label=f"{member.model} {member.method}") if several else member for member in single]
    return comparison_class(single[0]).of(named, label=label)


def _as_plain(value: Any) -> Any:
    """A field's value without results in it: those are mappings."""
    if isinstance(value, Result):
        return value.to_dict()
    if isinstance(value, np.ndarray):
        return value.copy()
    if isinstance(value, Mapping):
        return {key: _as_plain(member) for key, member in value.items()}
    return tuple(map(_as_plain, value)) if isinstance(value, tuple) else value


def _check_axes(result: Result) -> None:
    """Raise unless every array has the axes that its class declares, and an axis one length."""
    lengths: dict[str, tuple[int, str]] = {}
    for name, array in Result.arrays(result).items():
        axes = result.axes.get(name)
        if axes is None or len(axes) != array.ndim:
            declared = "no axes" if axes is None else f"axes {axes}"
            raise ValueError(f"{type(result).__name__}.{name} has shape {array.shape}, its class declares {declared}")
        for axis, length in zip(axes, array.shape, strict=True):
            known, where = lengths.setdefault(axis, (length, name))
            if known != length:
                raise ValueError(f"axis {axis!r} has length {known} in {where}, {length} in {name}")


def _stacked(tables: list[pd.DataFrame]) -> pd.DataFrame:
    return pd.concat(tables, ignore_index=True)
