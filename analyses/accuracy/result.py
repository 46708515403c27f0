"""What accuracy says: per image whether the model was right, overall and by class, and what is known from elsewhere."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, TypedDict

import numpy as np
import pandas as pd

from scs_eval.analyses.core.axes import axes_of
from scs_eval.analyses.core.result import Comparison, Result
from scs_eval.analyses.core.statistics import Interval, wilson

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FACTORS = "layer", "activation", "pooling"


class Known(TypedDict, total=False):
    """What is known of a model from elsewhere: further columns of the table, in this order.

    network: its zoo name without the seed; layer, activation and pooling are what that name says. recorded_accuracy: on
    the whole test set, when it was trained. paper_*: the row of the SCS paper that has the same settings;
    earlier_paper_*: a second such row (Table 1 beside Table 6: the same network, other initial weights).
    """

    network: str
    layer: str
    activation: str
    pooling: str
    seed: int
    epochs: int
    paper_epochs: int
    train_seconds_per_epoch: float
    eval_seconds_per_epoch: float
    recorded_accuracy: float
    paper_table: int
    paper_accuracy: float
    paper_train_seconds_per_epoch: float
    paper_eval_seconds_per_epoch: float
    earlier_paper_table: int
    earlier_paper_accuracy: float


@dataclass(frozen=True, eq=False, kw_only=True)
class AccuracyResult(Result):
    """What a model said of n labelled images.

    labels, predictions: (n,) positions in `classes`.
    margins: (n,) the logit of the right class minus the largest other one; positive where the model is right.
    likeliest, probabilities: (n, k) the first classes by softmax and their probabilities; None in older results.
    seconds: for all forward passes.
    """

    name = "accuracy"
    axes: ClassVar = axes_of("image: labels predictions margins", "image, rank: likeliest probabilities")
    classes: tuple[str, ...]
    labels: np.ndarray
    predictions: np.ndarray
    margins: np.ndarray
    parameters: int
    seconds: float
    known: Known = field(default_factory=Known)
    likeliest: np.ndarray | None = None
    probabilities: np.ndarray | None = None

    @property
    def correct(self) -> np.ndarray:
        """(n,) whether the model was right."""
        return self.predictions == self.labels

    @property
    def accuracy(self) -> Interval:
        """The share of images that the model has right."""
        return wilson(self.correct.sum(), len(self.labels))

    def per_class(self) -> pd.DataFrame:
        """One row per class: n, correct, accuracy and its interval; NaN and [0, 1] for a class without images."""
        n = np.bincount(self.labels, minlength=len(self.classes))
        correct = np.bincount(self.labels[self.correct], minlength=len(self.classes))
        accuracy, low, high = wilson(correct, n)
        columns = {"n": n, "correct": correct, "accuracy": accuracy, "low": low, "high": high}
        return pd.DataFrame({"model": self.label, "class": self.classes, **columns})

    def table(self) -> pd.DataFrame:
        """One row: accuracy and its interval, n, parameters, what is known, then each class's accuracy."""
        accuracy, low, high = (float(part) for part in self.accuracy)
        overall = {"model": self.label, "accuracy": accuracy, "low": low, "high": high, "n": len(self.labels)}
        known = {key: self.known.get(key) for key in Known.__annotations__}
        classes = {f"class {name}": share for name, share in self.per_class()[["class", "accuracy"]].to_numpy()}
        row = {**overall, "parameters": self.parameters, **known, **classes}
        return pd.DataFrame([row])

    def tables(self) -> dict[str, pd.DataFrame]:
        """The table, and the classes one below the other with their n and intervals."""
        return {"table": self.table(), "classes": self.per_class()}

    def summary(self) -> pd.DataFrame:
        """In per cent, the interval in brackets; the paper's figure with its table; the weakest class."""
        accuracy, low, high = (100 * float(part) for part in self.accuracy)
        worst = self.per_class().dropna().sort_values("accuracy", kind="stable").iloc[0]
        row = {
            "model": self.label,
            "accuracy %": f"{accuracy:.1f} [{low:.1f}, {high:.1f}]",
            "paper %": _paper(self.known),
            "weakest class %": f"{worst['class']} {100 * worst['accuracy']:.0f}",
            "parameters": f"{self.parameters:,}",
            "epochs (paper)": _epochs(self.known),
            "train s/epoch": _seconds(self.known.get("train_seconds_per_epoch")),
            "eval s/epoch": _seconds(self.known.get("eval_seconds_per_epoch")),
        }
        return pd.DataFrame([row])

    def draw(self, ax: "Axes | None" = None) -> "Figure":
        """Each class's accuracy with its interval, and the overall one as a line with a band."""
        from scs_eval.analyses.accuracy.figure import draw_classes

        return draw_classes(self, ax)


@dataclass(frozen=True, eq=False, kw_only=True)
class AccuracyComparison(Comparison[AccuracyResult]):
    """The accuracy of several models."""

    name = "accuracy"

    def over_seeds(self) -> pd.DataFrame:
        """One row per network that was trained more than once: mean, least and largest accuracy, and the paper's."""
        known = self.table()
        columns = {"accuracy": "mean", "low": "min", "high": "max"}
        rows = []
        for network, part in known.dropna(subset="network").groupby("network", sort=False):
            if len(part) > 1:
                numbers = {name: float(part["accuracy"].agg(how)) for name, how in columns.items()}
                first = {key: part[key].iloc[0] for key in (*FACTORS, "epochs", "paper_accuracy")}
                rows.append({"network": network, "trainings": len(part), **numbers, **first})
        return pd.DataFrame(rows)

    def tables(self) -> dict[str, pd.DataFrame]:
        """Those of the models, and the spread over the seeds of networks that were trained more than once."""
        seeds = self.over_seeds()
        return super().tables() | ({} if seeds.empty else {"seeds": seeds})

    def draw(self, ax: "Axes | None" = None) -> "Figure":
        """One line per network, best first within an architecture; the paper's figures as diamonds; numbers beside.

        The line of a network that was trained several times has its mean and range over these trainings.
        """
        from scs_eval.analyses.accuracy.figure import draw_networks

        return draw_networks(self.results, ax)


def _paper(known: Known) -> str:
    """The paper's accuracy with its table: 81.8 (T6), 77.6 (T1); without, where it stands in the text."""
    pairs = [(known.get("paper_accuracy"), known.get("paper_table"))]
    pairs.append((known.get("earlier_paper_accuracy"), known.get("earlier_paper_table")))
    return ", ".join(f"{100 * share:.1f}" + f" (T{table})" * bool(table) for share, table in pairs if share is not None)


def _epochs(known: Known) -> str:
    """For how many epochs it was trained, and for how many in the paper it comes from: 12 (800)."""
    epochs, paper = known.get("epochs"), known.get("paper_epochs")
    return "" if epochs is None else f"{epochs} ({paper})" if paper else str(epochs)


def _seconds(value: float | None) -> str:
    return "" if value is None else f"{value:.3g}"
