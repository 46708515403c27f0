"""What a check of the scorecard says: a verdict, its figure, one sentence."""

from typing import NamedTuple

from scs_eval.analyses.core.statistics import wilson

PASS, WARN, FAIL, SKIPPED = "PASS", "WARN", "FAIL", "n/a"
ORDER = (FAIL, WARN, PASS, SKIPPED)  # worst first


class Check(NamedTuple):
    """One line of the scorecard; `figure` is the number behind the verdict, as text."""

    name: str
    verdict: str
    figure: str
    sentence: str


def worst(checks: "list[Check] | tuple[Check, ...]") -> str:
    """The worst verdict of all."""
    return min((check.verdict for check in checks), key=ORDER.index, default=SKIPPED)


def skipped(name: str, why: str) -> Check:
    """A check that does not apply."""
    return Check(name, SKIPPED, "–", why)


def at_most(count: int, n: int, *, points: float) -> str:
    """The verdict on `count` of n images where `points` per cent are allowed.

    More than that is a warning, and a failure if it is no chance of these n images: if Wilson's 95 % interval of the
    share lies above the limit. One image alone is no failure, however much it is worth, and where a whole point is
    allowed, so is one image: of fewer than a hundred the point would be none.
    """
    if 100 * count <= points * n or (count == 1 and points >= 1):
        return PASS
    return FAIL if count > 1 and 100 * float(wilson(count, n).low) > points else WARN


def in_points(count: float, n: int) -> str:
    """A number of images as points of accuracy: "+1.0 points (2 of 200)"."""
    return f"{100 * count / n:+.1f} points ({count:+.0f} of {n} images)"
