"""Numbers on the command line."""

import pytest

from scs_eval.errors import InputError
from scs_eval.ranges import parse_range


def test_the_papers_grid() -> None:
    assert parse_range("0.001:0.03") == [round(0.001 * k, 3) for k in range(1, 31)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0:1:3", [0, 0.5, 1]),
        ("8/255", [8 / 255]),
        ("2/255, 4/255,0.5", [2 / 255, 4 / 255, 0.5]),
        ("0:8/255:2", [0, pytest.approx(8 / 255, rel=1e-11)]),
        ("-1:1:3", [-1, 0, 1]),
    ],
)
def test_other_forms(text: str, expected: list[float]) -> None:
    assert parse_range(text) == expected


WRONG_RANGES = {
    "": "got nothing",
    "abc": "got 'abc'",
    "0.03:0.001": "did you mean 0.001:0.03",
    "0.1:0.1": "rises",
    "0:1:1": "2 to 10,000 values",
    "0:1:x": "2 to 10,000 values",
    "0:1:1000000000000": "2 to 10,000 values",
    "0:1:²": "2 to 10,000 values",
    "٣": "expected values",
    "9" * 5000: "expected values",
    "0:1:2:3": "expected values",
    "1/0": "expected values",
    "1/2/3": "expected values",
    "nan": "expected values",
    "0.1,,0.2": "expected values",
    ":0.1": "expected values",
}


@pytest.mark.parametrize(("text", "message"), WRONG_RANGES.items())
def test_anything_else_is_one_line(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        parse_range(text)
    assert "\n" not in str(caught.value)
