"""Schema 2: every kind of result declares its axes, is in docs/results.md, and comes back from its files."""

import json
from collections import defaultdict
from dataclasses import fields, replace
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from results import make

from scs_eval.analyses.core.result import Comparison, Result, load_result
from scs_eval.analyses.core.schema import kinds_table, result_kinds
from scs_eval.errors import InputError

KINDS = result_kinds()
PAGE = Path(__file__).parents[2] / "docs" / "results.md"


def example(cls: type[Result]) -> Result:
    """A result of a kind whose axes all have different lengths; fields that are no arrays stay empty."""
    lengths: dict[str, int] = defaultdict(count(2).__next__)
    values: dict[str, Any] = {item.name: None for item in fields(cls) if item.init}
    values |= {name: np.zeros([lengths[axis] for axis in axes]) for name, axes in cls.axes.items()}
    if issubclass(cls, Comparison):
        values["results"] = (example(KINDS[cls.name]),)
    return cls(**values | {"label": "x", "settings": {}})


def test_all_analyses_are_there() -> None:
    names = {"accuracy", "attacked", "bench", "compare", "contributions", "dynamics", "faithfulness"}
    assert names | {"localisation", "neurons", "pgd", "saliency", "scorecard"} <= KINDS.keys()


@pytest.mark.parametrize("cls", KINDS.values(), ids=KINDS)
def test_every_array_declares_its_axes(cls: type[Result]) -> None:
    arrays = [item.name for item in fields(cls) if "ndarray" in str(item.type)]
    assert sorted(arrays) == sorted(cls.axes)
    for name, axes in cls.axes.items():
        assert len(set(axes)) == len(axes) > 0, f"{name}: two axes of one name would have one length"


@pytest.mark.parametrize("cls", KINDS.values(), ids=KINDS)
def test_every_kind_comes_back_with_its_axes(cls: type[Result], tmp_path: Path) -> None:
    saved = example(cls)
    saved.save(tmp_path)
    description = json.loads((tmp_path / "result.json").read_text())
    assert description["schema"] == 2
    assert description["axes"] == {name: list(axes) for name, axes in cls.axes.items()}
    loaded = load_result(tmp_path)
    assert type(loaded) is cls
    for name, array in saved.arrays().items():
        np.testing.assert_array_equal(array, loaded.arrays()[name])


def test_the_page_lists_every_kind_as_it_is() -> None:
    assert kinds_table() in PAGE.read_text(), "python -m scs_eval.analyses.core.schema prints the table"


def test_axes_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match=r"margins has shape \(4, 1\), its class declares axes"):
        replace(make(), margins=np.zeros((4, 1)))
    with pytest.raises(ValueError, match="axis 'image' has length 4 in labels, 3 in margins"):
        replace(make(), margins=np.zeros(3))
    with pytest.raises(ValueError, match="declares no axes"):
        replace(make(), classes=np.zeros(3))


def test_a_file_whose_arrays_do_not_fit_is_damaged(tmp_path: Path) -> None:
    make().save(tmp_path)
    np.savez(tmp_path / "arrays.npz", **{**make().arrays(), "margins": np.zeros(3)})
    with pytest.raises(InputError, match="damaged: ValueError: axis 'image'"):
        load_result(tmp_path)
