"""The scorecard on a gallery of broken defences and of sound networks: each verdict is that of docs/gallery.csv."""

import pandas as pd
import pytest
from defences import BROKEN, SOUND, TABLE, judge

ROWS = pd.read_csv(TABLE, keep_default_na=False).set_index("network")


def test_the_table_has_every_exhibit() -> None:
    assert list(ROWS.index) == [*BROKEN, *SOUND]


def test_the_table_shows_no_miss() -> None:
    """A defence that raises the curve fails."""
    assert set(ROWS[ROWS["kind"] == "broken, curve higher"]["verdict"]) == {"FAIL"}


@pytest.mark.slow
@pytest.mark.parametrize("name", [*BROKEN, *SOUND])
def test_the_verdict_is_that_of_the_table(name: str) -> None:
    row = judge(name)
    assert (row["kind"], row["verdict"]) == tuple(ROWS.loc[name, ["kind", "verdict"]])
