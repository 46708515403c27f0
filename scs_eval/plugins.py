"""Open to others: registries that also hold what installed packages offer, and files of one's own. No torch here.

A package says in its pyproject.toml what it offers, and it is imported when first needed:

    [project.entry-points."scs_eval.methods"]
    my_map = "my_package.maps:my_map"

Groups are scs_eval.methods, .attacks, .metrics, .data, .models and .analyses. An entry is what the `register_…` of its
group takes, or anything whose import registers it by that name.
"""

import importlib.util
import inspect
import sys
import warnings
from collections.abc import Iterator, MutableMapping
from functools import cache
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Generic, TypeVar

from scs_eval.errors import InputError, check_name, did_you_mean

T = TypeVar("T")


class Registry(MutableMapping[str, T], Generic[T]):
    """Records by name: ours, what was registered, and what installed packages offer.

    Packages are asked when names are listed, or when one is not known without them. noun: what a record is called.
    group: of the entry points. register: "module:function" that takes what an entry point names, and its name.
    """

    def __init__(self, noun: str, *, group: str, register: str) -> None:
        self.noun, self.group, self.register = noun, group, register
        self._records: dict[str, T] = {}
        self._origins: dict[str, str] = {}
        self._asked = False
        self._ours: frozenset[str] = frozenset()

    def close(self) -> None:
        """What is registered by now is this package's own; what comes after is from outside."""
        self._ours = frozenset(self._records)

    def from_outside(self) -> list[str]:
        """Names that plugins and installed packages registered."""
        return [name for name in self if name not in self._ours]

    def add(self, name: str, record: T, *, origin: object = None) -> T:
        """Make a record known by its name; one that is taken raises, but by the same function defined anew.

        origin: the function that the record stands for: a cell of a notebook may be run twice.
        """
        check_name(name, what=f"name of {self.noun}")
        known = _place(origin)
        if name in self._records and (known is None or self._origins.get(name) != known):
            raise InputError(f"there is {self.noun} {name!r} already; choose another name")
        self._records[name] = record
        if known is not None:
            self._origins[name] = known
        return record

    def find(self, name: str, *, also: str = "") -> T:
        """The record of that name; an unknown one raises and suggests the nearest. also: what else is understood."""
        if name not in self:
            hint = did_you_mean(name, self, otherwise=f"choose from {', '.join(self)}{also}", most=2)
            raise InputError(f"unknown {self.noun.removeprefix('an ').removeprefix('a ')} {name!r}; {hint}")
        return self[name]

    def known(self) -> dict[str, T]:
        """Those that are registered by now, without asking installed packages."""
        return dict(self._records)

    def _ask_packages(self) -> None:
        """Import what installed packages offer, once; one that fails is warned of and left out."""
        if self._asked:
            return
        self._asked = True
        if not packages_offer(tuple(sys.path)):
            return
        from importlib.metadata import entry_points

        for entry in entry_points(group=self.group):
            if entry.name in self._records:
                continue
            try:
                value = entry.load()
                if entry.name not in self._records and not isinstance(value, ModuleType):
                    module, _, function = self.register.partition(":")
                    getattr(import_module(module), function)(value, name=entry.name)
            except Exception as error:  # another's code may raise anything
                warnings.warn(
                    f"the plugin {entry.name} = {entry.value} was left out: {type(error).__name__}: {error}",
                    stacklevel=2,
                )
            else:
                _log("plugin %s = %s is %s", entry.name, entry.value, self.noun)

    def __getitem__(self, name: str) -> T:
        if name not in self._records:
            self._ask_packages()
        return self._records[name]

    def __setitem__(self, name: str, record: T) -> None:
        self._records[name] = record

    def __delitem__(self, name: str) -> None:
        del self._records[name]
        self._origins.pop(name, None)

    def __iter__(self) -> Iterator[str]:
        self._ask_packages()
        return iter(list(self._records))

    def __len__(self) -> int:
        self._ask_packages()
        return len(self._records)


def _log(message: str, *details: object) -> None:
    from logging import getLogger  # here, as hashlib below: `scs-eval --help` starts without them

    getLogger(__name__).info(message, *details)


@cache
def packages_offer(paths: tuple[str, ...]) -> bool:
    """Whether an installed package has entry points for us: importing importlib.metadata takes longer than to look."""
    files = (file for path in paths for file in Path(path or ".").glob("*-info/entry_points.txt"))
    return any(b"[scs_eval." in file.read_bytes() for file in files)


def code_digest(function: object) -> str:
    """A digest of the file that a function is defined in, so that kept work is not taken for that of other code.

    Of a function without a file, as in a notebook, its own source; empty where there is neither.
    """
    from hashlib import sha256

    code = function if inspect.isroutine(function) or inspect.isclass(function) else type(function)
    try:
        source = Path(inspect.getfile(code)).read_bytes()
    except (TypeError, OSError):
        try:
            source = inspect.getsource(code).encode()
        except (TypeError, OSError):
            return ""
    return sha256(source).hexdigest()[:16]


def _place(origin: object) -> str | None:
    """Where a function or class was defined."""
    name = getattr(origin, "__qualname__", "<lambda>")  # which names none
    return None if "<lambda>" in name else f"{getattr(origin, '__module__', '')}.{name}"


def module_of_file(path: Path) -> ModuleType:
    """A file of Python as a module; running it is what the user asked for, and what it raises is one line."""
    if not path.is_file():
        raise InputError(f"no such file: {path}")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise InputError(f"expected a file of Python, such as plugin.py, got {path.name}")
    module = importlib.util.module_from_spec(spec)
    sys.modules.setdefault(path.stem, module)  # dataclasses look themselves up there
    try:
        spec.loader.exec_module(module)
    except InputError as error:
        raise InputError(f"{path.name}: {error}") from error
    except Exception as error:  # the user's code may raise anything
        raise InputError(f"{path.name} failed: {type(error).__name__}: {error}") from error
    return module


REGISTRIES = {
    "methods": "scs_eval.analyses.attribution.methods:METHODS",
    "attacks": "scs_eval.analyses.attacks.kinds:ATTACKS",
    "metrics": "scs_eval.analyses.attribution.metric_records:METRICS",
    "data": "scs_eval.data.own:OWN_DATA",
    "models": "scs_eval.models.zoo.registry:OWN",
    "analyses": "scs_eval.analyses.catalogue:ENTRIES",
}


def names_from_outside() -> dict[str, list[str]]:
    """What plugins and installed packages registered, by kind; kinds of which there is nothing are left out."""
    names = {}
    for kind, location in REGISTRIES.items():
        module, _, registry = location.partition(":")
        if module not in sys.modules and not packages_offer(tuple(sys.path)):
            continue  # nobody can have registered anything there
        names[kind] = getattr(import_module(module), registry).from_outside()
    return {kind: some for kind, some in names.items() if some}


_LOADED: dict[Path, ModuleType] = {}


def load_plugin(path: str | Path) -> ModuleType:
    """Run a file that registers methods, attacks, metrics, data, models or analyses; a second time, nothing happens.

    >>> import scs_eval, tempfile, pathlib
    >>> file = pathlib.Path(tempfile.mkdtemp(), "bright.py")
    >>> _ = file.write_text('''
    ... import scs_eval
    ... @scs_eval.register_method("bright")
    ... def bright(model, images, targets):
    ...     return images
    ... ''')
    >>> _ = scs_eval.load_plugin(file)
    >>> model, data = scs_eval.load_model("rohrer25k_scs"), scs_eval.load_data("sample", n=2)
    >>> bool((scs_eval.attribute(model, data.images, data.labels, method="bright") == data.images).all())
    True
    """
    from scs_eval.files import real_path  # here: `scs-eval --help` starts without it

    file = real_path(Path(path))
    if file not in _LOADED:
        _LOADED[file] = module_of_file(file)
        _log("plugin %s loaded", file)
    return _LOADED[file]
