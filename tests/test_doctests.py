"""Every public name has an example in its docstring, and the examples run."""

import doctest
import inspect

import pytest

import scs_eval
from scs_eval.analyses.catalogue import imported
from scs_eval.plugins import REGISTRIES

PUBLIC = sorted(name for name in scs_eval.__all__ if name != "__version__")


@pytest.fixture
def as_before():
    """What an example registers is gone afterwards."""
    registries = [imported(location) for location in REGISTRIES.values()]
    known = [registry.known() for registry in registries]
    yield
    for registry, before in zip(registries, known, strict=True):
        for added in registry.known().keys() - before.keys():
            del registry[added]


@pytest.mark.parametrize("name", PUBLIC)
@pytest.mark.usefixtures("as_before")
def test_the_example_of_a_public_name_runs(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    value = inspect.unwrap(getattr(scs_eval, name))
    (examples,) = doctest.DocTestFinder(recurse=False).find(value, name, globs={})
    assert examples.examples, "its docstring has no example"
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    report: list[str] = []
    runner.run(examples, out=report.append)
    assert runner.summarize(verbose=False).failed == 0, "".join(report)
