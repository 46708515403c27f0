"""The outcome of a benchmark: a table of targets, how costs grow, and figures of both."""

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pandas as pd

from scs_eval.analyses.core.result import Result
from scs_eval.analyses.plotting import style
from scs_eval.benchmarks.contest import Growth, Target

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


@dataclass(frozen=True, eq=False, kw_only=True)
class BenchResult(Result):
    """Targets and growths as mappings (the fields of `Target` and `Growth`), in the order they were measured."""

    name: ClassVar[str] = "bench"
    targets: tuple[dict[str, Any], ...]
    growths: tuple[dict[str, Any], ...] = ()
    skipped: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()  # suites of which something is missing

    @classmethod
    def of(cls, targets: list[Target], growths: list[Growth], skipped: list[str], **about: Any) -> "BenchResult":
        """From the measurements themselves."""
        return cls(
            targets=tuple(map(asdict, targets)), growths=tuple(map(asdict, growths)), skipped=tuple(skipped), **about
        )

    def table(self) -> pd.DataFrame:
        """One row per target; `low` and `high` are the quartiles of the rounds."""
        return pd.DataFrame([_row(Target(**each)) for each in self.targets])

    def summary(self) -> pd.DataFrame:
        """Target, reached, spread."""
        return pd.DataFrame([_line(Target(**each)) for each in self.targets])

    def growth_table(self) -> pd.DataFrame:
        """One row per size; the fitted exponent is the same for all rows of a curve."""
        rows = []
        for one in self._growths():
            about = {"what": one.what, "counted": one.counted, "unit": one.unit, "exponent": one.exponent}
            rows += [{**about, "size": size, "cost": cost} for size, cost in zip(one.sizes, one.cost, strict=True)]
        return pd.DataFrame(rows)

    def growth_summary(self) -> pd.DataFrame:
        """One row per curve: its ends and its exponent."""
        return pd.DataFrame([_ends(one) for one in self._growths()])

    def tables(self) -> dict[str, pd.DataFrame]:
        """The targets, the curves, and the conditions of the run."""
        about = {**self.settings, **self.settings.get("versions", {})}
        facts = [{"condition": key, "value": value} for key, value in about.items() if key != "versions"]
        found = {"table": self.table(), "conditions": pd.DataFrame(facts)}
        return {**found, "growth": self.growth_table()} if self.growths else found

    def figure(self, ax: "Axes | None" = None) -> "Figure":
        """Each target's ratio as a share of its goal, with its quartiles: right of the line it is met."""
        found = [Target(**each) for each in self.targets]
        with style.drawing(ax, height=0.7 + 0.24 * len(found)) as ax:
            for place, one in enumerate(reversed(found)):
                _draw(ax, place, one)
            ax.axvline(1, color=style.BLACK, lw=0.8)
            ax.set_xscale("log")
            ticks = [0.25, 0.5, 1, 2, 4]
            ax.set_xticks(ticks, ["¼", "½", "1", "2", "4"])
            ax.minorticks_off()
            ax.set_yticks(range(len(found)), [f"{one.what}\nvs {one.against}" for one in reversed(found)], fontsize=5.5)
            ax.set_xlim(0.2, 5)
            ax.set_xlabel("share of the target reached (1 or more: met)")
            return style.figure_of(ax)

    def figures(self) -> dict[str, "Figure"]:
        """The targets, and one figure per curve."""
        curves = {f"growth_{_slug(one)}": _curve(one) for one in self._growths()}
        return {"figure": self.figure(), **curves} if self.targets else (curves or {"figure": self.figure()})

    def _growths(self) -> list[Growth]:
        return [Growth(**each) for each in self.growths]


def _row(one: Target) -> dict[str, Any]:
    low, high = np.quantile(one.ratios, (0.25, 0.75))
    return {
        "suite": one.suite,
        "what": one.what,
        "against": one.against,
        "target": f"{'≥' if one.faster else '≤'} {one.goal:g}",
        "reached": one.reached,
        "low": low,
        "high": high,
        "met": one.met,
        "ours": float(np.median(one.ours)),
        "theirs": float(np.median(one.theirs)),
        "unit": one.unit,
        "rounds": len(one.ours),
    }


def _line(one: Target) -> dict[str, str]:
    row = _row(one)
    sign = "" if one.unit == "points" else "× faster" if one.faster else "×"
    spread = f"{row['low']:.2f} to {row['high']:.2f}" if len(one.ours) > 1 else ""
    return {
        "what": one.what,
        "against": one.against,
        "target": row["target"] + sign,
        "reached": f"{one.reached:.2f}{sign}",
        "quartiles": spread,
        "met": "yes" if one.met else "no",
        "ours": _amount(row["ours"], one.unit),
        "theirs": "" if one.unit == "points" else _amount(row["theirs"], one.unit),
    }


def in_words(one: Target | Growth) -> str:
    """A line for somebody who waits."""
    if isinstance(one, Growth):
        return f"{one.what}, {one.counted}: exponent {one.exponent:.2f}"
    line = _line(one)
    return f"{one.what} against {one.against}: {line['reached']} (target {line['target']})"


def _amount(value: float, unit: str) -> str:
    return f"{1000 * value:.3g} ms" if unit == "s" and value < 1 else f"{value:.3g} {unit}"


def _ends(one: Growth) -> dict[str, str]:
    return {
        "what": one.what,
        "grows with": one.counted,
        "from": f"{one.sizes[0]:g}: {_amount(one.cost[0], one.unit)}",
        "to": f"{one.sizes[-1]:g}: {_amount(one.cost[-1], one.unit)}",
        "exponent": f"{one.exponent:.2f}",
    }


def _draw(ax: "Axes", place: int, one: Target) -> None:
    shares = one.ratios / one.goal if one.faster else one.goal / np.maximum(one.ratios, 1e-9)
    low, middle, high = np.clip(np.quantile(shares, (0.25, 0.5, 0.75)), 0.2, 5)
    colour = style.BLUE if one.met else style.RED
    ax.plot([low, high], [place, place], color=colour, lw=2.2, alpha=0.4, solid_capstyle="butt")
    ax.plot([middle], [place], "o" if one.met else "X", color=colour)
    text = f"{one.reached:.2f} ({'≥' if one.faster else '≤'} {one.goal:g})"
    x, shift, side = (high, 5, "left") if one.met else (low, -5, "right")  # away from the line
    label: dict[str, Any] = {"va": "center", "ha": side, "fontsize": 6, "color": colour}
    ax.annotate(text, (x, place), (shift, 0), textcoords="offset points", **label)


def _slug(one: Growth) -> str:
    kind = "memory" if one.unit == "MB" else one.counted
    return "".join(letter if letter.isalnum() else "_" for letter in kind.replace("ε", "eps")).lower()


def _curve(one: Growth) -> "Figure":
    from matplotlib.ticker import LogLocator

    with style.drawing(width=style.WIDTH * 0.6, height=2.3) as ax:
        sizes, cost = np.array(one.sizes), np.array(one.cost)
        slope, start = np.polyfit(np.log(sizes), np.log(cost), 1)
        ax.plot(sizes, np.exp(start) * sizes**slope, color=style.GREY, lw=0.8)
        ax.plot(sizes, cost, "o", color=style.BLUE)
        ax.set_xscale("log")
        if one.unit == "MB":
            ax.set_ylim(0, 1.3 * cost.max())  # a cost that should be flat is judged against nothing at all
        else:
            ax.set_yscale("log")
            ax.yaxis.set_major_locator(LogLocator(subs=(1, 1.5, 2, 3, 5, 7)))
            ax.yaxis.set_major_formatter("{x:g}")
        ax.set_xticks(sizes, [f"{size:g}" for size in sizes])
        ax.minorticks_off()
        ax.set_xlabel(one.counted)
        ax.set_ylabel("seconds" if one.unit == "s" else "megabytes")
        ax.set_title(f"{one.what}\nfitted exponent {slope:.2f}", fontsize=7)
        return style.figure_of(ax)
