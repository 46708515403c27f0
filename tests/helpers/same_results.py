"""Two folders of results, but for the seconds they took."""

from pathlib import Path

import numpy as np
import pandas as pd


def tables_of(folder: Path) -> dict[str, pd.DataFrame]:
    paths = sorted(folder.rglob("*.csv"))
    tables = {str(path.relative_to(folder)): pd.read_csv(path) for path in paths}
    return {name: table[[key for key in table if "seconds" not in key]] for name, table in tables.items()}


def assert_same(one: Path, other: Path) -> None:
    alone, merged = tables_of(one), tables_of(other)
    assert alone.keys() == merged.keys()
    for name, table in alone.items():
        pd.testing.assert_frame_equal(table, merged[name], check_exact=True)
    with np.load(one / "arrays.npz") as these, np.load(other / "arrays.npz") as those:
        assert these.files == those.files
        for key in these.files:
            np.testing.assert_array_equal(these[key], those[key], err_msg=key)
