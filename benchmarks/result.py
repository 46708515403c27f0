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

SHARES = (0.2, 5)  # of a goal, in the figure: what is less or more stands at its edges


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
        return pd.DataFrame([_row(Target(**fields)) for fields in self.targets])

    def summary(self) -> pd.DataFrame:
        """Target, reached, spread."""
        return pd.DataFrame([_line(Target(**fields)) for fields in self.targets])

    def growth_table(self) -> pd.DataFrame:
        """One row per size; the fitted exponent is the same for all rows of a curve."""
        rows = []
        for growth in self._growths():
            about = {"what": growth.what, "counted": growth.counted, "unit": growth.unit, "exponent": growth.exponent}
            rows += [
                {**about, "size": size, "cost": cost} for size, cost in zip(growth.sizes, growth.cost, strict=True)
            ]
        return pd.DataFrame(rows)

    def growth_summary(self) -> pd.DataFrame:
        """One row per curve: its ends and its exponent."""
        return pd.DataFrame([_ends(growth) for growth in self._growths()])

    def tables(self) -> dict[str, pd.DataFrame]:
        """The targets, the curves, and the conditions of the run."""
        about = {**self.settings, **self.settings.get("versions", {})}
        facts = [{"condition": key, "value": value} for key, value in about.items() if key != "versions"]
        written = {"table": self.table(), "conditions": pd.DataFrame(facts)}
        return {**written, "growth": self.growth_table()} if self.growths else written

    def draw(self, ax: "Axes | None" = None) -> "Figure":
        """Each target's ratio as a share of its goal, with its quartiles: right of the line it is met."""
        targets = [Target(**fields) for fields in self.targets]
        with style.drawing(ax, height=0.7 + 0.24 * len(targets)) as ax:
            for line, target in enumerate(reversed(targets)):
                _draw(ax, line, target)
            ax.axvline(1, color=style.BLACK, lw=0.8)
            ax.set_xscale("log")
            ticks = [0.25, 0.5, 1, 2, 4]
            ax.set_xticks(ticks, ["¼", "½", "1", "2", "4"])
            ax.minorticks_off()
            ax.set_yticks(
                range(len(targets)),
                [f"{target.what}\nvs {target.against}" for target in reversed(targets)],
                fontsize=style.points(5.5),
            )
            ax.set_xlim(SHARES[0] / 1.1, SHARES[1] * 1.1)
            ax.set_ylim(-0.8, len(targets) - 0.2)
            ax.set_xlabel("share of the target reached (1 or more: met)")
            return style.figure_of(ax)

    def figures(self) -> dict[str, "Figure"]:
        """The targets, and one figure per curve."""
        curves = {f"growth_{_slug(growth)}": _curve(growth) for growth in self._growths()}
        return {"figure": self.figure(), **curves} if self.targets else (curves or {"figure": self.figure()})

    def _growths(self) -> list[Growth]:
        return [Growth(**fields) for fields in self.growths]


def _row(target: Target) -> dict[str, Any]:
    low, high = np.quantile(target.ratios, (0.25, 0.75))
    return {
        "suite": target.suite,
        "what": target.what,
        "against": target.against,
        "target": f"{'≥' if target.faster else '≤'} {target.goal:g}",
        "reached": target.reached,
        "low": low,
        "high": high,
        "met": target.met,
        "ours": float(np.median(target.ours)),
        "theirs": float(np.median(target.theirs)),
        "unit": target.unit,
        "rounds": len(target.ours),
        "why": "" if target.met else target.why,
    }


def _line(target: Target) -> dict[str, str]:
    row = _row(target)
    sign = "" if target.unit == "points" else "× faster" if target.faster else "×"
    spread = f"{row['low']:.2f} to {row['high']:.2f}" if len(target.ours) > 1 else ""
    return {
        "what": target.what,
        "against": target.against,
        "target": row["target"] + sign,
        "reached": f"{target.reached:.2f}{sign}",
        "quartiles": spread,
        "met": "yes" if target.met else "no",
        "ours": _amount(row["ours"], target.unit),
        "theirs": "" if target.unit == "points" else _amount(row["theirs"], target.unit),
    }


def progress_line(measured: Target | Growth) -> str:
    """A line for somebody who waits."""
    if isinstance(measured, Growth):
        return f"{measured.what}, {measured.counted}: exponent {measured.exponent:.2f}"
    line = _line(measured)
    return f"{measured.what} against {measured.against}: {line['reached']} (target {line['target']})"


def _amount(value: float, unit: str) -> str:
    return f"{1000 * value:.3g} ms" if unit == "s" and value < 1 else f"{value:.3g} {unit}"


def _ends(growth: Growth) -> dict[str, str]:
    return {
        "what": growth.what,
        "grows with": growth.counted,
        "from": f"{growth.sizes[0]:g}: {_amount(growth.cost[0], growth.unit)}",
        "to": f"{growth.sizes[-1]:g}: {_amount(growth.cost[-1], growth.unit)}",
        "exponent": f"{growth.exponent:.2f}",
    }


def _draw(ax: "Axes", line: int, target: Target) -> None:
    shares = target.ratios / target.goal if target.faster else target.goal / np.maximum(target.ratios, 1e-9)
    low, middle, high = np.clip(np.quantile(shares, (0.25, 0.5, 0.75)), *SHARES)
    colour = style.BLUE if target.met else style.RED
    ax.plot([low, high], [line, line], color=colour, lw=2.2, alpha=0.4, solid_capstyle="butt")
    ax.plot([middle], [line], "o" if target.met else "X", color=colour)
    text = f"{target.reached:.2f} ({'≥' if target.faster else '≤'} {target.goal:g})"
    # Away from the line; near an edge towards it, so that the text stays clear of the rows' names.
    rightwards = high < SHARES[1] / 2 if target.met else low < SHARES[0] * 2
    x, shift, side = (high, 5, "left") if rightwards else (low, -5, "right")
    label: dict[str, Any] = {"va": "center", "ha": side, "fontsize": 6, "color": colour}
    ax.annotate(text, (x, line), (shift, 0), textcoords="offset points", **label)


def _slug(growth: Growth) -> str:
    kind = "memory" if growth.unit == "MB" else growth.counted
    return "".join(letter if letter.isalnum() else "_" for letter in kind.replace("ε", "eps")).lower()


def _curve(growth: Growth) -> "Figure":
    from matplotlib.ticker import LogLocator

    with style.drawing(width=style.WIDTH * 0.6, height=2.3) as ax:
        sizes, cost = np.array(growth.sizes), np.array(growth.cost)
        slope, start = np.polyfit(np.log(sizes), np.log(cost), 1)
        ax.plot(sizes, np.exp(start) * sizes**slope, color=style.GREY, lw=0.8)
        ax.plot(sizes, cost, "o", color=style.BLUE)
        ax.set_xscale("log")
        if growth.unit == "MB":
            ax.set_ylim(0, 1.3 * cost.max())  # a cost that should be flat is judged against nothing at all
        else:
            ax.set_yscale("log")
            ax.yaxis.set_major_locator(LogLocator(subs=(1, 1.5, 2, 3, 5, 7)))
            ax.yaxis.set_major_formatter("{x:g}")
        ax.set_xticks(sizes, [f"{size:g}" for size in sizes])
        ax.minorticks_off()
        ax.set_xlabel(growth.counted)
        ax.set_ylabel("seconds" if growth.unit == "s" else "megabytes")
        ax.set_title(f"{growth.what}\nfitted exponent {slope:.2f}", fontsize=style.points(7))
        return style.figure_of(ax)
