"""Numbers on the command line: "0.001:0.03" is 30 of them, "8/255" is one."""

import math
import re

from scs_eval.errors import InputError, shortened

MOST = 10_000  # values of a range: more would be a slip, and could fill the memory
COUNT = 30  # of `lo:hi`, so that 0.001:0.03 is the SCS paper's 0.001, 0.002 … 0.030
HELP = "such as 0.001:0.03 (30 values), 0:8/255:9 (9 values) or 2/255,4/255"


def parse_range(text: str) -> list[float]:
    """The values of `lo:hi` (30, both ends among them), `lo:hi:n`, or a list between commas; each may be a fraction."""
    if not text.strip():
        raise InputError(f"expected values {HELP}, got nothing")
    parts = text.split(":")
    if len(parts) == 1:
        return [parse_number(part, text) for part in text.split(",")]
    if len(parts) > 3:
        raise InputError(f"expected values {HELP}, got {shortened(text)}")
    low, high = (parse_number(part, text) for part in parts[:2])
    count = _count(parts[2], text) if len(parts) == 3 else COUNT
    if not low < high:
        raise InputError(f"expected a range that rises, got {shortened(text)}; did you mean {parts[1]}:{parts[0]}?")
    # Rounded to 12 digits: 0.003 and not 0.0029999999999999996.
    return [float(f"{low + (high - low) * step / (count - 1):.12g}") for step in range(count)]


def parse_number(text: str, whole: str | None = None) -> float:
    """A number, or a fraction such as 8/255; `whole` is what it stood in, for the message."""
    try:
        if not text.isascii() or "_" in text:
            raise ValueError("digits of other scripts, and underscores")
        above, *below = (float(part) for part in text.split("/"))
        value = above / below[0] if below else above
        if len(below) < 2 and math.isfinite(value):
            return value
    except (ValueError, ZeroDivisionError):
        pass
    raise InputError(f"expected values {HELP}, got {shortened(text if whole is None else whole)}")


def _count(text: str, whole: str) -> int:
    digits = text.strip()
    if not re.fullmatch("[0-9]{1,9}", digits) or not 2 <= int(digits) <= MOST:
        raise InputError(f"expected 2 to {MOST:,} values after the second colon, got {shortened(whole)}")
    return int(digits)
