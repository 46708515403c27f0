"""What corruptions did to a model, image by image: accuracies, drops, and the mean corruption error."""

from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pandas as pd

from scs_eval.analyses.core.axes import axes_of
from scs_eval.analyses.core.interval_words import named_interval, percent_cell
from scs_eval.analyses.core.result import Comparison, Result
from scs_eval.analyses.core.statistics import (
    SHARE,
    Interval,
    bootstrap_interval,
    holm,
    mean_interval,
    paired_test,
    too_few,
    wilson,
)
from scs_eval.analyses.corruptions.corrupt import CORRUPTIONS, SEVERITIES
from scs_eval.analyses.corruptions.figure import draw_curves, draw_examples, draw_heatmap

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LEVEL = 0.05  # of p, after Holm's correction


@dataclass(frozen=True, eq=False, kw_only=True)
class CorruptionsResult(Result):
    """Whether a model was right about n images under C corruptions in 5 severities.

    names: of the corruptions. source: "generated", or where the corrupted images came from.
    indices: (n,) which images; labels: (n,) positions in `classes`; clean: (n,) whether it was right without any.
    right: (C, 5, n) whether it was right. reference: the network that errors are relative to, "" for none;
    reference_right: (C, 5, n) of it, on the same pixels. pictures: (C, 3, H, W) the first image, severity 3.
    """

    name = "corruptions"
    axes: ClassVar = axes_of(
        "image: indices labels clean", "corruption, severity, image: right reference_right",
        "corruption, channel, row, column: pictures",
    )  # fmt: skip
    classes: tuple[str, ...]
    names: tuple[str, ...]
    source: str
    indices: np.ndarray
    labels: np.ndarray
    clean: np.ndarray
    right: np.ndarray
    pictures: np.ndarray
    reference: str = ""
    reference_right: np.ndarray | None = None

    @property
    def n(self) -> int:
        """How many images."""
        return len(self.labels)

    @property
    def per_image(self) -> np.ndarray:
        """(n,) under how many of all corruptions and severities the model is right, as a share."""
        return np.asarray(self.right.mean((0, 1)))

    @property
    def drops(self) -> np.ndarray:
        """(C, n) what each corruption costs an image: right when clean minus the mean over severities."""
        return self.clean - self.right.mean(1)

    @property
    def accuracy(self) -> Interval:
        """(C, 5) with Wilson's intervals."""
        return wilson(self.right.sum(2), self.n)

    @property
    def mce(self) -> Interval:
        """The mean corruption error: errors over the five severities as a share of the reference's, mean over all C.

        The interval is of resampled images, the same for both networks. NaN without a reference.
        """
        if self.reference_right is None:
            return Interval(*[np.array(np.nan)] * 3)
        errors = np.concatenate([1 - self.right.mean(1), 1 - self.reference_right.mean(1)]).T
        return bootstrap_interval(errors, _mean_ratio)

    def corruption_errors(self) -> np.ndarray:
        """(C,) each corruption's errors as a share of the reference's; NaN without one."""
        if self.reference_right is None:
            return np.full(len(self.names), np.nan)
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.asarray((1 - self.right.mean((1, 2))) / (1 - self.reference_right.mean((1, 2))))

    def curve(self) -> pd.DataFrame:
        """One row per corruption and severity."""
        accuracy, low, high = (part.ravel() for part in self.accuracy)
        rows = [(name, severity) for name in self.names for severity in SEVERITIES]
        table = pd.DataFrame(rows, columns=["corruption", "severity"])
        table.insert(0, "model", self.label)
        return table.assign(n=self.n, accuracy=accuracy, low=low, high=high)

    def by_corruption(self) -> pd.DataFrame:
        """One row per corruption: accuracy over all severities, drop from clean, errors relative to the reference's."""
        accuracy = mean_interval(self.right.mean(1).T, bounds=SHARE)
        drop = mean_interval(self.drops.T)
        columns: dict[str, Any] = {"model": self.label, "corruption": self.names}
        columns["group"] = [CORRUPTIONS[name].group for name in self.names]
        columns |= {"n": self.n, **named_interval("accuracy", accuracy), **named_interval("drop", drop)}
        return pd.DataFrame({**columns, "corruption_error": self.corruption_errors()})

    def table(self) -> pd.DataFrame:
        """One row: clean and corrupted accuracy, the mean corruption error, and accuracy in each group."""
        row: dict[str, Any] = {"model": self.label, "source": self.source, "n": self.n}
        row |= named_interval("clean_accuracy", wilson(self.clean.sum(), self.n))
        row |= named_interval("corrupted_accuracy", mean_interval(self.per_image, bounds=SHARE))
        row |= {"reference": self.reference, **named_interval("mce", self.mce)}
        groups = np.array([CORRUPTIONS[name].group for name in self.names])
        for group in dict.fromkeys(groups):
            row |= named_interval(group, mean_interval(self.right[groups == group].mean((0, 1)), bounds=SHARE))
        return pd.DataFrame([row])

    def summary(self) -> pd.DataFrame:
        """In per cent, intervals in brackets; the corruption that costs most and the one that costs least."""
        values, drops = self.table().iloc[0], self.drops.mean(1)
        row = {
            "model": self.label,
            "n": str(self.n),
            "clean %": percent_cell(values, "clean_accuracy"),
            "corrupted %": percent_cell(values, "corrupted_accuracy"),
            "mCE %": percent_cell(values, "mce") + (f" of {self.reference}" if self.reference else ""),
        }
        row |= {
            f"{group} %": f"{100 * values[group]:.1f}"
            for group in ("noise", "blur", "weather", "digital")
            if group in values
        }
        for word, index in (("costs most", int(drops.argmax())), ("costs least", int(drops.argmin()))):
            row[word] = f"{self.names[index]} {100 * drops[index]:.1f}"
        return pd.DataFrame([row])

    def tables(self) -> dict[str, pd.DataFrame]:
        """The table, each corruption, each severity of it."""
        return {"table": self.table(), "corruptions": self.by_corruption(), "curve": self.curve()}

    def draw(self, ax: "Axes | None" = None) -> "Figure":
        """Accuracy against severity, a panel for each corruption; on given axes the mean over all."""
        return draw_curves([self], ax)

    def figures(self) -> dict[str, "Figure"]:
        """The curves, the heat map, the first image under every corruption."""
        return {"figure": self.figure(), "heatmap": draw_heatmap([self]), "examples": draw_examples(self)}


@dataclass(frozen=True, eq=False, kw_only=True)
class CorruptionsComparison(Comparison[CorruptionsResult]):
    """Corruptions of the same images, shown to several models."""

    name = "corruptions"

    def drop_tests(self) -> pd.DataFrame:
        """Every pair of models by every corruption: whether it costs one of them more, sign flips, Holm's correction.

        What is compared is the drop from each model's own clean accuracy, image by image.
        """
        pairs = [
            pair
            for pair in combinations(self.results, 2)
            if np.array_equal(pair[0].indices, pair[1].indices) and pair[0].names == pair[1].names
        ]
        rows = [_test(*pair, index) for pair in pairs for index in range(len(pair[0].names))]
        table = pd.DataFrame(rows)
        if len(table):
            table["p_holm"] = holm(table["p_value"])
            table["verdict"] = [_verdict(row) for _, row in table.iterrows()]
        return table

    def tables(self) -> dict[str, pd.DataFrame]:
        """The results' tables, the tests, and those of what each corruption costs."""
        drops = self.drop_tests()
        return super().tables() | ({"drop_tests": drops} if len(drops) else {})

    def draw(self, ax: "Axes | None" = None) -> "Figure":
        """All models' curves."""
        return draw_curves(self.results, ax)

    def figures(self) -> dict[str, "Figure"]:
        """The curves, what each corruption costs each model, the first image under every corruption."""
        return {
            "figure": self.figure(),
            "heatmap": draw_heatmap(self.results),
            "examples": draw_examples(self.results[0]),
        }


def _mean_ratio(means: np.ndarray) -> np.ndarray:
    """(…, 2 C) mean errors of a network and its reference → the mean of their C ratios."""
    own, other = np.split(means, 2, axis=-1)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray((own / other).mean(-1))


def _test(first: CorruptionsResult, second: CorruptionsResult, index: int) -> dict[str, Any]:
    mine, other = first.drops[index], second.drops[index]
    tested = paired_test(mine, other)
    row = {"model": first.label, "other": second.label, "corruption": first.names[index], "n": first.n}
    row |= {"drop": float(mine.mean()), "other_drop": float(other.mean()), "difference": tested.difference}
    return row | {"low": tested.low, "high": tested.high, "test": "sign flips", "p_value": tested.p_value}


def _verdict(row: "pd.Series[Any]") -> str:
    if why := too_few(row["n"]):
        return why
    more = row["model"] if row["difference"] > 0 else row["other"]
    return "no difference shown" if row["p_holm"] > LEVEL else f"costs {more} more"
