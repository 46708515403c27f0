"""An estimate with its interval, as columns of a table and as words in a cell."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import pandas as pd


def named_interval(name: str, values: Iterable[Any]) -> dict[str, Any]:
    """An estimate and the ends of its interval as three columns, of a number or of an array of them."""
    plain = [float(part) if np.ndim(part) == 0 else part for part in values]
    return dict(zip((name, f"{name}_low", f"{name}_high"), plain, strict=True))


def percent_words(estimate: Any, low: Any, high: Any) -> str:
    """`82.5 [80.1, 84.6]`; without an interval the estimate alone, without an estimate a dash."""
    if np.isnan(estimate):
        return "–"
    ends = "" if np.isnan(low) else f" [{100 * float(low):.1f}, {100 * float(high):.1f}]"
    return f"{100 * float(estimate):.1f}{ends}"


def percent_cell(row: "pd.Series[Any]", name: str) -> str:
    """The same of the three columns that `named_interval` made."""
    return percent_words(*(row[column] for column in (name, f"{name}_low", f"{name}_high")))
