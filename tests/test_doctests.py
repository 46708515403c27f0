"""The examples in the docstrings of public functions run."""

import doctest
import inspect

import pytest

import scs_eval
from scs_eval.analyses.catalogue import ENTRIES

PUBLIC = {name: getattr(scs_eval, name) for name in scs_eval.__all__}
FUNCTIONS = sorted(
    name for name, value in PUBLIC.items() if inspect.isfunction(value) and ">>>" in (value.__doc__ or "")
)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_example_of_a_public_function_runs(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    function = getattr(scs_eval, name)
    examples = doctest.DocTestFinder(recurse=False).find(function, name, globs={})
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    known = ENTRIES.known()
    report: list[str] = []
    for each in examples:
        runner.run(each, out=report.append)
    for added in ENTRIES.known().keys() - known.keys():
        del ENTRIES[added]
    assert runner.summarize(verbose=False).failed == 0, "".join(report)


def test_there_are_examples():
    assert len(FUNCTIONS) >= 17
